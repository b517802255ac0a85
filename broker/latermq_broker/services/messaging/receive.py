"""ReceiveMessage: lease what is there, else wait for it.

    request → checks → earlier waiters first → engine.receive → stored → status, messages, time
                                                  └ nothing → parked ─ready→ engine.receive …
                                                                └ time over → MESSAGE_NOT_FOUND

Messages leave when they are acknowledged to their sender (with flush=sync: on disk) and the leases
are in the file. The stream is always: one status, the messages, the delivery timestamp last. Any
queue id and broker name stand for all queues of the topic: a simple consumer that waits at an empty
queue would starve while others are full.

What was leased for a caller who went away is given back, uncounted; but for a message on its way
that is larger than gRPC clients take unless they are told otherwise (Node.js, C# and Rust are not).
Such a client ends the call at this message, whenever it comes. Uncounted, it would come with every
receive, and the messages beside it would never arrive: so its attempt counts as failed, it waits by
the ladder while they pass, and in the end it is a dead letter that says why.

A push consumer that asks for fewer than 32 has room for no more, and an official one that is full
stops asking for a second. It is answered a little later, when it has worked some off: 50,000
messages to the official Go client, 20 threads, took 14.2 s without that and 3.6 s with it
(`docs/benchmarks.md`, beside RocketMQ).
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from latermq_broker.catalog.catalog import DLQ_PREFIX
from latermq_broker.catalog.shares import Shares
from latermq_broker.config.config import RECORD_BODY_OVERHEAD_BYTES, DeliveryConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    EVERYTHING,
    Delivered,
    Failure,
    Group,
    MessageFilter,
    ReceiveRequest,
    filter_of,
)
from latermq_broker.errors import InvalidReceiptHandleError, RequestError
from latermq_broker.services.call.answers import Caller, StreamAnswer
from latermq_broker.services.call.bounds import Bounds
from latermq_broker.services.call.handler import Call
from latermq_broker.services.clients.client_quirks import Quirk, quirks_of
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.outlived import Outlived
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.messaging.flow import FlowControl
from latermq_broker.services.messaging.parking import Parking, Waiter
from latermq_broker.services.messaging.polling import polling_ms
from latermq_broker.services.messaging.turn_shares import TurnShares
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_delivery import (
    GROUP_DELETED_ELEMENT,
    NOTHING_ELEMENT,
    OK_ELEMENT,
    delivery_timestamp_element,
    message_elements,
    status_element,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

ELEMENT_BYTES: Final = 512  # of a message in an answer, beside what is stored of it
BATCH: Final = 32  # what an official push consumer with room asks for, unless told otherwise
OUTLIVED_MS_MAX: Final = 5_000  # a consumer of a deleted group waits so long, then it is told
FULL_WAIT_MS: Final = 50  # of one that would be full: so long it works some off first
CLIENT_TAKES_BYTES: Final = 4 << 20  # one received gRPC message, by default, in every language


class Leased:
    """Messages leased to a caller, and when he may have them.

    Kept until the reply arrived, so that they can be given back; their bodies are not: the
    transport has them, and a caller who does not read would hold them twice.
    """

    __slots__ = ("delivered", "handles", "large", "recorded", "stored", "took_all")

    def __init__(
        self,
        delivered: Sequence[Delivered],
        stored: Later[None],
        recorded: Later[None],
        *,
        took_all: bool,
    ) -> None:
        self.took_all = took_all  # there is nothing left for the group in the topic
        self.delivered = delivered  # until the transport has them
        self.stored = stored  # settled when they are, as their sender was promised
        self.recorded = recorded  # settled when their leases are in the file
        self.handles: Sequence[str] = ()
        self.large: Sequence[tuple[str, int, int]] = ()
        """Handle, attempt, size of those few clients take."""


class ReceiveService:
    def __init__(self, rooms: Rooms, lite: LiteSubscriptions) -> None:
        self._lite = lite
        self._engine = rooms.engine
        self.outlived = Outlived(rooms, lite)
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._config = config = rooms.config
        self._bounds = Bounds(config)
        self._flow = FlowControl(rooms.engine.limits)
        self._wall_ms = partial(_wall_ms, rooms)
        self._record_bytes_max = config.store.message_body_bytes_max + RECORD_BODY_OVERHEAD_BYTES
        self._turns = TurnShares(partial(_weight, rooms.engine), partial(_again, rooms))
        self.parking: Parking[Leased] = Parking(
            config.server,
            self._flow,
            Shares(config.auth),
            lambda leased: leased.took_all,
            self._turns.over,
        )
        filters = rooms.sessions.filters
        filters.on_change = self.parking.end_others
        filters.before = partial(_filters_before, rooms.engine)

    def refuse_receive_message(
        self, status: definition_pb2.Status, request: service_pb2.ReceiveMessageRequest
    ) -> list[bytes]:
        """Give the status and the broker's time, with which every answer ends."""
        return [
            status_element(status),
            delivery_timestamp_element(self._wall_ms()),
        ]

    def receive_message(
        self, request: service_pb2.ReceiveMessageRequest, caller: Caller
    ) -> StreamAnswer:
        """Lease up to `batch_size` messages as soon as there is one.

        An official push consumer that would be full waits for FULL_WAIT_MS first.

        Raises:
            IllegalTopicError, IllegalGroupError, IllegalFilterError: as their names say.
            IllegalInvisibleTimeError: out of bounds, unless the broker renews the lease.
            IllegalPollingTimeError, BadRequestError: it would wait past the caller's deadline.
            TopicNotFoundError, GroupNotFoundError: not there and not made on demand.
            TooManyRequestsError: too many wait already, a limit of `flow` is reached, or the
                caller has not read what it was answered before.
        """
        if not _would_be_full(request, caller, self._config.delivery):
            return self._receive(request, caller)
        waited: Later[None] = Later()
        timer = asyncio.get_running_loop().call_later(FULL_WAIT_MS / 1_000, waited.release)
        caller.call.on_cancel(timer.cancel)
        return waited.then(partial(self._receive, request, caller))

    def _receive(
        self, request: service_pb2.ReceiveMessageRequest, caller: Caller, _: None = None
    ) -> Later[list[bytes]]:
        """Lease what is there, else wait for it. Raises as `receive_message`."""
        receive = self._receive_request(request, caller)
        caller.call.reply_room()
        asked = request.long_polling_timeout if request.HasField("long_polling_timeout") else None
        server, short = self._config.server, self._bounds.short_polling
        wait_ms = polling_ms(asked, caller, self._sessions, server, short=short)
        topic = request.message_queue.topic
        reads_lite = self._reads_lite(receive, caller)
        call = caller.call
        leased, now_ms = None, self._committer.now_ms()
        waits = (
            bool(wait_ms)
            and self._turns.spent(receive.group)
            and self.parking.has_room(
                receive.group, caller.client_id, call.connection_id, receive.user
            )
            and self._turns.over(receive.group, receive.topic)
        )
        if reads_lite:
            leased = None if waits else self._attempt_lite(receive, call)
        else:
            expression = request.filter_expression.expression
            client, place = receive.client_id, (receive.group, receive.topic)
            declares = self._sessions.get(client) is not None
            self._sessions.filters.note(
                client, place, receive.filter, expression, now_ms, declares=declares
            )
            self.parking.serve(receive.group, receive.topic)
            if not waits and not self._comes_away_empty(receive):
                leased = self._lease_wanted(receive, call)
        if receive.auto_renew:
            self._sessions.hold(receive.client_id, call.user, now_ms)
        if leased is not None:
            call.on_cancel(partial(self._give_back, receive.group, leased))
            return self._reply(topic, leased)
        if not wait_ms:
            return self._reply_later(topic, receive, None)
        filter_key: Hashable = receive.filter
        attempt = partial(self._lease_wanted, receive, call, waits=True)
        if self.outlived.has(receive.group, receive.client_id):
            filter_key = receive.filter, "outlived"  # others may be given what is there
            wait_ms = min(wait_ms, OUTLIVED_MS_MAX)
        if reads_lite:  # what there is for one client is of no use to another
            filter_key, attempt = receive.client_id, partial(self._attempt_lite, receive, call)
        waiter = self.parking.park(
            receive.group,
            receive.topic,
            filter_key,
            attempt,
            wait_ms,
            caller.client_id,
            call.connection_id,
            receive.user,
            receive.attempt_id,
        )
        call.on_cancel(partial(self._abandon, receive.group, waiter))
        return waiter.later.then(partial(self._reply_later, topic, receive))

    def _comes_away_empty(self, receive: ReceiveRequest) -> bool:
        """Tell whether somebody who asks for the same was just given nothing, and waits on."""
        if self._flow.table.in_flight:
            return False  # it may have to be refused
        group = self._engine.catalog.group(receive.group)
        return _sees_all(group, receive) and self.parking.waits_with(
            receive.group, receive.topic, receive.filter
        )

    def serve(self, group: str, topic: str) -> None:
        """Let those who wait look once more: what a client may be given has changed."""
        self.parking.serve(group, topic)

    def _lease_wanted(
        self, receive: ReceiveRequest, call: Call, *, waits: bool = False
    ) -> Leased | None:
        """Lease as `_lease`, beside what the live consumers of the group want.

        Args:
            waits: the receive has waited, and its client may want something else by now.
        """
        place, now_ms = (receive.group, receive.topic), self._committer.now_ms()
        wanted = self._sessions.filters.wanted(place, now_ms)
        if len(wanted) != 1 or wanted[0] != receive.filter or waits:
            receive = receive._replace(wanted=wanted, waits=waits)
        return self._lease(receive, call, now_ms)

    def _reads_lite(self, receive: ReceiveRequest, caller: Caller) -> bool:
        """Return whether the group reads lite topics, or will: SyncLiteSubscription makes it.

        Raises IllegalTopicError, IllegalGroupError, and as `Lites.check_bind`.
        """
        group = self._engine.catalog.group(receive.group)
        session = self._sessions.get(caller.client_id)
        if session is not None and session.lite:
            if self._engine.catalog.topic(receive.topic) is not None:
                self._engine.lites.check_bind(
                    receive.group, receive.topic, caller.call.user, self._committer.now_ms()
                )
            return True
        if group is None or not group.lite_parent:
            return False
        self._engine.lites.check_group(receive.group, receive.topic)
        return True

    def _with_lite_topics(self, receive: ReceiveRequest) -> ReceiveRequest:
        keys = self._lite.keys(receive.client_id, receive.group, receive.topic)
        return receive._replace(lite_keys=keys)

    def _attempt_lite(self, receive: ReceiveRequest, call: Call) -> Leased | None:
        """Try once, but not before there may be something for this client."""
        receive = self._with_lite_topics(receive)
        if not self._engine.lites.waits(receive.group, receive.topic, receive.lite_keys):
            return None
        return self._lease(receive, call, self._committer.now_ms())

    def _receive_request(
        self, request: service_pb2.ReceiveMessageRequest, caller: Caller
    ) -> ReceiveRequest:
        config = self._config.delivery
        topic = wire.topic_name(request.message_queue.topic)
        group = wire.group_name(request.group)
        if request.auto_renew:
            invisible_ms = config.auto_renew_lease_ms
        else:
            invisible_ms = wire.duration_ms(request.invisible_duration)
            self._bounds.check_lease(invisible_ms)
        auto_renew = request.auto_renew
        return ReceiveRequest(  # by position: by name it takes three times as long
            group,
            topic,
            caller.client_id,
            min(max(request.batch_size, 1), config.receive_batch_max),
            invisible_ms,
            auto_renew,
            wire.message_filter(request.filter_expression),
            request.attempt_id,
            caller.call.user,
            auto_renew and self._single_file(group, caller),
        )

    def _lease(self, receive: ReceiveRequest, call: Call, now_ms: int) -> Leased | None:
        """Lease as many as the caller has room for. Raises TooManyRequestsError: there is none."""
        bytes_max = call.reply_room()
        receive_bytes_max = self._config.delivery.receive_bytes_max
        if bytes_max < receive_bytes_max:
            receive = receive._replace(bytes_max=bytes_max)
        # Asked for before the leases are appended, so that it covers the messages alone; and asked
        # for in any case: it arms the write of a group made on first use, of offsets passed over.
        stored = self._committer.written()
        if self.outlived.has(receive.group, receive.client_id):
            if self._engine.catalog.group(receive.group) is None:
                return None
            self.outlived.made(receive.group)
        if self._flow.table.in_flight:
            receive = self._flow.fitted(receive)
        delivered = self._engine.receive(receive, now_ms)
        if not delivered:
            return None
        size = sum([len(each.rest) + len(each.sys) + ELEMENT_BYTES for each in delivered])
        self._turns.take(receive.group, len(delivered))
        call.reserve_reply(size)
        recorded = self._committer.leased()  # now: asked for after the write, it takes another turn
        took_all = (
            len(delivered) < receive.count_max
            and size + self._record_bytes_max <= min(bytes_max, receive_bytes_max)
            and _sees_all(self._engine.catalog.group(receive.group), receive)
        )
        leased = Leased(delivered, stored, recorded, took_all=took_all)
        call.on_lost(partial(self._give_back, receive.group, leased))
        if receive.auto_renew:
            call.on_unheard(partial(self._renew_no_more, receive.group, leased))
        return leased

    def _single_file(self, group: str, caller: Caller) -> bool:
        """Tell whether this push consumer would mix up what it is given more than one of."""
        if not self._keeps_order(group):
            return False
        return Quirk.PASSES_FAILURES_BY in _quirks(caller)

    def _keeps_order(self, group_name: str) -> bool:
        group = self._engine.catalog.group(group_name)
        return group is not None and group.fifo

    def _reply(self, topic: definition_pb2.Resource, leased: Leased) -> Later[list[bytes]]:
        """Answer when the messages are stored as promised and the leases are in the file."""
        elements = partial(_elements, topic, leased, self._wall_ms)
        return leased.stored.then(partial(_recorded, leased)).mapped(elements)

    def _reply_later(
        self, topic: definition_pb2.Resource, receive: ReceiveRequest, leased: Leased | None
    ) -> Later[list[bytes]]:
        """Answer one that waited."""
        if leased is not None:
            return self._reply(topic, leased)
        missing = self._engine.catalog.group(receive.group) is None
        deleted = missing and self.outlived.has(receive.group, receive.client_id)
        element = GROUP_DELETED_ELEMENT if deleted else NOTHING_ELEMENT
        nothing = Later([element, delivery_timestamp_element(self._wall_ms())])
        nothing.release()
        return nothing

    def _abandon(self, group: str, waiter: Waiter[Leased]) -> None:
        """Give back what is leased.

        The caller went away while it waited, or with messages under way.
        """
        self.parking.leave(waiter)
        if leased := waiter.outcome():
            self._give_back(group, leased)

    def _give_back(self, group: str, leased: Leased) -> None:
        now_ms = self._committer.now_ms()
        for handle, attempt, element_bytes in leased.large:
            self._count_as_failed(group, handle, attempt, element_bytes, now_ms)
        handles = leased.handles or [message.handle for message in leased.delivered]
        self._engine.give_back(group, handles, now_ms)  # but for those that are no longer leased
        self._committer.leased()

    def _renew_no_more(self, group: str, leased: Leased) -> None:
        """Have the leases end by themselves: nobody knows whether their reply arrived."""
        self._engine.unproved(group, leased.handles, self._committer.now_ms())
        self._committer.leased()

    def _count_as_failed(
        self, group: str, handle: str, attempt: int, element_bytes: int, now_ms: int
    ) -> None:
        levels_ms = self._config.delivery.retry_ladder_ms
        failure = Failure(
            class_name="TooLargeForClient",
            text=f"the client ended the call at this message of {element_bytes} bytes; gRPC "
            f"clients take {CLIENT_TAKES_BYTES} at most unless they are told otherwise",
        )
        with suppress(InvalidReceiptHandleError):  # it went back by itself meanwhile
            self._engine.change_invisible(
                group,
                handle,
                levels_ms[min(attempt, len(levels_ms)) - 1],
                now_ms,
                failure=failure,
            )


