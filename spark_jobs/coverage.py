"""Coverage: what was read, how much of it could be decoded, and notices by code.

spark-submit --conf spark.log.level=WARN spark_jobs/coverage.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("coverage",))

if __name__ == "__main__":
    sys.exit(main())
