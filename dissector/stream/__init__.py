"""Streams: TCP segments to the bytes of each direction, in order."""
