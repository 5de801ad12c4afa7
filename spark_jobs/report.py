"""All jobs together: report.json, its tables as Parquet, and the HTML page.

spark-submit --conf spark.log.level=WARN spark_jobs/report.py --lake LAKE -o REPORT
"""

import sys
from functools import partial

from spark_jobs import job

main = partial(job.main, description=__doc__, has_page=True)

if __name__ == "__main__":
    sys.exit(main())
