"""Replace the names in error texts of brokers.

Names are not marked, so only words that brokers use in error texts stay. Words joined by signs
(`orders-eu`, `10.0.0.1:6650`) or between quotes are a name, whatever the parts are; a number is
part of one.
"""

import re
from typing import Final

from dissector.codecs.redaction import masked, secrets
from dissector.protocols.pseudonyms import Pseudonyms

_TEXT: Final = """
    a about above access ack acknowledge acknowledged acknowledgement active add added address after
    again ahead all allow allowed already also an and another any append are argument assigned at
    attempt attempted attempting auth authentication authorization authorize authorized auto
    available back backlog bad batch be because been before begin being below between broker brokers
    bundle but by bytes can cannot caused change changed changing check checksum client clients
    close closed closing cluster coordinator code command compaction compatible concurrent config
    configuration configured conflict connect connected connecting connection consumer consumers
    contain contains corrupted could count create created creating creation credentials cursor data
    deadline decode deduplication default delete deleted deleting denied different disabled
    disconnected dispatch do does done due duplicate during either empty enabled encryption end
    entry epoch error errors exceed exceeded exceeding exception exclusive existing exist exists
    expected expired expiry fail failed failing failover failure fake false feature features fenced
    fencing field find first flow for format found frame from full further get go got grant group
    had handle has have header heartbeat high id if ignored illegal in incompatible information
    initial inside instead insufficient internal into invalid is isr it its key kind large last
    latest leader leaving ledger length less level limit list loaded loading local lock long lookup
    low malformed managed max maximum may member memory message messages metadata method min minimum
    missing mode more most must name namespace namespaces need needed negative new next no non none
    not null number of off offset offsets ok old on once one only open operation or order other out
    over overflow owned owner ownership parse parsing partition partitioned partitions payload
    pending permission permissions permitted pending persistence persistent please policies policy
    position producer producers properties property protocol provided publish publishing queue quota
    range rate reach reached read reader reading ready reason rebalance receive received refused
    register registered reject rejected replica replicas replication replicated replicator request
    requested requests require required reset resource resources response retention retry retryable
    role same schema seek segment send sent sequence server service session set shared should shut
    shutdown since single size snapshot so some standalone start started starting state stale still
    stop stopped storage store stored stream subscribe subscribed subscriber subscription
    subscriptions success such support supported system tenant terminated than that the their them
    then there these this throttled time timed timeout timestamp to token too topic topics
    transaction transactions trim true try trying type types unable unacked unauthorized unavailable
    unconnected under unexpected unknown unload unloaded unloading unsubscribe unsubscribing
    unsupported until update updated use used using valid validation value version via wait waiting
    want was when where whether which while will with without write writing wrong you your yet
    eof tcp tls dial by peer host port characters event sourcing aggregate
    naming busy
    """
_TEXT_OF_PROGRAMS: Final = """
    pulsar apache java cpp c go golang node nodejs js python py rust rs dot net dotpulsar csharp
    flex server client proxy broker kop mop aop flink spark kafka reactive perf tool lib v rc
    alpha beta candidate snapshot release final ga cursus sdk streamnative lite none token tls basic
    athenz sasl oauth kerberos saml ldap auth aes gcm cbc ecb rsa ecdsa sha oaep padding with and
    exclusive shared failover key t z gmt utc
"""
_WORDS: Final = frozenset(word.encode() for word in _TEXT.split())
# Names of programs, methods and algorithms.
_PROGRAMS: Final = frozenset(word.encode() for word in _TEXT_OF_PROGRAMS.split())
_CODES: Final = re.compile(rb"[A-Z][A-Z_]{2,40}|[a-z]+(?:_[a-z]+)+")
_CLASS: Final = re.compile(rb"(?:org\.apache|java|javax|io\.netty)\.[\w.$]+")
_MODES: Final = frozenset((b"Exclusive", b"Shared", b"Failover", b"Key_Shared", b"no-schema"))
# A run of letters and the signs that occur in names; all other characters separate runs.
_RUN: Final = re.compile(rb"[^\s\"'`()\[\]{}<>,;=|]+")
_CAMEL: Final = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LETTERS: Final = re.compile(rb"(?:[A-Za-z]|[0-9]+[A-Za-z]|[\x80-\xff])+")
_ENDS: Final = b".:!?"
_QUOTES: Final = b"\"'`"


class Sentences:
    """Anonymizes sentences with pseudonyms.

    Args:
        has_codes: words in capitals and joined_words are the protocol's own and stay.
    """

    def __init__(self, names: Pseudonyms, has_codes: bool = False) -> None:
        self._names = names
        self._has_codes = has_codes

    def anonymized(self, text: bytes) -> bytes:
        """The anonymized sentence, of equal length."""
        text = masked(text, secrets(text))
        out = bytearray(text)
        for match in _RUN.finditer(text):
            run = match[0].rstrip(_ENDS)
            start = match.start()
            before = text[start - 1 : start] if start else b""
            is_quoted = bool(before) and before in _QUOTES
            if run and not self._stays(run, is_quoted):
                out[start : start + len(run)] = self._names.name(run)
        return bytes(out)

    def version(self, text: bytes) -> bytes:
        """The anonymized name of a program or method, of equal length: known words stay, and all
        characters that are no letters."""
        text = masked(text, secrets(text))
        return _LETTERS.sub(
            lambda match: match[0] if _is_program(match[0]) else self._names.words(match[0]), text
        )

    def _stays(self, run: bytes, is_quoted: bool) -> bool:
        if run in _MODES or _CLASS.fullmatch(run):
            return True
        if is_quoted:
            return False
        if self._has_codes and _CODES.fullmatch(run):
            return all(part.lower() in _WORDS for part in run.split(b"_"))
        if not run.isalpha():
            return not any(sign >= 0x80 or chr(sign).isalnum() for sign in run)
        parts = _CAMEL.findall(run)
        return run.lower() in _WORDS or (
            len(parts) > 1 and all(part.lower() in _WORDS for part in parts)
        )


def _is_program(word: bytes) -> bool:
    parts = _CAMEL.findall(word) or [word]
    return word.lower() in _PROGRAMS or all(part.lower() in _PROGRAMS for part in parts)
