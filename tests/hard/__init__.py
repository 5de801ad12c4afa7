"""Captures of hard cases, written by small generators with fixed seeds, and what must come of them.

`python -m tests.hard FOLDER` writes the captures of all cases, to look at them with other tools.
"""
