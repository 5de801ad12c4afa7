"""Producers and consumers of a capture: their names, and when they open and close."""

from dissector.protocols.pulsar.registry.registry import PulsarRegistry
from dissector.protocols.pulsar.registry.requests import RegistryContext, Request
from dissector.protocols.pulsar.registry.steps import register_frame

__all__ = ("PulsarRegistry", "RegistryContext", "Request", "register_frame")
