"""One broker from start to end: builds the rooms, opens the port, drains, closes. No logic.

store opened, log replayed → engine → services → port → "latermq ready" ─→ serving
SIGTERM, SIGINT → not serving, parked receives answered → calls finish → checkpoint → 0
another process takes over → the same, the port left open for it → 0
a write or sync failed → the same without the checkpoint → 3

With a replicated log: standby, following ─→ it has no owner → store opened, … serving
SIGTERM, SIGINT → the same without the checkpoint, then handed over → 0
another process wants its directory → the same
an operator wants it handed over → the same, then standby again
another broker has taken over → 4
"""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latermq_broker.callbacks import ignore
from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.config.reloading import LIVE_STANDING_BY, Settings
from latermq_broker.config.server_transport import Transport
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import FencedError, HandoverError, StoreError
from latermq_broker.handover.activation import at_sockets, refuse_sockets, take_sockets
from latermq_broker.handover.passing import MeetingPoint
from latermq_broker.handover.ports import GivenSockets, open_ports
from latermq_broker.handover.replacing import (
    LISTEN,
    METRICS,
    closed_ports,
    end_replica,
    open_replacing,
    require_address,
)
from latermq_broker.observability import log as logs
from latermq_broker.observability.metrics import Edges, render, render_standby
from latermq_broker.observability.metrics_endpoint import MetricsEndpoint, Page
from latermq_broker.observability.otlp_export import OtlpExport
from latermq_broker.observability.recovery_lines import log_recovery
from latermq_broker.observability.service_manager import ServiceNotices
from latermq_broker.pump.disk_work import DiskWork, disk_threads
from latermq_broker.pump.event_loop import Ending, Signals, loop_factory
from latermq_broker.pump.pump import Pump
from latermq_broker.reload import Reload, taking_on
from latermq_broker.services.call.handler import MethodTable
from latermq_broker.services.registry import Services, assemble
from latermq_broker.services.v1.first_admin import look_at_the_door, refuse_open_door
from latermq_broker.store.directory import LOCK_NAME, LOG_NAME, refuse_replica, refuse_shard
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from latermq_broker.transport.lean import LeanServer
from latermq_text.version import is_compiled

if TYPE_CHECKING:
    from latermq_broker.cluster.membership import Membership
    from latermq_broker.replication.owner import Owner
    from latermq_broker.replication.replica import Owned, Replica
    from latermq_broker.transport.grpcio import GrpcioServer

log = logging.getLogger("latermq.runtime")

SWITCH_INTERVAL_S: Final = 0.000_5  # how long a thread that computes may keep the loop waiting

# Exit codes of `latermq serve`.
CLEAN: Final = 0
FAILED: Final = 1  # a bug, or a failure nobody planned for
REFUSED: Final = 2  # bad input: flags, configuration, port, data directory
STORE_FAILED: Final = 3  # damaged log, failed write or sync; a start recovers or says what is lost
TRY_AGAIN: Final = 4  # another broker owns the replicated log; started again, this one stands by

HANDED_OVER: Final = -1  # no exit code: the process goes on, as a standby

LAST_WORDS_MS: Final = 2_000  # to hand a replicated log over


def run(
    config: Config,
    announce: Callable[[str], None],
    *,
    replace: bool = False,
    reread: Callable[[], Config] | None = None,
) -> int:
    """Serve until a signal or a failure; the exit code, CLEAN, STORE_FAILED or TRY_AGAIN.

    Args:
        announce: gets `latermq ready on HOST:PORT`, when calls are served.
        replace: take over from the broker that serves this directory, if there is one.
        reread: reads the configuration again, at SIGHUP; None: it stays what it is.

    Raises:
        ConfigError: the address cannot be bound, or is open to everybody and must not be.
        HandoverError: the broker that runs cannot be replaced.
        StoreError: the data directory cannot be used, is in use, or is damaged.
    """
    logs.set_up(config.log)
    signals = Signals()
    settings = Settings(reread or partial(changed, config), config)
    sockets = take_sockets(os.environ)
    given = GivenSockets(sockets, kept=LISTEN in sockets)
    config = at_sockets(config, sockets)
    refuse_open_door(config)
    directory = config.server.directory
    refuse_replica(directory)
    membership = _membership(config, directory)
    if membership is not None:
        config = membership.config
    if _is_new(directory) and LISTEN not in sockets:
        require_address(LISTEN, config.server.listen)  # rather than leave a new directory behind
    if replace:
        if sockets:
            raise HandoverError("systemd keeps the ports: --replace takes none from a broker")
        (engine, clock), sockets = open_replacing(
            config, directory, lambda: _open(config, directory)
        )
        given = GivenSockets(sockets)
    else:
        engine, clock = _open(config, directory)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        life = _serve(engine, clock, config, announce, signals, given, settings, membership)
        return runner.run(life)


