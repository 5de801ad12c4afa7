"""Where Spark looks for the data source `pulsar_pcap`: it imports all modules of such names."""

from spark_jobs.captures import PulsarPcap as DefaultSource

__all__ = ["DefaultSource"]
