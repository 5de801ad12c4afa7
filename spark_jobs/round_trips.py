"""Requests and connecting: round trips by command, and how clients reach a topic.

spark-submit --conf spark.log.level=WARN spark_jobs/round_trips.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("requests", "connecting"))

if __name__ == "__main__":
    sys.exit(main())
