"""Send latency: SEND to SEND_RECEIPT by topic, producer, client and broker, over time.

spark-submit --conf spark.log.level=WARN spark_jobs/latency.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("send_latency",))

if __name__ == "__main__":
    sys.exit(main())
