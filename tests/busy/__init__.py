"""Two-way Pulsar traffic of any size, made fast: `python -m tests.busy FRAMES FILE`."""
