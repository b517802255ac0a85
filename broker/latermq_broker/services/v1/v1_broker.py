"""latermq.v1 Brokers: the broker at a glance; clients asked to reconnect, its log handed over."""

from latermq_broker.background.jobs import Background
from latermq_broker.catalog.access import Kind
from latermq_broker.config.config import Config
from latermq_broker.engine.views.overview import Overview
from latermq_broker.errors import BadRequestError, NotFoundError, PreconditionFailedError
from latermq_broker.observability.replication_figures import MemberSeen, ReplicationFigures
from latermq_broker.services.admin.admin_fields import known_client
from latermq_broker.services.auth.naming import may_name
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.transport_view import TransportView
from latermq_broker.services.clients.reconnects import Reconnects
from latermq_broker.services.clients.rooms import Rooms
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.version import own_version


class BrokersService:
    def __init__(self, rooms: Rooms, transport_view: TransportView, reconnects: Reconnects) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._transport_view = transport_view
        self._reconnects = reconnects

    def get_broker(
        self, request: broker_pb2.GetBrokerRequest, caller: Caller
    ) -> broker_pb2.GetBrokerResponse:
        """Answer GetBroker of broker.proto."""
        seen, config = self._engine.overview(), self._engine.config
        user, (group, topic, _) = caller.call.user, seen.retention.kept_for
        may_tell = (not group or may_name(user, Kind.GROUP, group)) and (
            not topic or may_name(user, Kind.TOPIC, topic)
        )
        broker = broker_pb2.Broker(
            name=config.server.broker_name,
            version=own_version(),
            started_at_ms=seen.opened_ms,
            now_ms=self._engine.wall.at(self._committer.now_ms()),
            wall_ahead_ms=seen.wall_ahead_ms,
            topics=seen.topic_count,
            groups=seen.group_count,
            clients=len(self._sessions),
            log=_log(seen, config),
            disk=_disk(seen),
            retention=_retention(
                seen,
                config,
                (group, topic) if may_tell else ("", ""),
                self._engine.wall.time_of_day(seen.retention.kept_for[2]),
            ),
            waiting=broker_pb2.BrokerWaiting(
                delayed=seen.delayed,
                in_flight=seen.leased,
                backoff=seen.backoff,
                ready_retries=seen.ready_retries,
                half_messages=seen.half_messages,
            ),
            totals=_totals(seen),
            transport=_transport(self._transport_view),
            dedup=broker_pb2.BrokerDedup(
                ids=len(seen.dedup),
                bytes=seen.dedup.bytes,
                bytes_max=seen.dedup.bytes_max,
                window_ms=config.dedup.window_ms,
            ),
            replication=_replication(self._transport_view.replication()),
            background=_background(self._transport_view.background),
        )
        return broker_pb2.GetBrokerResponse(status=ok_status(), broker=broker)

    def reconnect_clients(
        self, request: broker_pb2.ReconnectClientsRequest, caller: Caller
    ) -> broker_pb2.ReconnectClientsResponse:
        """Answer ReconnectClients of broker.proto.

        Raises:
            BadRequestError: neither a client id nor all.
            NotFoundError: the one client is not connected, holds no stream or does not read it.
        """
        if request.all:
            known, asked = len(self._sessions), self._reconnects.ask_all()
            return broker_pb2.ReconnectClientsResponse(
                status=ok_status(), told=asked, out_of_reach=known - asked
            )
        if not request.client_id:
            raise BadRequestError("client_id or all is required")
        session = known_client(self._sessions, request.client_id)
        if not self._reconnects.ask(session):
            raise NotFoundError(
                f"client {request.client_id} holds no telemetry stream open, or does not read it"
            )
        return broker_pb2.ReconnectClientsResponse(status=ok_status(), told=1)

    def hand_over_log(
        self, request: broker_pb2.HandOverLogRequest, caller: Caller
    ) -> broker_pb2.HandOverLogResponse:
        """Answer HandOverLog of broker.proto.

        Raises PreconditionFailedError: nobody else keeps the log, or nobody stands by for it.
        """
        seen, hand_over = self._transport_view.replication(), self._transport_view.hand_over
        if seen is None or hand_over is None:
            raise PreconditionFailedError(
                "this broker is alone with its log: without [replication] nobody can take it over"
            )
        if seen.others.heard and not seen.others.standbys:
            raise PreconditionFailedError(
                "nobody stands by for this log: start another broker with the same [replication]"
            )
        hand_over()
        return broker_pb2.HandOverLogResponse(
            status=ok_status(), cluster=seen.cluster, epoch=seen.epoch
        )


def _log(seen: Overview, config: Config) -> broker_pb2.BrokerLog:
    return broker_pb2.BrokerLog(
        start=seen.log_start,
        end=seen.log_end,
        synced=seen.log_durable,
        checkpointed=seen.log_checkpointed,
        bytes=seen.log_bytes,
        segments=seen.segment_count,
        segment_bytes=config.store.segment_bytes,
        oldest_stored_at_ms=seen.oldest_stored_ms,
        records_appended=seen.log_records,
        flush=config.store.flush.value,
    )


