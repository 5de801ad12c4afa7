"""The sections of a report, one module each: from merged rows to the numbers of `report.json`."""
