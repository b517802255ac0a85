"""One client as the broker sees it: an id, a kind, settings, streams, heartbeats and routes.

A producer and each consumer has a session of its own; sessions of one `Client` share connections.
A session begins with the first topic it needs: the route of the topic names brokers, and each new
broker gets a telemetry stream that carries our settings. From then on a heartbeat every 10 s keeps
our leases alive; settings are repeated every 5 minutes and routes looked up anew every 30 s.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable
from typing import Final

from latermq._connection.meetings import meet_all
from latermq._connection.one_loop import OneLoop
from latermq._connection.outages import Noting, Outages
from latermq._connection.refusals import Refusals, SessionRefusals
from latermq._connection.signed_hosts import SignedHosts
from latermq._connection.silence import Silence, nobody_answered
from latermq._connection.tasks import Tasks, outcome_of
from latermq._connection.telemetry import Telemetry
from latermq._connection.transport import Metadata, Transport
from latermq._values.endpoints import Endpoints
from latermq._values.route import Route
from latermq._values.settings import Profile, Settings
from latermq._wire import session_calls as wire
from latermq.backoff import RECONNECT_BACKOFF
from latermq.codes import Code
from latermq.errors import (
    ClosedError,
    LaterMQError,
    TopicNotFoundError,
    UnavailableError,
)

log = logging.getLogger("latermq.client")

HEARTBEAT_S: Final = 10.0
ROUTE_AGE_S_MAX: Final = 30.0
SETTINGS_AGE_S_MAX: Final = 300.0
TOPICS_MAX: Final = 1024
FAREWELL_S_MAX: Final = 1.0


class Connections:
    """One transport per broker, opened on first use; whoever calls, an outage is noted."""

    def __init__(
        self, connect: Callable[[Endpoints], Transport], hosts: SignedHosts | None = None
    ) -> None:
        """
        Args:
            hosts: where signed calls may go; None: anywhere.
        """
        self.outages = Outages()
        self.refusals = Refusals()
        self.loop = OneLoop()
        self._connect = connect
        self._hosts = hosts
        self._open: dict[Endpoints, Transport] = {}

    def to(self, endpoints: Endpoints) -> Transport:
        """Return what calls that broker.

        Raises:
            RuntimeError: it would answer another event loop; nothing was sent.
            UntrustedHostError: calls are signed, and nothing proves who answers there.
        """
        self.loop.check()
        transport = self._open.get(endpoints)
        if transport is None:
            if self._hosts is not None:
                self._hosts.check(endpoints)
            transport = Noting(self._connect(endpoints), endpoints, self.outages, self.loop)
            self._open[endpoints] = transport
        return transport

    @property
    def present(self) -> tuple[Endpoints, ...]:
        """Return the brokers that were called and are not away."""
        return tuple(each for each in self._open if not self.outages.away(each))

    async def close(self) -> None:
        for transport in self._open.values():
            await transport.close()
        self._open.clear()


class Session:
    """A client identity and what keeps it alive. Not reusable once closed."""

    def __init__(self, profile: Profile, connections: Connections) -> None:
        self.profile = profile
        self.timeout: Final = profile.request_timeout.total_seconds()  # of a call, in seconds
        self.settings = Settings()
        self.on_orphan: Callable[[Endpoints, wire.Orphan], None] | None = None
        self.on_known: Callable[[], None] | None = None  # a broker has answered our settings
        self.on_taken: Callable[[str], None] | None = None
        self.silence = Silence()
        self._connections = connections
        self._headers = wire.ClientHeaders(profile)
        self.tasks = Tasks()  # until it is closed
        self._alive = False  # heartbeats have begun
        self._streams: dict[Endpoints, Telemetry] = {}
        self._conversations: dict[Endpoints, asyncio.Task[None]] = {}  # what runs the streams
        self._routes: dict[str, Route] = {}
        self._lookups: dict[str, asyncio.Task[Route]] = {}
        self._closed = False
        self.refusals: Final = SessionRefusals(profile.group, connections.refusals)
        self.check_loop: Final = connections.loop.check  # RuntimeError: called in another one

    @property
    def outages(self) -> Outages:
        """Return which brokers are away."""
        return self._connections.outages

    def known_route(self, topic: str) -> Route | None:
        """Return where the topic's queues are, if it was looked up. Raises ClosedError, and
        RuntimeError in another event loop."""
        self.check_loop()
        self._check_open()
        return self._routes.get(topic)

    async def route(self, topic: str) -> Route:
        """Return where the topic's queues are; its brokers know us when this returns.

        Raises:
            TopicNotFoundError: and it is not created on use.
            UnavailableError: no broker answers.
        """
        route = self.known_route(topic)
        if route is not None:
            return route
        lookup = self._lookups.get(topic)
        if lookup is None:
            name = f"latermq route {topic}"
            lookup = self.tasks.start(self._look_up(topic), name, awaited=True)
            self._lookups[topic] = lookup
        return await outcome_of(lookup)

    def forget_route(self, topic: str) -> None:
        """Look the topic up anew before its next use."""
        self._routes.pop(topic, None)

    def forget_topic(self, topic: str) -> None:
        """Stop naming the topic in our settings."""
        self.profile.topics.pop(topic, None)
        self.forget_route(topic)

    async def announce(self) -> None:
        """Tell every broker our settings again; one that is away hears them when it is back."""
        announcements = [
            self.tasks.start(stream.announce(), f"latermq settings {endpoints}", awaited=True)
            for endpoints, stream in self._streams.items()
            if len(self._streams) == 1 or not self.outages.away(endpoints)
        ]
        if announcements:
            await asyncio.wait(announcements, timeout=self.timeout)

    async def call(
        self,
        endpoints: Endpoints,
        path: str,
        request: bytes,
        headers: Metadata = (),
        *,
        timeout: float | None = None,
    ) -> bytes:
        """Call and, while no broker is there, call again until the time is up.

        Only for calls that may be repeated. `timeout` is in seconds; the default is the client's.
        """
        limit = self.timeout if timeout is None else timeout
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        retry = 0
        while True:
            try:
                return await self.call_once(
                    endpoints, path, request, headers, timeout=max(end - loop.time(), 0.001)
                )
            except UnavailableError:
                retry += 1
                wait = RECONNECT_BACKOFF.wait(retry, random.random()).total_seconds()
                if loop.time() + wait >= end:
                    raise
                await asyncio.sleep(wait)

    async def call_once(
        self,
        endpoints: Endpoints,
        path: str,
        request: bytes,
        headers: Metadata = (),
        *,
        timeout: float | None = None,
    ) -> bytes:
        self._check_open()
        limit = self.timeout if timeout is None else timeout
        transport = self._connections.to(endpoints)
        try:
            answer = await transport.unary(path, request, self._headers.next(headers), limit)
        except LaterMQError as error:
            if nobody_answered(error):
                self.silence.failed(endpoints)
            raise
        self.silence.heard(endpoints)
        return answer

    async def ask_any(self, path: str, request: bytes) -> bytes:
        """Ask the access point; where that does not answer, another broker that is there."""
        access_point = self.profile.access_point
        others = [
            each for each in self._streams if each != access_point and not self.outages.away(each)
        ]
        if not others:
            return await self.call(access_point, path, request)
        first = [] if self.outages.away(access_point) else [access_point]
        for endpoints in (*first, *others):
            try:
                return await self.call_once(endpoints, path, request)
            except UnavailableError as error:
                failure = error
        raise failure

    def stream(
        self, endpoints: Endpoints, path: str, request: bytes, timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """Return a stream's messages; closing the iteration cancels it. `timeout` in seconds."""
        self._check_open()
        transport = self._connections.to(endpoints)
        return transport.server_stream(path, request, self._headers.next(()), timeout)

    async def close(self, farewell_s_max: float = FAREWELL_S_MAX) -> None:
        """Say farewell, so that our leases are free at once, and end every stream.

        Each broker is given `farewell_s_max` seconds to know us (again) and to hear it.
        """
        if self._closed:
            return
        self.check_loop()
        request = wire.ask_termination(self.profile)

        async def leave(endpoints: Endpoints, stream: Telemetry) -> None:
            try:
                await stream.ready(farewell_s_max)
                await self.call_once(
                    endpoints, wire.NOTIFY_TERMINATION, request, timeout=farewell_s_max
                )
            except LaterMQError as error:
                log.debug("farewell not heard: %s", error, extra={"reason": str(error)})

        await asyncio.gather(*(leave(*each) for each in self._streams.items()))
        self._closed = True
        self.silence.close()
        self.refusals.end()
        await self.tasks.cancel()
        while self._streams:
            self.outages.forget(self._streams.popitem()[0])

    async def _look_up(self, topic: str) -> Route:
        try:
            route = await self._query_route(topic)
            if topic not in self.profile.topics:
                while len(self.profile.topics) >= TOPICS_MAX:
                    self.forget_topic(next(iter(self.profile.topics)))
                self.profile.topics[topic] = ""
                await self.announce()
            await meet_all(self._meet, route.endpoints(), self.tasks, self.outages)
            self._routes[topic] = route
            return route
        finally:
            del self._lookups[topic]

    async def _query_route(self, topic: str) -> Route:
        request = wire.ask_route(self.profile, topic)
        return wire.read_route(await self.ask_any(wire.QUERY_ROUTE, request))

    async def _meet(self, endpoints: Endpoints) -> None:
        """Return when that broker has answered our settings."""
        if not self._alive:
            self._alive = True
            self.tasks.start(self._keep_alive(), "latermq heartbeats")
            self.tasks.start(self._follow_routes(), "latermq routes")
        if endpoints not in self._streams:
            transport = self._connections.to(endpoints)
            service = wire.service_headers(self.profile)
            stream = Telemetry(
                lambda: transport.bidi_stream(wire.TELEMETRY, self._headers.next(service)),
                lambda: wire.settings_command(self.profile),
                lambda settings: self._adopt(endpoints, settings),
                lambda request: self._asked(endpoints, request),
                lambda error: self.refusals.failed(("settings", endpoints), "settings", error),
            )
            self._streams[endpoints] = stream
            self.outages.follow(endpoints)
            running = self.tasks.start(stream.run(), f"latermq telemetry {endpoints}")
            self._conversations[endpoints] = running
        await self._streams[endpoints].ready(self.timeout)

    def _adopt(self, endpoints: Endpoints, settings: Settings) -> None:
        self.silence.heard(endpoints)
        self.refusals.taken(("settings", endpoints))
        self.settings = settings
        if self.on_known is not None:
            self.on_known()

    def _asked(self, endpoints: Endpoints, request: wire.Orphan | wire.Taken) -> None:
        if isinstance(request, wire.Orphan):
            if self.on_orphan is not None:
                self.on_orphan(endpoints, request)
        elif self.on_taken is not None:
            self.on_taken(request.lite_topic)

    async def _keep_alive(self) -> None:
        """Tell every broker that we live, whichever of them are away, and our settings again."""
        loop = asyncio.get_running_loop()
        settings_at = loop.time()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await asyncio.gather(*(self._beat(*each) for each in self._streams.items()))
            if loop.time() - settings_at >= SETTINGS_AGE_S_MAX:
                settings_at = loop.time()
                await self.announce()

    async def _beat(self, endpoints: Endpoints, stream: Telemetry) -> None:
        """Tell a broker that we live; if it does not know us, our settings."""
        request = wire.ask_heartbeat(self.profile)
        limit = min(self.timeout, HEARTBEAT_S)
        try:
            answer = await self.call_once(endpoints, wire.HEARTBEAT, request, timeout=limit)
            wire.read_heartbeat(answer)
        except LaterMQError as error:
            if error.code == Code.UNRECOGNIZED_CLIENT_TYPE:
                await stream.announce()
            else:
                self.refusals.failed(("heartbeat", endpoints), "heartbeat", error)
                return
        self.refusals.taken(("heartbeat", endpoints))

    async def _follow_routes(self) -> None:
        """Look routes up anew; let go of brokers that none names any more and that are away."""
        while True:
            await asyncio.sleep(ROUTE_AGE_S_MAX)
            for topic in list(self._routes):
                try:
                    route = await self._query_route(topic)
                    await meet_all(self._meet, route.endpoints(), self.tasks, self.outages)
                    if topic in self._routes:  # else it was forgotten meanwhile
                        self._routes[topic] = route
                except TopicNotFoundError:
                    self.refusals.taken(("route", topic))
                    self.forget_route(topic)
                except LaterMQError as error:
                    self.refusals.failed(("route", topic), "route query", error, topic=topic)
                else:
                    self.refusals.taken(("route", topic))
            if not self._routes.keys() >= self.profile.topics.keys():
                continue  # a topic that is gone may come back where it was
            named = {each for route in self._routes.values() for each in route.endpoints()}
            for endpoints in self._streams.keys() - named:
                if self.outages.away(endpoints):
                    del self._streams[endpoints]
                    self._conversations.pop(endpoints).cancel()
                    self.silence.forget(endpoints)
                    self.refusals.taken(("heartbeat", endpoints))
                    self.refusals.taken(("settings", endpoints))
                    self.outages.forget(endpoints)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this client is closed")
