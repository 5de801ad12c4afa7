"""Pulsar's wire format: commands, headers, fields, their text, and their disguise."""

__all__ = (
    "columns", "commands", "details", "disguised", "fields", "headers", "secret_fields", "unknown",
)  # fmt: skip
