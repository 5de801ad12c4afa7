"""The live tap: packets of an interface, or of files replayed, to metrics and a rotating lake."""
