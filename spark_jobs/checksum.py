"""Checksum failures: verdicts on CRC32C, and the peer's answer to each mismatch.

spark-submit --conf spark.log.level=WARN spark_jobs/checksum.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("checksum_failures",))

if __name__ == "__main__":
    sys.exit(main())
