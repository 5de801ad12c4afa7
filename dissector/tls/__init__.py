"""TLS: decrypt the streams' ranges before the protocols read them.

`room` selects the ranges of TLS connections, `connection` decrypts one of them, `records` splits a
direction into records, `handshake` parses the unencrypted messages, `keylog` has the secrets,
`suites` lists the supported ciphers and `ciphers` decrypts records. No I/O, no clock.
"""
