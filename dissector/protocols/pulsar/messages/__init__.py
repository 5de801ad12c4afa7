"""Entries opened: the messages of SEND and MESSAGE frames."""

from dissector.protocols.pulsar.messages.entries import Entries

__all__ = ("Entries",)
