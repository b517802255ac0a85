from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DiskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISK_STATE_UNSPECIFIED: _ClassVar[DiskState]
    FINE: _ClassVar[DiskState]
    LOW: _ClassVar[DiskState]
    FULL: _ClassVar[DiskState]
DISK_STATE_UNSPECIFIED: DiskState
FINE: DiskState
LOW: DiskState
FULL: DiskState

class BrokerLog(_message.Message):
    __slots__ = ("start", "end", "synced", "checkpointed", "bytes", "segments", "segment_bytes", "oldest_stored_at_ms", "records_appended", "flush")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_APPENDED_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    synced: int
    checkpointed: int
    bytes: int
    segments: int
    segment_bytes: int
    oldest_stored_at_ms: int
    records_appended: int
    flush: str
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., synced: _Optional[int] = ..., checkpointed: _Optional[int] = ..., bytes: _Optional[int] = ..., segments: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., oldest_stored_at_ms: _Optional[int] = ..., records_appended: _Optional[int] = ..., flush: _Optional[str] = ...) -> None: ...

class BrokerDisk(_message.Message):
    __slots__ = ("state", "free_bytes", "total_bytes", "needed_bytes", "sends_refused", "full_count")
    STATE_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    NEEDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENDS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    FULL_COUNT_FIELD_NUMBER: _ClassVar[int]
    state: DiskState
    free_bytes: int
    total_bytes: int
    needed_bytes: int
    sends_refused: int
    full_count: int
    def __init__(self, state: _Optional[_Union[DiskState, str, int]] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., needed_bytes: _Optional[int] = ..., sends_refused: _Optional[int] = ..., full_count: _Optional[int] = ...) -> None: ...

class BrokerRetention(_message.Message):
    __slots__ = ("retention_ms", "retention_bytes", "dead_letter_retention_ms", "segments_dropped", "bytes_dropped", "entries_expired", "entries_expired_unread", "messages_moved", "bytes_moved", "histories_moved", "segments_kept", "drops_postponed", "early_drops", "unread_retention_ms", "kept_unread_bytes", "kept_for_group", "kept_for_topic", "kept_until_ms", "topics_with_own_retention", "kept_longer_bytes", "entries_expired_early", "unread_going_soon")
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    BYTES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_EXPIRED_UNREAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MOVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_MOVED_FIELD_NUMBER: _ClassVar[int]
    HISTORIES_MOVED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_KEPT_FIELD_NUMBER: _ClassVar[int]
    DROPS_POSTPONED_FIELD_NUMBER: _ClassVar[int]
    EARLY_DROPS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    KEPT_UNREAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEPT_FOR_GROUP_FIELD_NUMBER: _ClassVar[int]
    KEPT_FOR_TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEPT_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_WITH_OWN_RETENTION_FIELD_NUMBER: _ClassVar[int]
    KEPT_LONGER_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_EXPIRED_EARLY_FIELD_NUMBER: _ClassVar[int]
    UNREAD_GOING_SOON_FIELD_NUMBER: _ClassVar[int]
    retention_ms: int
    retention_bytes: int
    dead_letter_retention_ms: int
    segments_dropped: int
    bytes_dropped: int
    entries_expired: int
    entries_expired_unread: int
    messages_moved: int
    bytes_moved: int
    histories_moved: int
    segments_kept: int
    drops_postponed: int
    early_drops: int
    unread_retention_ms: int
    kept_unread_bytes: int
    kept_for_group: str
    kept_for_topic: str
    kept_until_ms: int
    topics_with_own_retention: int
    kept_longer_bytes: int
    entries_expired_early: int
    unread_going_soon: int
    def __init__(self, retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., dead_letter_retention_ms: _Optional[int] = ..., segments_dropped: _Optional[int] = ..., bytes_dropped: _Optional[int] = ..., entries_expired: _Optional[int] = ..., entries_expired_unread: _Optional[int] = ..., messages_moved: _Optional[int] = ..., bytes_moved: _Optional[int] = ..., histories_moved: _Optional[int] = ..., segments_kept: _Optional[int] = ..., drops_postponed: _Optional[int] = ..., early_drops: _Optional[int] = ..., unread_retention_ms: _Optional[int] = ..., kept_unread_bytes: _Optional[int] = ..., kept_for_group: _Optional[str] = ..., kept_for_topic: _Optional[str] = ..., kept_until_ms: _Optional[int] = ..., topics_with_own_retention: _Optional[int] = ..., kept_longer_bytes: _Optional[int] = ..., entries_expired_early: _Optional[int] = ..., unread_going_soon: _Optional[int] = ...) -> None: ...