def _would_be_full(
    request: service_pb2.ReceiveMessageRequest, caller: Caller, config: DeliveryConfig
) -> bool:
    """Tell whether this is a push consumer that stops asking if it gets what it asks for."""
    if not request.auto_renew or request.batch_size >= min(BATCH, config.receive_batch_max):
        return False
    return Quirk.PAUSES_WHEN_FULL in _quirks(caller)


def _filters_before(
    engine: Engine,
) -> Iterator[tuple[tuple[str, str], tuple[MessageFilter, ...]]]:
    """Yield what consumers wanted when the broker's last life ended, by group and topic."""
    for place, texts in engine.progress.wanted():
        try:
            filters = tuple(map(filter_of, texts)) or (EVERYTHING,)
        except RequestError:  # SQL of another version
            filters = (EVERYTHING,)
        yield place, filters


def _quirks(caller: Caller) -> Quirk:
    language = caller.call.metadata("x-mq-language") or ""
    version = caller.call.metadata("x-mq-client-version") or ""
    return quirks_of(language, version)


def _sees_all(group: Group | None, receive: ReceiveRequest) -> bool:
    """Tell whether a receive is given all there is, if it has room, and not a slice of it."""
    if receive.filter is not EVERYTHING or receive.topic.startswith(DLQ_PREFIX):
        return False
    return group is None or not (group.fifo or group.lite_parent)


def _weight(engine: Engine, name: str) -> int:
    group = engine.catalog.group(name)
    return group.weight if group is not None else 1


def _again(rooms: Rooms, group: str, topic: str) -> None:
    """Have the pump serve the group's line in its next turn, too."""
    rooms.engine.announced.add_named(group, topic)
    rooms.committer.written()


def _wall_ms(rooms: Rooms) -> int:
    return rooms.engine.wall.at(rooms.committer.now_ms())


def _recorded(leased: Leased, _: None) -> Later[None]:
    return leased.recorded


def _elements(
    topic: definition_pb2.Resource, leased: Leased, now_ms: Callable[[], int], _: None
) -> list[bytes]:
    """Make the stream that carries what was leased, which then keeps no body itself."""
    delivered, leased.delivered = leased.delivered, ()
    elements = message_elements(topic, delivered)
    leased.handles = [message.handle for message in delivered]
    if max(map(len, elements)) > CLIENT_TAKES_BYTES:
        leased.large = [
            (message.handle, message.attempt, len(element))
            for message, element in zip(delivered, elements, strict=True)
            if len(element) > CLIENT_TAKES_BYTES
        ]
    return [OK_ELEMENT, *elements, delivery_timestamp_element(now_ms())]
