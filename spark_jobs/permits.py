"""Permit utilization: the balance of every consumer over time, stalls and silence.

    spark-submit spark_jobs/permits.py --lake LAKE -o OUT

The definitions stand in `dissector.report.balance`, which walks the same rows in one process; here
they are said with window functions over the rows of one consumer incarnation.
"""

import sys
from collections.abc import Sequence
from typing import Final

from spark_jobs import job

SECTIONS: Final = ("permit_utilization",)


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, SECTIONS)


if __name__ == "__main__":
    sys.exit(main())
