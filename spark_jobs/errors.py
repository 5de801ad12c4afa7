"""Errors and slowest: answers that refuse something, and the exchanges that took longest.

spark-submit spark_jobs/errors.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("errors", "slowest"))

if __name__ == "__main__":
    sys.exit(main())
