"""Redelivery: entries delivered more than once, with causes, and messages set aside.

spark-submit --conf spark.log.level=WARN spark_jobs/redelivery.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("redelivery",))

if __name__ == "__main__":
    sys.exit(main())
