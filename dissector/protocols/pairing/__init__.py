"""Requests with the answers that they got, for every protocol that declares its commands."""
