"""Parses protobuf without objects: descriptors to plans, plans applied to many byte spans."""
