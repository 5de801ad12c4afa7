"""Bytes in: files, standard input, compressed files, and which of them form one capture."""
