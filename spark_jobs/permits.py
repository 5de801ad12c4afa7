"""Permit utilization: the balance of every consumer over time, stalls and silence.

spark-submit --conf spark.log.level=WARN spark_jobs/permits.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("permit_utilization",))

if __name__ == "__main__":
    sys.exit(main())
