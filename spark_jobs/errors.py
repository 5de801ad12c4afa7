"""Errors and slowest: answers that refuse something, and the exchanges that took longest.

spark-submit spark_jobs/errors.py --lake LAKE -o OUT
"""

import sys
from collections.abc import Sequence
from typing import Final

from spark_jobs import job

SECTIONS: Final = ("errors", "slowest")


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, SECTIONS)


if __name__ == "__main__":
    sys.exit(main())
