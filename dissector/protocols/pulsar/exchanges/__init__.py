"""Requests with the answers that they got."""

from dissector.protocols.pulsar.exchanges.exchanges import PulsarExchanges

__all__ = ("PulsarExchanges",)
