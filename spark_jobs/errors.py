"""Findings, errors, slowest: faults, refused requests, and the longest exchanges.

spark-submit --conf spark.log.level=WARN spark_jobs/errors.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("findings", "errors", "slowest"))

if __name__ == "__main__":
    sys.exit(main())
