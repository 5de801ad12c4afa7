"""Fuzzing: hostile bytes into every layer, guided by coverage.

Inputs that are kept lie in `corpus/TARGET`: `covers-*` reached code that no other input did, the
others failed once and are named for what was wrong.
"""
