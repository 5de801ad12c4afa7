"""Exit codes: what a script can rely on."""

from typing import Final

EXIT_OK: Final = 0
EXIT_USAGE: Final = 1
EXIT_INPUT: Final = 2
EXIT_PARTIAL: Final = 3
EXIT_OUTPUT: Final = 4
EXIT_DEPENDENCY: Final = 5
EXIT_FAIL_ON: Final = 6
EXIT_INTERRUPTED: Final = 130

EXITS: Final = (
    (EXIT_OK, "all input was read; a capture header without packets counts as read"),
    (EXIT_USAGE, "wrong usage, or a selection that matches nothing"),
    (
        EXIT_INPUT,
        "no readable input: missing, empty, not a capture, only unknown link types, or a lake of a "
        "newer schema",
    ),
    (
        EXIT_PARTIAL,
        "partial: a cut tail, skipped sections, TCP payload that fits no stream, one of several "
        "inputs unreadable, or a judgement that failed; the good part was processed and the last "
        "lines say what is missing",
    ),
    (EXIT_OUTPUT, "output could not be written"),
    (EXIT_DEPENDENCY, "a component or a right is missing; the message says how to get it"),
    (EXIT_FAIL_ON, "a --fail-on condition was met"),
    (EXIT_INTERRUPTED, "interrupted; captures complete by then stay in the lake"),
)
