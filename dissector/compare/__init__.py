"""Compares two runs, before and after a change, with statistically tested verdicts."""