def _disk(seen: Overview) -> broker_pb2.BrokerDisk:
    disk = seen.disk
    state = broker_pb2.FULL if disk.full else broker_pb2.LOW if disk.low else broker_pb2.FINE
    return broker_pb2.BrokerDisk(
        state=state,
        free_bytes=disk.space.free,
        total_bytes=disk.space.total,
        needed_bytes=disk.needed_bytes,
        sends_refused=disk.sends_refused,
        full_count=disk.full_count,
    )


def _retention(
    seen: Overview, config: Config, kept_for: tuple[str, str], kept_until_ms: int
) -> broker_pb2.BrokerRetention:
    done, moved = seen.retention, seen.retention.roll_forward
    return broker_pb2.BrokerRetention(
        retention_ms=config.store.retention_ms,
        retention_bytes=config.store.retention_bytes,
        dead_letter_retention_ms=config.store.dead_letter_retention_ms,
        segments_dropped=done.segments_dropped,
        bytes_dropped=done.bytes_dropped,
        entries_expired=done.trims.entries_expired,
        entries_expired_unread=done.trims.entries_expired_unread,
        entries_expired_early=done.trims.entries_expired_early,
        messages_moved=moved.messages_moved,
        bytes_moved=moved.bytes_moved,
        histories_moved=moved.histories_moved,
        segments_kept=done.segments_kept,
        drops_postponed=done.drops_postponed,
        early_drops=done.early_drops,
        unread_retention_ms=config.store.unread_retention_ms,
        kept_unread_bytes=done.kept_unread_bytes,
        kept_for_group=kept_for[0],
        kept_for_topic=kept_for[1],
        kept_longer_bytes=done.kept_longer_bytes,
        kept_until_ms=kept_until_ms,
        topics_with_own_retention=len(done.ages.own),
        unread_going_soon=len(done.soon.pairs),
    )


def _totals(seen: Overview) -> broker_pb2.BrokerTotals:
    figures = seen.figures
    return broker_pb2.BrokerTotals(
        messages_sent=figures.messages_sent,
        bytes_sent=figures.bytes_sent,
        messages_due=figures.messages_due,
        messages_delivered=figures.messages_delivered,
        messages_acknowledged=figures.messages_acknowledged,
        attempts_failed=figures.attempts_failed,
        dead_letters=figures.dead_letters,
        messages_unreadable=seen.unreadable,
        lateness_p99_ms=figures.lateness_lately.quantile(0.99),
        loop_lag_p99_ms=figures.loop_lag_lately.quantile(0.99),
        sync_p99_ms=figures.sync_lately.quantile(0.99),
        messages_duplicate=figures.messages_duplicate,
    )


def _background(seen: Background) -> broker_pb2.BrokerBackground:
    return broker_pb2.BrokerBackground(
        open=seen.fair.begun_count,
        waiting=seen.fair.waiting_count,
        refused=seen.fair.refused_count,
        kinds=[
            broker_pb2.BrokerBackgroundKind(
                kind=kind,
                wait_p99_ms=figures.wait_lately.quantile(0.99),
                used_ms=figures.used_ns // 1_000_000,
            )
            for kind, figures in sorted(seen.figures.items())
        ],
    )


def _replication(seen: ReplicationFigures | None) -> broker_pb2.BrokerReplication | None:
    if seen is None:
        return None
    return broker_pb2.BrokerReplication(
        role=seen.role,
        cluster=seen.cluster,
        epoch=seen.epoch,
        position=seen.position,
        silence_ms=seen.silence_ms,
        lag_bytes=seen.lag_bytes,
        waiting_bytes=seen.waiting_bytes,
        in_flight=seen.in_flight,
        gaps=seen.gaps,
        append_p99_ms=seen.latency_ms.quantile(0.99),
        members=[_member(each) for each in seen.others.seen],
        address=seen.others.address,
    )


def _member(seen: MemberSeen) -> broker_pb2.BrokerMember:
    said = seen.member
    member = broker_pb2.BrokerMember(
        name=seen.name,
        address=said.address,
        role=said.role,
        epoch=said.epoch,
        position=said.position,
        lag_entries=said.lag_entries,
        version=said.version,
        heard_ms_ago=seen.ms_ago,
        silent=seen.silent,
        checkpoint=said.checkpoint,
        behind_bytes=seen.behind_bytes,
        behind_ms=seen.behind_ms,
    )
    if said.ready is not None:
        member.ready = said.ready
    return member


def _transport(transport_view: TransportView) -> broker_pb2.BrokerTransport | None:
    figures = transport_view.transport()
    if figures is None:
        return None
    return broker_pb2.BrokerTransport(
        calls=figures.calls,
        connections=figures.connections,
        calls_open=figures.calls_open,
        connections_open=figures.connections_open,
        deadline_timers=figures.deadline_timers,
        tasks=figures.tasks,
        receives_parked=transport_view.receives_parked,
        others=[
            broker_pb2.BrokerTransportCount(kind=kind, reason=reason, count=count)
            for (kind, reason), count in sorted(figures.others.items())
        ],
    )
