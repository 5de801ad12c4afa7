"""The command anonymize, and functions that it shares with evidence."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dissector.cli import options, selecting
from dissector.cli.exits import EXIT_PARTIAL
from dissector.cli.options import Common
from dissector.cli.terminal import counted, progress_bar
from dissector.errors import OutputError, UsageError
from dissector.limits import MAX_PSEUDONYMS
from dissector.outputs import new_file, written

if TYPE_CHECKING:
    from dissector.evidence.anonymizer import Anonymizer
    from dissector.evidence.anonymizing import Anonymized

_KEY_BYTES: Final = 32


def anonymizer_of(keep_addresses: bool, keep_names: bool, key_file: Path | None) -> "Anonymizer":
    """Return the anonymizer of a key and of options.

    Raises:
        UsageError: the file has no key, or other users can read it. OutputError: it cannot be
            created.
    """
    from dissector.evidence.anonymizer import Anonymizer, Keeping, new_key

    key = new_key() if key_file is None else _kept_key(key_file)
    return Anonymizer(key, Keeping(keep_addresses, keep_names))


def _kept_key(path: Path) -> bytes:
    from dissector.evidence.anonymizer import new_key
    from dissector.sources.private import private

    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise UsageError(f"{path}: others can read this key: chmod 600 it")
            text = file.read(4 * _KEY_BYTES)
    except FileNotFoundError:
        key = new_key()
        try:
            with open(path, "xb", opener=private) as file:
                file.write(key.hex().encode() + b"\n")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error
        return key
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    with suppress(ValueError):
        key = bytes.fromhex(text.decode("ascii", "replace").strip())
        if len(key) == _KEY_BYTES:
            return key
    raise UsageError(f"{path}: holds no key of {2 * _KEY_BYTES} hexadecimal digits")


@click.command(
    epilog=options.example(
        "dissector anonymize night.pcap -o shared.pcapng\n"
        "dissector anonymize before.pcap -o b.pcapng --key-file key    # the same names in\n"
        "dissector anonymize after.pcap -o a.pcapng --key-file key     # both"
    )
)
@options.inputs_argument
@options.output_file_option(required=True)
@options.anonymizing_options
@selecting.no_selecting_options(
    "anonymize copies all packets: dissector evidence takes it, and is as anonymous"
)
@options.force_option
@options.chain_option
@options.dissecting_options
def anonymize(
    common: Common,
    inputs: tuple[str, ...],
    output: Path,
    keep_addresses: bool,
    keep_names: bool,
    key_file: Path | None,
    force: bool,
    chain: str,
) -> int:
    """Write a copy of a capture that can be shared.

    Payloads become noise, names and addresses others of equal length, secrets stars; lengths, times
    and numbers stay, so that the copy gives the same results. Always pcapng. Unchanged parts, and
    limits: docs/bug-reports.md.
    """
    from dissector.cli.reading import Reading, rereadable, tell_missing
    from dissector.evidence.anonymizing import anonymize as write_anonymous
    from dissector.evidence.streams import ASKED, TreatedStreams

    target = new_file(output, inputs, is_forced=force)
    anonymizer = anonymizer_of(keep_addresses, keep_names, key_file)
    with rereadable(inputs) as files:
        reading = Reading(files, common, chain)
        if len(reading.chains) != 1:
            raise UsageError(
                f"{len(reading.chains)} captures are named and one file is written: name one, or "
                "say that they are one with --chain all"
            )
        rows = (block for _, block in reading.blocks("anonymizing", **ASKED))
        streams = TreatedStreams(anonymizer.treat, rows)
        reading.refuse_if_partial()
        with (
            progress_bar(
                "writing", reading.total_bytes, common.is_progress_shown, common.color
            ) as bar,
            written(target, is_forced=force) as file,
        ):
            done = write_anonymous(reading.chains[0], streams, anonymizer, file, progress=bar)
    tell_missing(reading.account, common.words)
    common.words.say(f"{counted(done.packets, 'packet')} written to {output}")
    for sentence in changes(done, anonymizer):
        common.words.detail(sentence)
    return EXIT_PARTIAL if reading.account.is_partial else 0


def changes(done: "Anonymized", anonymizer: "Anonymizer") -> list[str]:
    """Return sentences about the changes to packets."""
    keeping = anonymizer.keeping
    repacked, nameless, noise = (
        sum(getattr(each, name) for each in anonymizer.by_protocol.values())
        for name in ("repacked", "nameless", "given_up")
    )
    lines = [
        "Secrets: what authenticates (CONNECT, AUTH_RESPONSE, lookups, AUTH of Cursus) and values "
        "of encryption keys are `*`, as many as there were bytes.",
        f"Payloads: noise of equal length, in {counted(done.frames, 'frame')} looked at. A CRC32C "
        "that was right is right again; of a frame whose CRC32C was wrong one payload byte is "
        "wrong again.",
        "Names (topics, subscriptions, producers, consumers, clients' keys and properties, hosts): "
        + (
            "kept, but for what looks like a secret."
            if keeping.names
            else "others of equal length, the same for the same name; letters stay letters, digits "
            "digits, and the signs between them stay. Words that brokers use stay in their "
            "sentences; numbers in sentences are replaced, too."
        ),
        "IP addresses: "
        + (
            "kept, as are MAC addresses."
            if keeping.addresses
            else "others, prefixes kept, under a key that is not in here; those in "
            "texts are other texts of equal length. MAC addresses are others; ports stay."
        ),
        "Sums of IP and TCP that were right are right again, wrong ones wrong. Sums of UDP are 0.",
        "Versions of clients and brokers, times, ids, sizes and flags stay.",
        "Comments, names of interfaces and secrets for decryption of the original are not in here.",
    ]
    if repacked:
        lines.append(f"Compressed batches packed anew at their length: {repacked:,}.")
    if nameless:
        lines.append(
            f"Of these without names and keys inside, for which there was no room: {nameless:,}."
        )
    if anonymizer.pseudonyms.is_full:
        lines.append(f"Of more than {MAX_PSEUDONYMS:,} short words two may have become the same.")
    if noise:
        lines.append(
            f"Compressed bodies that could not be packed anew and are noise: {noise:,}; rows "
            "of single messages in them are missing, numbers of messages are not."
        )
    if done.emptied:
        lines.append(f"Bytes emptied of packets that are no TCP segments: {done.emptied:,}.")
    return lines
