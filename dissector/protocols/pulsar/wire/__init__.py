"""Pulsar's wire format: commands, headers, fields, their text, and their disguise."""

__all__ = ("commands", "details", "disguised", "fields", "headers", "secret_fields")
