"""Addresses of connections as columns of codes: the text of each address is written once."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array
from dissector.dissection.endpoint_texts import EndpointPairs, new_addresses
from dissector.limits import NULL
from dissector.tables import new_hash_table, reserved

_CACHED_CONNECTIONS: Final = 1 << 14  # a power of two
_CACHED_ADDRESSES: Final = 1 << 16
_FEW_ADDRESSES: Final = 64
EndsOf = Callable[[Int64Array], EndpointPairs]


class AddressCodes:
    """Codes of the addresses of connections, cached by connection, since millions of rows may
    belong to few connections.

    Parameters `ends_of`: (connection ids) -> clients and brokers.
    """

    def __init__(self, key: int = 0) -> None:
        """key: of the hash table."""
        self._key = key
        self._cache = np.full((3, _CACHED_CONNECTIONS), NULL, np.int64)
        self._table = new_hash_table(2 * _FEW_ADDRESSES, key)
        self._texts: list[str] = []

    def columns(self, connections: Int64Array, ends_of: EndsOf) -> dict[str, Column]:
        """Columns client_ip and broker_ip; all rows of a call share one list of texts."""
        self._begin()
        connection_indexes = connections & (_CACHED_CONNECTIONS - 1)
        missing = np.flatnonzero(self._cache[0][connection_indexes] != connections)
        if len(missing):
            # The counts are unused: without them numpy imports its masked arrays, at each start.
            distinct, _ = np.unique(connections[missing], return_counts=True)
            looked_up = self._look_up(distinct, ends_of)
            self._cache[:, distinct & (_CACHED_CONNECTIONS - 1)] = looked_up
        cached, client, broker = self._cache[:, connection_indexes]
        # If connections of one call share a slot, only the last one is in the cache.
        evicted = np.flatnonzero(cached != connections)
        if len(evicted):
            distinct, inverse = np.unique(connections[evicted], return_inverse=True)
            _, client[evicted], broker[evicted] = self._look_up(distinct, ends_of)[:, inverse]
        return self._coded(client, broker)

    def columns_of(self, ends: EndpointPairs) -> dict[str, Column]:
        """Columns client_ip and broker_ip of pairs of endpoints."""
        self._begin()
        return self._coded(*self._codes(ends))

    def texts_of(self, ends: EndpointPairs) -> tuple[list[str], list[str]]:
        """The addresses of clients and of brokers."""
        self._begin()
        client, broker = self._codes(ends)
        texts = self._texts
        return [texts[code] for code in client.tolist()], [texts[code] for code in broker.tolist()]

    def _begin(self) -> None:
        """Clear the cache if it has too many addresses."""
        if len(self._texts) > _CACHED_ADDRESSES:
            self._cache[:] = NULL
            self._table, self._texts = new_hash_table(2 * _FEW_ADDRESSES, self._key), []

    def _coded(self, client: Int64Array, broker: Int64Array) -> dict[str, Column]:
        return {"client_ip": Coded(client, self._texts), "broker_ip": Coded(broker, self._texts)}

    def _look_up(self, connections: Int64Array, ends_of: EndsOf) -> Int64Array:
        """int64[3, connections]: connections, rising, codes of their clients, of their brokers."""
        return np.vstack((connections, self._codes(ends_of(connections))))

    def _codes(self, ends: EndpointPairs) -> Int64Array:
        """Codes of both ends, int64[2, rows]; new addresses get codes in order of appearance."""
        self._table = reserved(self._table, 2 * len(ends.port))
        codes, text, bounds = new_addresses(ends, self._table)
        decoded = text.tobytes().decode("ascii")
        self._texts += [decoded[start:stop] for start, stop in pairwise(bounds.tolist())]
        return codes
