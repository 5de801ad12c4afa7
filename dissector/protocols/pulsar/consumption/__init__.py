"""Deliveries, permits and acknowledgements of consumers."""

from dissector.protocols.pulsar.consumption.consumption import PulsarConsumption

__all__ = ("PulsarConsumption",)
