"""Coverage: what was read, how much of it could be decoded, and notices by code.

spark-submit spark_jobs/coverage.py --lake LAKE -o OUT
"""

import sys
from collections.abc import Sequence
from typing import Final

from spark_jobs import job

SECTIONS: Final = ("coverage",)


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, SECTIONS)


if __name__ == "__main__":
    sys.exit(main())
