"""Decodes packets (link layer, IP, TCP) to segment columns."""
