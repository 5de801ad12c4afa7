"""Packets: link layer, IP and TCP to segment columns."""
