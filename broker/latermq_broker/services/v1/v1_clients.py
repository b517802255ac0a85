"""latermq.v1 Clients: who is connected, what each holds; one let go.

A client without settings is one too, while it holds messages: simple consumers that never said what
they are, and whoever held them before a restart.
"""

import logging
from collections import Counter

from latermq_broker.engine.views.holdings import Held, together
from latermq_broker.errors import (
    BadRequestError,
    GroupNotFoundError,
    NotFoundError,
    TopicNotFoundError,
)
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import page_of
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Session
from latermq_proto.latermq.v1 import client_pb2

log = logging.getLogger("latermq.services")


class ClientsService:
    def __init__(self, rooms: Rooms, lite: LiteSubscriptions) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._lite = lite

    async def list_clients(
        self, request: client_pb2.ListClientsRequest, caller: Caller
    ) -> client_pb2.ListClientsResponse:
        """Answer ListClients of client.proto.

        A filter finds holders by what they hold, too: whoever has gone, or has said nothing since a
        restart, holds on as any other.

        Raises:
            BadRequestError: the size or the token.
            GroupNotFoundError, TopicNotFoundError: the filter names what neither exists nor is
                declared by anybody.
        """
        counts: Counter[str] = Counter()
        for part in self._engine.holdings.counts():
            counts.update(part)
            await caller.lasting.turn()
        known = {
            session.client_id: session
            for session in self._sessions.all()
            if request.group in ("", session.group)
            if not request.topic or request.topic in session.topics
        }
        ids = set(known)
        if request.group or request.topic:
            ids |= await self._holders(
                request.group, request.topic, caller, is_declared=bool(known)
            )
        else:
            ids.update(counts)
        page, token = page_of(sorted(ids), str, request)
        return client_pb2.ListClientsResponse(
            status=ok_status(),
            clients=[self._client(name, counts[name]) for name in page],
            next_page_token=token,
        )

    async def _holders(
        self, group: str, topic: str, caller: Caller, *, is_declared: bool
    ) -> set[str]:
        """Name who holds something of this group and this topic. Raises as `list_clients`."""
        catalog = self._engine.catalog
        of_group, of_topic = catalog.group(group), catalog.topic(topic)
        absent = (group and of_group is None, topic and of_topic is None)
        if any(absent):
            if is_declared:
                return set()
            raise GroupNotFoundError(group) if absent[0] else TopicNotFoundError(topic)
        holders: set[str] = set()
        for part in self._engine.holdings.holders(of_group, of_topic):
            holders |= part
            await caller.lasting.turn()
        return holders

    def _client(self, client_id: str, held_count: int) -> client_pb2.Client:
        client = _client(client_id, self._sessions.get(client_id), held_count)
        client.since_at_ms = self._engine.wall.time_of_day(client.since_at_ms)
        client.seen_at_ms = self._engine.wall.time_of_day(client.seen_at_ms)
        return client

    async def get_client(
        self, request: client_pb2.GetClientRequest, caller: Caller
    ) -> client_pb2.GetClientResponse:
        """Answer GetClient of client.proto.

        Raises:
            BadRequestError: no client id.
            NotFoundError: neither connected nor holding anything.
        """
        held: list[Held] = []
        for part in self._engine.holdings.of(_named(request.client_id)):
            held = together(held + part)
            await caller.lasting.turn()
        session = self._sessions.get(request.client_id)
        if session is None and not held:
            raise _unknown(request.client_id)
        client = self._client(request.client_id, sum(each.messages for each in held))
        client.held.extend(
            client_pb2.HeldMessages(
                group=each.group,
                topic=each.topic,
                count=each.messages,
                oldest_leased_at_ms=each.oldest_leased_ms,
                first_due_at_ms=each.first_due_ms,
            )
            for each in held
        )
        return client_pb2.GetClientResponse(status=ok_status(), client=client)

    async def kick_client(
        self, request: client_pb2.KickClientRequest, caller: Caller
    ) -> client_pb2.KickClientResponse:
        """Answer KickClient of client.proto.

        Raises:
            BadRequestError: no client id.
            NotFoundError: neither connected nor holding anything.
        """
        client_id = _named(request.client_id)
        session = self._sessions.remove(client_id)
        if session is not None:
            self._lite.drop(client_id)
            for stream in session.streams:
                stream.end()
        released = 0
        for part in self._engine.holdings.release(client_id, self._committer.now_ms()):
            released += part
            await self._committer.leased()
            await caller.lasting.turn()
        if session is None and not released:
            raise _unknown(client_id)
        log.warning("client kicked", extra={"client_id": client_id, "released": released})
        return client_pb2.KickClientResponse(status=ok_status(), released_count=released)


def _named(client_id: str) -> str:
    if not client_id:
        raise BadRequestError("client_id is required")
    return client_id


def _unknown(client_id: str) -> NotFoundError:
    return NotFoundError(f"client {names.shown(client_id)} is not connected and holds no message")


def _client(client_id: str, session: Session | None, held_count: int) -> client_pb2.Client:
    if session is None:
        return client_pb2.Client(client_id=client_id, held_count=held_count)
    return client_pb2.Client(
        client_id=client_id,
        type=int(session.kind),
        group=session.group,
        topics=sorted(session.topics),
        language=session.language,
        version=session.version,
        address=session.peer,
        user=session.owner.access_key if session.owner is not None else "",
        since_at_ms=session.since_ms,
        seen_at_ms=session.seen_ms,
        reachable=bool(session.streams),
        held_count=held_count,
        service=session.service,
    )
