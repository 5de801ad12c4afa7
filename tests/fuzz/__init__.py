"""Fuzzing: hostile bytes into every layer, guided by coverage; what it found lies in `corpus`."""
