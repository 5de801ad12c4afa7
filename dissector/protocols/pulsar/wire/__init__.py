"""Pulsar's wire format: commands, headers, fields, their text, and their disguise."""

__all__ = (
    "anonymize",
    "columns",
    "commands",
    "details",
    "fields",
    "headers",
    "secret_fields",
    "unknown",
)  # fmt: skip