class BrokerWaiting(_message.Message):
    __slots__ = ("delayed", "in_flight", "backoff", "ready_retries", "half_messages")
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    READY_RETRIES_FIELD_NUMBER: _ClassVar[int]
    HALF_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    delayed: int
    in_flight: int
    backoff: int
    ready_retries: int
    half_messages: int
    def __init__(self, delayed: _Optional[int] = ..., in_flight: _Optional[int] = ..., backoff: _Optional[int] = ..., ready_retries: _Optional[int] = ..., half_messages: _Optional[int] = ...) -> None: ...

class BrokerTotals(_message.Message):
    __slots__ = ("messages_sent", "bytes_sent", "messages_due", "messages_delivered", "messages_acknowledged", "attempts_failed", "dead_letters", "messages_unreadable", "lateness_p99_ms", "loop_lag_p99_ms", "sync_p99_ms", "messages_duplicate")
    MESSAGES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_DUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FAILED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    LATENESS_P99_MS_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_P99_MS_FIELD_NUMBER: _ClassVar[int]
    SYNC_P99_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    messages_sent: int
    bytes_sent: int
    messages_due: int
    messages_delivered: int
    messages_acknowledged: int
    attempts_failed: int
    dead_letters: int
    messages_unreadable: int
    lateness_p99_ms: float
    loop_lag_p99_ms: float
    sync_p99_ms: float
    messages_duplicate: int
    def __init__(self, messages_sent: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., messages_due: _Optional[int] = ..., messages_delivered: _Optional[int] = ..., messages_acknowledged: _Optional[int] = ..., attempts_failed: _Optional[int] = ..., dead_letters: _Optional[int] = ..., messages_unreadable: _Optional[int] = ..., lateness_p99_ms: _Optional[float] = ..., loop_lag_p99_ms: _Optional[float] = ..., sync_p99_ms: _Optional[float] = ..., messages_duplicate: _Optional[int] = ...) -> None: ...

class BrokerDedup(_message.Message):
    __slots__ = ("ids", "bytes", "bytes_max", "window_ms")
    IDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    ids: int
    bytes: int
    bytes_max: int
    window_ms: int
    def __init__(self, ids: _Optional[int] = ..., bytes: _Optional[int] = ..., bytes_max: _Optional[int] = ..., window_ms: _Optional[int] = ...) -> None: ...

