"""Cursus' protocol: text commands, JSON answers and binary batches in length-prefixed frames."""
