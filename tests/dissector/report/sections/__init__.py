"""Tests of the report's sections."""
