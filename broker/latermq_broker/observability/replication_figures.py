"""How a broker stands in a replicated log, for GetBroker and for the page of metrics.

Counters begin at 0 with the process, whatever it becomes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from latermq_broker.engine.state.figures import Histogram
from latermq_broker.observability.exposition import (
    Family,
    histogram_lines,
    label_text,
    sample,
)

OWNER: Final = "owner"
STANDBY: Final = "standby"
LATENCY: Final = Family(
    "latermq_replication_append_seconds",
    "histogram",
    "How long the replicated log took to say that a quorum has a batch.",
)


class Member(NamedTuple):
    """What a broker says of its part in a replicated log."""

    address: str  # where it serves when it owns the log
    shard: int
    role: str  # OWNER, STANDBY, or what a later version knows
    epoch: int
    position: int
    lag_entries: int
    version: str
    ready: bool | None = None  # it could take over as it is; None: it is no standby, or older
    checkpoint: int | None = None  # position of its newest; 0: it has none


class MemberSeen(NamedTuple):
    """What was heard of a broker, and how long ago."""

    name: str  # HOST:DIRECTORY
    member: Member
    ms_ago: int
    silent: bool
    behind_bytes: int | None = None  # of this owner's log, when it was heard
    behind_ms: int | None = None  # since this owner's log went on from there; None: not known


class Others(NamedTuple):
    """The other brokers of a log, as far as this one heard of them."""

    seen: tuple[MemberSeen, ...] = ()
    unread: int = 0  # entries that were skipped
    heard: bool = False  # itself, lately: so it would have heard others
    address: str = ""  # that they are told is this one's

    @property
    def standbys(self) -> int:
        """Count those that stand by."""
        return sum(each.member.role == STANDBY and not each.silent for each in self.seen)


class ReplicationFigures(NamedTuple):
    """What an owner or a standby knows now; what only an owner does is 0 at a standby."""

    role: str  # OWNER or STANDBY
    cluster: str
    epoch: int  # of the log's owner; 0: it never had one
    position: int  # up to which a quorum has an owner's log; a standby has it, too
    silence_ms: int  # since the replicated log last answered
    latency_ms: Histogram  # of the replicated log, by batch
    lag_entries: int = 0  # of the replicated log, which a standby has not read yet
    lag_bytes: int = 0  # of the owner's log, which a quorum is not known to have
    waiting_bytes: int = 0  # of these, not shipped yet
    in_flight: int = 0  # batches
    gaps: int = 0  # that were read
    beats: int = 0  # that were shipped
    take_overs: int = 0
    others: Others = Others()
    ready: bool | None = None  # of a standby, as the next
    checkpoint: int | None = None


def replication_page(seen: ReplicationFigures) -> str:
    """Return the lines of a broker that has a replicated log."""
    rows = "".join(
        family.head() + sample(family.name, labels, value) for family, labels, value in _rows(seen)
    )
    head = LATENCY.head()
    return f"{rows}{head}{histogram_lines(LATENCY.name, '', seen.latency_ms)}"


def _rows(seen: ReplicationFigures) -> Iterator[tuple[Family, str, float]]:
    cluster = label_text({"cluster": seen.cluster})
    for name, help, labels, value in (
        ("owner", "1 at the broker that owns the log, 0 at a standby.", cluster,
         seen.role == OWNER),
        ("standbys", "Other brokers that stand by for the log, heard of lately.", cluster,
         seen.others.standbys),
        ("epoch", "Of the log's owner: each owner has a higher one.", "", seen.epoch),
        ("position", "Position up to which a quorum and this broker have the log.", "",
         seen.position),
        ("engine_silence_seconds", "Since the replicated log last answered this broker.", "",
         seen.silence_ms / 1_000),
        ("lag_entries", "Entries of the replicated log that a standby has not read yet.", "",
         seen.lag_entries),
        ("lag_bytes", "Bytes of an owner's log that a quorum is not known to have.", "",
         seen.lag_bytes),
        ("waiting_bytes", "Bytes of an owner's log that wait to be shipped.", "",
         seen.waiting_bytes),
        ("in_flight", "Batches on their way to the replicated log.", "", seen.in_flight),
    ):  # fmt: skip
        yield Family(f"latermq_replication_{name}", "gauge", help), labels, float(value)
    for name, help, value in (
        ("gaps", "Times that an owner read what stands between its batches.", seen.gaps),
        ("beats", "Empty batches, by which an owner shows that it lives.", seen.beats),
        ("take_overs", "Times that this process became the owner.", seen.take_overs),
        ("members_unread", "Entries of other brokers that were skipped.", seen.others.unread),
    ):
        yield Family(f"latermq_replication_{name}_total", "counter", help), "", value
