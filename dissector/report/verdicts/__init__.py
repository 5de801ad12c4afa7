"""The verdicts of a report, by what they are about."""
