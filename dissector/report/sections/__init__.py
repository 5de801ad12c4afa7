"""The sections of a report, one module each: tallies in, the numbers of `report.json` out."""
