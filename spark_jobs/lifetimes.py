"""Publish to delivery and ack latency: times of entries and acks, and entries stored.

spark-submit --conf spark.log.level=WARN spark_jobs/lifetimes.py --lake LAKE -o OUT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, sections=("publish_to_delivery", "ack_latency"))

if __name__ == "__main__":
    sys.exit(main())
