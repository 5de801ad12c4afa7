"""The errors a run can end with, each with the exit code that the command line returns for it."""

from collections.abc import Iterator
from contextlib import contextmanager


class DissectorError(Exception):
    """Something the user can act on; its text says what, where and what to do next."""

    exit_code = 1


class UsageError(DissectorError):
    """A wrong option or argument, or a selection that matches nothing."""

    exit_code = 1


class NothingMatchesError(UsageError):
    """A selection that matches nothing.

    Args:
        what: the sentence. question: in SQL, what there is to select from.
    """

    def __init__(self, what: str, question: str) -> None:
        super().__init__(f"{what}; what is there: dissector sql INPUT '{question}'")


class InputError(DissectorError):
    """No readable input: missing, empty, not a capture, or a lake of a newer schema."""

    exit_code = 2


class OutputError(DissectorError):
    """Output could not be written."""

    exit_code = 4


class DependencyError(DissectorError):
    """A component or a right is missing; the text says how to get it."""

    exit_code = 5


@contextmanager
def needs(extras: str, otherwise: str) -> Iterator[None]:
    """Imports of what optional dependencies bring, which may be missing.

    Args:
        extras: that bring it, as pip takes them. otherwise: what works without.

    Raises:
        DependencyError: a library is missing.
    """
    try:
        yield
    except ImportError as error:
        raise DependencyError(
            f"{error.name or extras} is missing: pip install 'pulsar-dissector[{extras}]'; "
            f"{otherwise}"
        ) from error
