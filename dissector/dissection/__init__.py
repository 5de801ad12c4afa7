"""Dissection: bytes of one capture in, rows of its tables out; no I/O, no clock."""

from dissector.dissection.dissection import Dissection
from dissector.options import Options

__all__ = ("Dissection", "Options")
