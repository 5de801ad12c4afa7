"""Integers, checksums, compression and names: bytes to values."""
