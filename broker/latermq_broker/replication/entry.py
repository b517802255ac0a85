"""An entry of a replicated log, and where it stands."""

from typing import Final, NamedTuple, TypeAlias

from latermq_broker.errors import EntriesLostError

Offset: TypeAlias = int  # of an entry in the replicated log, from 0

UNTOLD: Final[Offset] = -1  # a quorum has it, but it is not said where


class Entry(NamedTuple):
    """One entry as it stands in the replicated log."""

    offset: Offset
    data: bytes


def require_behind(offset: Offset, end: Offset) -> None:
    """Have an entry at `offset` stand behind what a quorum had when it was appended, up to `end`.

    Raises EntriesLostError.
    """
    if offset < end:
        raise EntriesLostError(
            f"the replicated log has lost what it acknowledged: entry {end - 1} was there, and "
            f"what was appended behind it is entry {offset}"
        )
