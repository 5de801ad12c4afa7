"""Send latency: SEND to SEND_RECEIPT by topic, producer, client and broker, over time.

spark-submit spark_jobs/latency.py --lake LAKE -o OUT
"""

import sys
from collections.abc import Sequence
from typing import Final

from spark_jobs import job

SECTIONS: Final = ("send_latency",)


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, SECTIONS)


if __name__ == "__main__":
    sys.exit(main())
