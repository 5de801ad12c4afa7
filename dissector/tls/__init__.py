"""TLS: between the streams and the protocols; what was encrypted goes on as plain bytes.

`room` picks the ranges of TLS connections, `connection` follows one of them, `records` cuts a
direction into records, `handshake` reads what is said before the keys, `keylog` has the secrets,
`suites` says which ciphers are read and `ciphers` opens records. No I/O, no clock.
"""