def _membership(config: Config, directory: Path) -> "Membership | None":
    """Find which shard of which cluster this broker is; None: it is alone.

    Raises:
        StoreUnusableError: its directory says otherwise.
    """
    if not config.cluster.shards:
        refuse_shard(directory)
        return None
    # Here, not above: a broker that is alone does not pay for it.
    from latermq_broker.cluster.membership import Membership

    return Membership(config, directory)


def _is_new(directory: Path) -> bool:
    try:
        return not directory.exists()
    except OSError:
        return False  # the store says what is wrong with it


def _open(config: Config, directory: Path) -> tuple[Engine, SystemClock]:
    clock = SystemClock()
    began_ms = clock.now_ms()
    store = Store.open(directory, config.store, RealFiles(), began_ms)
    try:
        engine = Engine.open(store, config, began_ms)
    except BaseException:
        store.abandon()
        raise
    clock.not_before(store.log.last_store_ms)
    recovery = engine.recovery
    assert recovery is not None
    log_recovery(directory, recovery, clock.now_ms() - began_ms)
    return engine, clock


def run_replica(
    config: Config,
    announce: Callable[[str], None],
    replica_of: "Callable[[Config, bool], Replica]",
    *,
    replace: bool = False,
    reread: Callable[[], Config] | None = None,
) -> int:
    """Stand by for a replicated log, then serve it, until a signal or a failure; the exit code.

    It is CLEAN, STORE_FAILED or TRY_AGAIN.

    Args:
        announce: gets `latermq standing by`, and when it serves `latermq ready on HOST:PORT`.
        replica_of: makes this broker's part in it, in the running loop; True: this process
            had one before, so what must be as it is to start was looked at.
        replace: have the replica end first that is in this directory, if there is one.
        reread: as of `run`.

    Raises:
        ConfigError, HandoverError, StoreError: as `run`.
    """
    logs.set_up(config.log)
    signals, again = Signals(), False
    settings = Settings(reread or partial(changed, config), config)
    why = "one that stands by has its port closed"
    refuse_sockets(os.environ, "a broker with [replication]", why)
    refuse_open_door(config)
    membership = _membership(config, config.server.directory)
    if membership is not None:
        config = membership.config
    if not replace:
        require_address(LISTEN, config.server.listen)  # rather than find out when it is needed
    while not signals.came:
        life = _replicate(
            config, announce, replica_of, membership, signals, settings,
            replace=replace, again=again,
        )  # fmt: skip
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            code = runner.run(life)
        signals.between_loops()
        if code != HANDED_OVER:
            return code
        again = True
        gc.unfreeze()
        gc.collect()  # what it was as an owner
    return CLEAN


async def _replicate(
    config: Config,
    announce: Callable[[str], None],
    replica_of: "Callable[[Config, bool], Replica]",
    membership: "Membership | None",
    signals: Signals,
    settings: Settings,
    *,
    replace: bool,
    again: bool,
) -> int:
    stop = asyncio.Event()
    signals.stop_by(stop.set)

    def page() -> Iterator[str]:
        page = render_standby(replica.figures())
        return page if membership is None else membership.page(page)

    clock = SystemClock()
    replica = replica_of(config, again)
    directory = config.server.directory
    meeting = MeetingPoint(directory / LOCK_NAME, lambda: closed_ports(config), signals.come)
    replica.on_locked = meeting.open
    try:
        if replace and not again:
            await asyncio.to_thread(end_replica, config, directory, stop.is_set)
            if stop.is_set():
                return CLEAN
            require_address(LISTEN, config.server.listen)
        manager = ServiceNotices(os.environ)
        notices = asyncio.create_task(manager.standing_by(lambda: replica.ready))
        signals.reload_by(Reload(settings, config, manager, ignore, LIVE_STANDING_BY))
        announce("latermq standing by")
        async with MetricsEndpoint(config.metrics, page, lambda: False):
            owned = await replica.take_over(clock, stop, yields=again)
        notices.cancel()
        if owned is None:
            return CLEAN
        given, config = GivenSockets(), settings.over(config)
        owned.engine.reconfigure(config)
        return await _serve(
            owned.engine, clock, config, announce, signals, given, settings, membership, owned
        )
    finally:
        meeting.close()
        await replica.close()


