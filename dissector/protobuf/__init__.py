"""Protobuf without objects: descriptors to plans, plans over many byte spans at once."""
