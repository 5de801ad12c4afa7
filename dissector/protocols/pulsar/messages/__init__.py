"""The messages in the entries of SEND and MESSAGE frames."""

from dissector.protocols.pulsar.messages.entries import Entries

__all__ = ("Entries",)
