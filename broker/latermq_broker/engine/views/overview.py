"""The broker at a glance: log, disk, retention, what waits. A few additions, asked for seldom."""

from dataclasses import dataclass

from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.outcome.due import DueWork
from latermq_broker.engine.retention.retention import Retention
from latermq_broker.engine.state.dedup_ids import DedupIds
from latermq_broker.engine.state.figures import Figures
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.disk_pressure import DiskPressure
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES
from latermq_broker.store.offline.scrub import ScrubCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    opened_ms: int
    wall_ahead_ms: int  # of the broker's own time
    topic_count: int
    group_count: int
    delayed: int
    leased: int
    backoff: int
    ready_retries: int
    half_messages: int
    dedup: DedupIds
    unreadable: (
        int  # damaged messages that were given up, each once; DAMAGED_REMEMBERED_MAX at most
    )
    scrubbed: ScrubCounts
    log_start: int  # positions
    log_end: int
    log_durable: int
    log_checkpointed: int
    log_records: int  # appended since the start
    log_bytes: int  # of the segment files
    segment_count: int
    oldest_stored_ms: int  # of the oldest segment's first record; 0: it is not known
    timer_runs: int
    figures: Figures
    disk: DiskPressure
    retention: Retention


def overview(state: EngineState, retention: Retention, due: DueWork) -> Overview:
    store = state.store
    log = store.log
    return Overview(
        opened_ms=due.opened_ms,
        wall_ahead_ms=state.wall.ahead_ms,
        topic_count=state.catalog.topic_count(),
        group_count=state.catalog.group_count(),
        delayed=len(state.timer),
        leased=state.leases.count(State.LEASED),
        backoff=state.leases.count(State.BACKOFF),
        ready_retries=state.leases.count(State.READY),
        half_messages=len(state.halves),
        dedup=state.dedup,
        unreadable=len(state.damaged),
        scrubbed=state.store.scrubbed,
        log_start=log.segments[0].base,
        log_end=log.end,
        log_durable=log.durable,
        log_checkpointed=store.checkpointed,
        log_records=log.appended,
        log_bytes=sum(segment.size for segment in log.segments),
        segment_count=len(log.segments),
        oldest_stored_ms=state.wall.time_of_day(_oldest_ms(log)),
        timer_runs=len(state.timer.far.runs),
        figures=state.figures,
        disk=store.disk,
        retention=retention,
    )


def _oldest_ms(log: CommitLog) -> int:
    first = log.segments[0].base + SEGMENT_HEADER_BYTES
    if first >= log.written:
        return 0
    try:
        return log.read(first).store_ms
    except CorruptRecordError:
        return 0
