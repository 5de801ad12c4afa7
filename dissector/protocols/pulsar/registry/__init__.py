"""Producers and consumers of a capture: who they are, from when to when."""

from dissector.protocols.pulsar.registry.registry import PulsarRegistry

__all__ = ("PulsarRegistry",)