async def _serve(
    engine: Engine,
    clock: SystemClock,
    config: Config,
    announce: Callable[[str], None],
    signals: Signals,
    given: GivenSockets,
    settings: Settings,
    membership: "Membership | None" = None,
    owned: "Owned | None" = None,
) -> int:
    owner = owned.owner if owned is not None else None
    ending = Ending(config.server, waited_for=owner is not None)
    stop, drained, cut_offs = ending.stop, False, engine.store.cut_offs
    signals.stop_by(ending.signalled)  # now, if it came while this broker became the owner
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # after each system call of the loop: Python has 5 ms
    disk = owned.disk if owned else DiskWork(engine, clock, config.store, disk_threads())
    try:
        pump = Pump(engine, clock, config, disk, ending.failed, replicated=owner is not None)
        shards = membership.join(engine, pump) if membership is not None else None
        services = assemble(engine, pump, config, shards)
        look_at_the_door(engine, config, LOG_NAME, clock.now_ms())
        pump.on_ready = services.parked.wake
        manager = _managed(engine, services, pump)
        server = _server(services.methods, config)
        _connect(engine, services, server, owner, ending.handed_over)
        page = _page(engine, services, pump, config)
        async with (
            _metrics(engine, services, config, page, given) as metrics,
            OtlpExport(config.metrics, page, config.server.broker_name, services.background),
        ):
            if owner is None:
                await _copy_first(services, stop)
            else:
                await _own(owner, engine.store, services, server, pump.fail, stop)
            meeting = None
            if not stop.is_set():
                replaced = ending.replaced if owner is None else None
                meeting = await open_ports(server, given, config, metrics, replaced)
                pump.start(services.background)
                services.health.set_serving(True)
                _freeze()
                signals.reload_by(
                    Reload(settings, config, manager, taking_on(engine, pump, server, ending))
                )
                _say_ready(server.address, announce, manager)
                await stop.wait()
            if not ending.goes_on:
                manager.stopping()
            if meeting is not None:
                meeting.close()  # before the ports: who comes now waits for LOCK
            holds = owner is not None and ending.failure is None
            drained = await _drain(services, server, ending.drain_ms_max, holds=holds)
            drained &= not cut_offs.lost_since(clock.now_ms() - config.delivery.auto_renew_lease_ms)
            if owner is not None:
                if ending.failure is None:
                    await owner.hand_over(LAST_WORDS_MS, pump.conclude(drained=drained))
                ending.let_go()
                await server.drain(0)
                await owner.stop()
            await ending.join(pump.stop(), engine.store.log.syncs, TRY_AGAIN)
    finally:
        disk.close()
        closed = _close(
            engine, clock, store_failed=bool(ending.failure), drained=drained, owned=bool(owner)
        )
    if not closed:
        return TRY_AGAIN if isinstance(ending.failure, FencedError) else STORE_FAILED
    return HANDED_OVER if ending.goes_on else CLEAN


def _connect(
    engine: Engine,
    services: Services,
    server: "GrpcioServer | LeanServer",
    owner: "Owner | None",
    hand_over: Callable[[], None],
) -> None:
    """Give services what only the edges know and can do."""
    services.background.foreground_count = lambda: server.calls_begun + engine.store.log.end
    if isinstance(server, LeanServer):
        services.transport_view.transport = server.figures
    if owner is not None:
        services.transport_view.replication = owner.figures
        services.transport_view.hand_over = hand_over


