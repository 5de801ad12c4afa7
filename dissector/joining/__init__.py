"""Captures that belong together, read as one: which, and what each alone could not know."""
