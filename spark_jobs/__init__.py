"""Spark jobs over a lake.

The modules in JOBS run by themselves under spark-submit; the others are what they are made of.
"""

from typing import Final

# What each prints under --help; docs/spark.md lists them.
JOBS: Final = {
    "report": "all sections at once, with joined captures and the page",
    "coverage": "what was read and decoded, notices by code",
    "latency": "how long sends took",
    "permits": "permits of consumers over time, stalls",
    "redelivery": "what was delivered more than once, and why",
    "checksum": "verdicts on checksums, and what the peer said",
    "errors": "refusals, and the slowest exchanges",
    "round_trips": "round trips by command, and connecting",
    "lifetimes": "from publish to delivery, and to the ack",
    "land": "captures into a lake, one task each",
    "archive": "the program for workers that have none (no Spark job: plain Python)",
}
