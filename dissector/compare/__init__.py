"""Two runs against each other: before and after a change, with verdicts that can be trusted."""