async def _own(
    owner: "Owner",
    store: Store,
    services: Services,
    server: "GrpcioServer | LeanServer",
    on_failure: Callable[[BaseException], None],
    stop: asyncio.Event,
) -> None:
    """Have the owner of a replicated log at work; return when clients may be answered, or `stop`.

    The server is to start in the same turn of the loop.
    """
    assert isinstance(server, LeanServer), "checked with the configuration"
    serving = asyncio.Event()

    def on_serving(now: bool) -> None:
        services.health.set_serving(now)
        (server.come_back if now else server.go_away)()

    server.on_drop = lambda: store.cut_offs.lose_connections(store.log.last_store_ms)
    owner.on_failure = owner.on_stop = on_failure
    owner.on_pause = server.drop
    owner.on_serving = lambda now: (serving.set if now else serving.clear)()
    owner.begin()
    await _copy_first(services, stop)
    while not (serving.is_set() or stop.is_set()):
        waits = [asyncio.ensure_future(event.wait()) for event in (serving, stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    owner.on_serving = on_serving


async def _copy_first(services: Services, stop: asyncio.Event) -> None:
    """Have what one shard of several needs before it serves."""
    if services.shards is not None:
        await services.shards.begin(stop)


def _say_ready(address: str, announce: Callable[[str], None], manager: ServiceNotices) -> None:
    announce(f"latermq ready on {address}")
    manager.ready(address)
    log.info("ready", extra={"address": address, "compiled": is_compiled()})


def _freeze() -> None:
    """Have nobody look again at what lives as long as the process."""
    gc.collect()
    gc.freeze()


def _managed(engine: Engine, services: Services, pump: Pump) -> ServiceNotices:
    """Do each second what the services do, and tell who started the broker that it lives."""
    manager = ServiceNotices(os.environ)

    def on_second() -> None:
        engine.figures.on_second(pump.now_ms())
        services.on_second()
        services.health.on_second()
        manager.alive()

    pump.on_second = on_second
    return manager


def _page(engine: Engine, services: Services, pump: Pump, config: Config) -> Page:
    """Make the page of metrics, with what only the edges know."""

    def pieces() -> Iterator[str]:
        edges = Edges(
            pump.now_ms(),
            len(services.sessions),
            services.transport_view.receives_parked,
            services.transport_view.transport(),
            config.metrics.subscriptions_max,
            services.transport_view.replication(),
            services.background,
        )
        page = render(engine, edges)
        return page if services.shards is None else services.shards.page(page)

    return pieces


def _metrics(
    engine: Engine, services: Services, config: Config, page: Page, given: GivenSockets
) -> MetricsEndpoint:
    def ready() -> bool:
        return services.health.serving

    troubles, sockets = engine.conditions.lines, given.sockets.get(METRICS, ())
    return MetricsEndpoint(config.metrics, page, ready, troubles, sockets, services.background)


def _server(methods: MethodTable, config: Config) -> "GrpcioServer | LeanServer":
    if config.server.transport is Transport.LEAN:
        return LeanServer(methods, config.server, config.http2, config.tls)
    # Here, not above: 9 MiB and 50 ms that the other transport need not pay.
    from latermq_broker.transport.grpcio import GrpcioServer

    return GrpcioServer(methods, config.server)


def _close(
    engine: Engine, clock: SystemClock, *, store_failed: bool, drained: bool, owned: bool
) -> bool:
    """Leave the directory in order if the store still works; whether it did.

    Args:
        owned: the log is a replicated one, which is no longer told what a checkpoint appends.
    """
    if store_failed or owned:
        engine.abandon()
        return not store_failed
    try:
        engine.close(clock.now_ms(), drained=drained)
    except (StoreError, OSError) as error:
        log.error("not closed in order: the next start recovers", extra={"reason": str(error)})
        return False
    log.info("closed", extra={"drained": drained})
    return True


async def _drain(
    services: Services, server: "GrpcioServer | LeanServer", grace_ms: int, *, holds: bool
) -> bool:
    """Answer what was begun, and let the clients go; whether all that was answered went out.

    Args:
        holds: they stay, and what they call waits: another broker is to serve them.
    """
    log.info("draining")
    services.health.set_serving(False)
    services.parked.drain()
    services.reconnects.drain()
    if services.guard is not None:
        services.guard.drain()
    if services.shards is not None:
        services.shards.drain()
    if holds:
        assert isinstance(server, LeanServer), "checked with the configuration"
        drained = await server.hold(grace_ms)
    else:
        drained = await server.drain(grace_ms)
    if services.shards is not None:
        await services.shards.close()
    return drained
