"""Builders of bytes for tests: packets, capture files, frames."""
