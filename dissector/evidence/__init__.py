"""Shareable extracts of a capture: anonymized and redacted copies, and bundles with a finding."""
