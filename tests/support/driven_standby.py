"""A standby whose engine is driven by what another broker's log is given, batch by batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.engine.checkpoint.snapshot import snapshot
from latermq_broker.engine.engine import Engine
from latermq_broker.replication.batch import cluster_hash, encode_batch, fence_of
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.local_copy import LocalCopy
from latermq_broker.replication.note import Note
from latermq_broker.replication.owner import piece_of
from latermq_broker.replication.reader import Piece
from latermq_broker.replication.shipper import Shipper
from latermq_broker.replication.standby import Standby
from latermq_broker.store.files import Files
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.commitment import WrittenPiece
from support.log_in_memory import LogInMemory

CLUSTER: Final = "test"
DIRECTORY: Final = Path("/standby")
# How these are laid out tells when somebody looked at a clock, or asked for what is not there:
# what they hold is compared.
LAID_OUT: Final = ("timer.", "runs", "leases", "subscriptions")


class ShippedLog:
    """Entries of all that is in `log`, which has one segment yet, and of what it writes.

    The log's `Keepers`: they have at once what they get.
    """

    def __init__(self, log: CommitLog) -> None:
        fence = fence_of(cluster_hash(CLUSTER), 0, 1, 1)
        self.entries = [encode_batch(fence)]
        self._shipper = Shipper(fence, 0)
        [segment] = log.segments
        self._ship([Piece(0, segment.pread(log.written, 0), segment.size)])
        self._log = log
        log.commitment.keep_with(self, log.written)

    def written(self, pieces: Sequence[WrittenPiece]) -> None:
        self._ship([piece_of(*piece) for piece in pieces])
        self._log.commitment.kept(self._log.written)

    def may_commit(self) -> bool:
        return True

    def until_kept(self, position: int) -> None:
        assert position <= self._log.written

    def _ship(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._shipper.add(piece, last=piece is pieces[-1])
        while shipments := self._shipper.ship(0):
            for shipment in shipments:
                self.entries.append(shipment.entry)
                self._shipper.settle(shipment.batch.sequence)


class DrivenStandby:
    """Made in a running loop; `now_ms` is what its clocks say."""

    def __init__(
        self,
        shipped: ShippedLog | LogInMemory,
        config: Config,
        files: Files,
        now_ms: Callable[[], int],
    ) -> None:
        self._shipped = shipped
        copy = LocalCopy(DIRECTORY, config.store, files, Note(CLUSTER, 0))
        copy.cut()
        clock = SystemClock(*[lambda: now_ms() * 1_000_000] * 2)
        self.standby = Standby(copy, config, clock)

    @property
    def engine(self) -> Engine:
        if self.standby.engine is None:
            self.catch_up()
            self.standby.warm_up()
        assert self.standby.engine is not None
        return self.standby.engine

    def catch_up(self) -> None:
        """Take all that was shipped."""
        for offset in range(self.standby.copy.reader.offset, len(self._shipped.entries)):
            self.standby.take(Entry(offset, self._shipped.entries[offset]))


def sections(engine: Engine) -> dict[str, bytes]:
    """What a checkpoint keeps of the engine, and of the store but what is its directory's own."""
    return (
        snapshot(engine._state) | engine.store.dropped.snapshot() | engine.store.cut_offs.snapshot()
    )
