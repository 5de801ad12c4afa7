"""Checksum failures: verdicts on CRC32C, and what the peer said about each mismatch.

spark-submit spark_jobs/checksum.py --lake LAKE -o OUT
"""

import sys
from collections.abc import Sequence
from typing import Final

from spark_jobs import job

SECTIONS: Final = ("checksum_failures",)


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, SECTIONS)


if __name__ == "__main__":
    sys.exit(main())
