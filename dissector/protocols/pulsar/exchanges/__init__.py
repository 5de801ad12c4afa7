"""Requests with the answers that they got."""

from dissector.protocols.pulsar.exchanges.exchanges import PulsarExchanges
from dissector.protocols.pulsar.exchanges.state import ExchangeBounds

__all__ = ("ExchangeBounds", "PulsarExchanges")
