"""Apache Pulsar's binary protocol: frames to fields, messages and facts."""
