"""Findings: what is wrong in a capture, by rules over the lake, with the frames that prove it."""
