"""All jobs together: report.json, its tables as Parquet, and the HTML page.

spark-submit spark_jobs/report.py --lake LAKE -o REPORT
"""

import sys
from collections.abc import Sequence

from spark_jobs import job


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, __doc__, has_page=True)


if __name__ == "__main__":
    sys.exit(main())
