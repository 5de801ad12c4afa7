"""Producers and consumers of a capture: who they are, from when to when."""

from dissector.protocols.pulsar.registry.registry import PulsarRegistry
from dissector.protocols.pulsar.registry.requests import Asked, RegistryContext
from dissector.protocols.pulsar.registry.steps import register_frame

__all__ = ("Asked", "PulsarRegistry", "RegistryContext", "register_frame")
