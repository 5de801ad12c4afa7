"""Stores: where files lie that have an address (`s3://bucket/name`) in the place of a path."""
