"""Capture files: records of pcap and pcapng to packet columns, and a pcapng writer."""
