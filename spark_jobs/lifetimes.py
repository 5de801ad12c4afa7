"""Publish to delivery and ack latency: how long entries and acks took, and what was stored.

spark-submit spark_jobs/lifetimes.py --lake LAKE -o OUT
"""

import sys
from collections.abc import Sequence
from typing import Final

from spark_jobs import job

SECTIONS: Final = ("publish_to_delivery", "ack_latency")


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, SECTIONS)


if __name__ == "__main__":
    sys.exit(main())
