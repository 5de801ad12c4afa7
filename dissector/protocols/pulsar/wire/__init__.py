"""Pulsar's wire format: commands, headers, fields, texts, and their anonymization."""

__all__ = (
    "anonymize",
    "columns",
    "commands",
    "details",
    "fields",
    "frame_fields",
    "headers",
    "secret_fields",
    "unknown",
)  # fmt: skip