class BrokerTransportCount(_message.Message):
    __slots__ = ("kind", "reason", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    reason: str
    count: int
    def __init__(self, kind: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class BrokerTransport(_message.Message):
    __slots__ = ("calls", "connections", "calls_open", "connections_open", "deadline_timers", "tasks", "receives_parked", "others")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_OPEN_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_OPEN_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIMERS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    RECEIVES_PARKED_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    calls: int
    connections: int
    calls_open: int
    connections_open: int
    deadline_timers: int
    tasks: int
    receives_parked: int
    others: _containers.RepeatedCompositeFieldContainer[BrokerTransportCount]
    def __init__(self, calls: _Optional[int] = ..., connections: _Optional[int] = ..., calls_open: _Optional[int] = ..., connections_open: _Optional[int] = ..., deadline_timers: _Optional[int] = ..., tasks: _Optional[int] = ..., receives_parked: _Optional[int] = ..., others: _Optional[_Iterable[_Union[BrokerTransportCount, _Mapping]]] = ...) -> None: ...

class BrokerBackgroundKind(_message.Message):
    __slots__ = ("kind", "wait_p99_ms", "used_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WAIT_P99_MS_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    wait_p99_ms: float
    used_ms: int
    def __init__(self, kind: _Optional[str] = ..., wait_p99_ms: _Optional[float] = ..., used_ms: _Optional[int] = ...) -> None: ...

class BrokerBackground(_message.Message):
    __slots__ = ("open", "waiting", "refused", "kinds")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    open: int
    waiting: int
    refused: int
    kinds: _containers.RepeatedCompositeFieldContainer[BrokerBackgroundKind]
    def __init__(self, open: _Optional[int] = ..., waiting: _Optional[int] = ..., refused: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[BrokerBackgroundKind, _Mapping]]] = ...) -> None: ...

class BrokerReplication(_message.Message):
    __slots__ = ("role", "cluster", "epoch", "position", "silence_ms", "lag_bytes", "waiting_bytes", "in_flight", "gaps", "append_p99_ms", "members", "address")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    APPEND_P99_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    role: str
    cluster: str
    epoch: int
    position: int
    silence_ms: int
    lag_bytes: int
    waiting_bytes: int
    in_flight: int
    gaps: int
    append_p99_ms: float
    members: _containers.RepeatedCompositeFieldContainer[BrokerMember]
    address: str
    def __init__(self, role: _Optional[str] = ..., cluster: _Optional[str] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ..., silence_ms: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., waiting_bytes: _Optional[int] = ..., in_flight: _Optional[int] = ..., gaps: _Optional[int] = ..., append_p99_ms: _Optional[float] = ..., members: _Optional[_Iterable[_Union[BrokerMember, _Mapping]]] = ..., address: _Optional[str] = ...) -> None: ...

class BrokerMember(_message.Message):
    __slots__ = ("name", "address", "role", "epoch", "position", "lag_entries", "version", "heard_ms_ago", "silent", "ready", "checkpoint", "behind_bytes", "behind_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LAG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    role: str
    epoch: int
    position: int
    lag_entries: int
    version: str
    heard_ms_ago: int
    silent: bool
    ready: bool
    checkpoint: int
    behind_bytes: int
    behind_ms: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ..., lag_entries: _Optional[int] = ..., version: _Optional[str] = ..., heard_ms_ago: _Optional[int] = ..., silent: bool = ..., ready: bool = ..., checkpoint: _Optional[int] = ..., behind_bytes: _Optional[int] = ..., behind_ms: _Optional[int] = ...) -> None: ...

class Broker(_message.Message):
    __slots__ = ("name", "version", "started_at_ms", "now_ms", "wall_ahead_ms", "topics", "groups", "clients", "log", "disk", "retention", "waiting", "totals", "transport", "dedup", "replication", "background")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    WALL_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    DEDUP_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    started_at_ms: int
    now_ms: int
    wall_ahead_ms: int
    topics: int
    groups: int
    clients: int
    log: BrokerLog
    disk: BrokerDisk
    retention: BrokerRetention
    waiting: BrokerWaiting
    totals: BrokerTotals
    transport: BrokerTransport
    dedup: BrokerDedup
    replication: BrokerReplication
    background: BrokerBackground
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., now_ms: _Optional[int] = ..., wall_ahead_ms: _Optional[int] = ..., topics: _Optional[int] = ..., groups: _Optional[int] = ..., clients: _Optional[int] = ..., log: _Optional[_Union[BrokerLog, _Mapping]] = ..., disk: _Optional[_Union[BrokerDisk, _Mapping]] = ..., retention: _Optional[_Union[BrokerRetention, _Mapping]] = ..., waiting: _Optional[_Union[BrokerWaiting, _Mapping]] = ..., totals: _Optional[_Union[BrokerTotals, _Mapping]] = ..., transport: _Optional[_Union[BrokerTransport, _Mapping]] = ..., dedup: _Optional[_Union[BrokerDedup, _Mapping]] = ..., replication: _Optional[_Union[BrokerReplication, _Mapping]] = ..., background: _Optional[_Union[BrokerBackground, _Mapping]] = ...) -> None: ...

class GetBrokerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBrokerResponse(_message.Message):
    __slots__ = ("status", "broker")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    broker: Broker
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., broker: _Optional[_Union[Broker, _Mapping]] = ...) -> None: ...

class ReconnectClientsRequest(_message.Message):
    __slots__ = ("client_id", "all")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    all: bool
    def __init__(self, client_id: _Optional[str] = ..., all: bool = ...) -> None: ...

class ReconnectClientsResponse(_message.Message):
    __slots__ = ("status", "told", "out_of_reach")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_REACH_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    told: int
    out_of_reach: int
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., told: _Optional[int] = ..., out_of_reach: _Optional[int] = ...) -> None: ...

class HandOverLogRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HandOverLogResponse(_message.Message):
    __slots__ = ("status", "cluster", "epoch")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    cluster: str
    epoch: int
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., cluster: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...
