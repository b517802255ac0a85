"""Every configured number at its largest, through every field that carries it; and one beyond."""

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any, Final

import pytest

from latermq_broker.config.config import FAILURE_BYTES_MAX, MIB, Config, ServerConfig
from latermq_broker.config.number_bounds import INT32_MAX, U32_MAX, maximum, numbers
from latermq_broker.config.server_transport import Http2Config
from latermq_broker.engine.outcome.by_handle import live_delivery
from latermq_broker.engine.state.model import Failure, Outgoing, TopicType
from latermq_broker.errors import ConfigError
from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.settings import merge
from latermq_broker.store.log.segment import (
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_facts import facts
from support.engine_rig import SMALL_STORE, EngineRig
from support.http2_peer import Peer

TIGHTER: Final = {
    "cluster.shard": 0,
    "cluster.machine": 0,
    "store.disk_low_percent": 99,
    "store.disk_full_percent": 10,
    "auth.admin_reserve_percent": 90,
    "server.calls_begun_percent": 20,
    "server.calls_public_percent": 20,
    "delivery.receive_batch_max": 256,
    "delivery.failure_class_bytes_max": FAILURE_BYTES_MAX - (10 << 10),
    "delivery.failure_text_bytes_max": FAILURE_BYTES_MAX - (9 << 10),
    "delivery.failure_stack_bytes_max": FAILURE_BYTES_MAX - (3 << 10),
    "http2.frame_bytes_max": 16 * MIB - 1,
    "http2.stream_window_bytes": INT32_MAX,
    "http2.connection_window_bytes": INT32_MAX,
    "server.request_bytes_max": INT32_MAX,
}
"""Settings for which something else says less than their field holds."""
TOGETHER: Final = {
    "delivery.max_attempts": {"max_attempts_max"},
    "delivery.invisible_ms_min": {"invisible_ms_max"},
    "catalog.default_queue_count": {"queue_count_max"},
    "replication.replicas_min": {"replicas"},
    "server.polling_ms_min": {"polling_ms_max"},
    "server.other_request_bytes_max": {"request_bytes_max"},
    "store.message_body_bytes_max": {"segment_bytes"},
    "http2.output_bytes_max": {"reply_bytes_max"},
}
"""Others that have to be as large."""


def _settings() -> Iterator[tuple[str, str]]:
    config = Config()
    for room in fields(config):
        for name, _ in numbers(getattr(config, room.name)):
            yield room.name, name


SETTINGS: Final = tuple(_settings())


def largest(room: str, name: str) -> int:
    setting = f"{room}.{name}"
    return min(maximum(setting), TIGHTER.get(setting, maximum(setting)))


def at_its_largest(room: str, name: str) -> Config:
    section = getattr(Config(), room)
    value: Any = largest(room, name)
    if isinstance(getattr(section, name), tuple):
        value = (value,) * 255
    if name == "other_request_bytes_max":
        value = INT32_MAX
    more = {other: largest(room, other) for other in TOGETHER.get(f"{room}.{name}", ())}
    changed = replace(section, **{name: value}, **more)
    sections = {room: changed}
    if name in ("request_bytes_max", "other_request_bytes_max"):
        sections["http2"] = Http2Config(assembly_bytes_max=1 << 32, requests_bytes_max=1 << 32)
    if f"{room}.{name}" in ("http2.reply_bytes_max", "http2.output_bytes_max"):
        sections["server"] = ServerConfig(reply_bytes_max=maximum("server.reply_bytes_max"))
    return Config(**sections)


@pytest.mark.parametrize(("room", "name"), SETTINGS)
def test_one_more_is_refused_by_name_and_bound(room: str, name: str) -> None:
    section = getattr(Config(), room)
    beyond: Any = maximum(f"{room}.{name}") + 1
    if isinstance(getattr(section, name), tuple):
        beyond = (1, beyond)
    object.__setattr__(section, name, beyond)  # what a section checks by itself is not asked here
    with pytest.raises(ConfigError, match=f"{room}.{name}.* at most {maximum(f'{room}.{name}')}"):
        Config(**{room: section})


@pytest.mark.parametrize(("room", "name"), SETTINGS)
def test_none_is_below_zero(room: str, name: str) -> None:
    section = getattr(Config(), room)
    below: Any = (-1,) if isinstance(getattr(section, name), tuple) else -1
    with pytest.raises(ConfigError, match=rf"^{room}\."):
        type(section)(**{name: below})


@pytest.mark.parametrize(("room", "name"), SETTINGS)
def test_at_its_largest_a_broker_does_what_it_does(room: str, name: str) -> None:
    config = at_its_largest(room, name)
    tell(config)
    if room not in ("store", "delivery", "transaction", "catalog", "lite", "schedules", "http2"):
        return  # the core knows nothing of it
    if room == "http2" and name not in ("requests_bytes_max", "assembly_bytes_max"):
        Peer(**asdict(config.http2))
        return
    if room == "store" and name in ("segment_bytes", "message_body_bytes_max"):
        size = config.store.segment_bytes
        header = SegmentHeader(size, size, bytes(16), 1)
        assert decode_segment_header(encode_segment_header(header), size, "s") == header
        assert config.store.record_bytes_max <= U32_MAX + 1
        config = replace(config, store=SMALL_STORE)  # nobody has so much memory
    elif room == "store":
        value = getattr(config.store, name)
        config = replace(config, store=replace(SMALL_STORE, **{name: value}))
    else:
        config = replace(config, store=SMALL_STORE)
    live(config)


def tell(config: Config) -> None:
    """What clients are told of it, serialized."""
    for settings in (
        definition_pb2.Settings(publishing=definition_pb2.Publishing()),
        definition_pb2.Settings(subscription=definition_pb2.Subscription()),
    ):
        for quirks in (Quirk(0), Quirk.EXPONENTIAL_ONLY | Quirk.SECONDS_FOR_MS):
            merge(settings, None, quirks, config).SerializeToString()


def live(config: Config) -> None:
    """Every record and section that a number of the configuration is written into."""
    delivery = config.delivery
    rig = EngineRig()
    rig.config = config
    engine = rig.restart()
    engine.groups.create(
        "billing", fifo=False, max_attempts=delivery.max_attempts_max, backoff=None,
        now_ms=rig.now_ms,
    )  # fmt: skip
    engine.topics.create("many", TopicType.PRIORITY, config.catalog.queue_count_max, rig.now_ms)
    engine.send(
        [Outgoing(topic="many", rest=b"", sys=b"", message_id="m", priority=1 << 20)], rig.now_ms
    )
    assert len(rig.receive(topic="many", lease_ms=delivery.invisible_ms_max)) == 1
    rig.send("far", wait_ms=delivery.delay_ms_max)
    rig.send("level", level=len(delivery.delay_levels_ms))
    half = Outgoing(topic="halves", rest=b"", sys=b"h", message_id="h")
    engine.transactions.send([half], rig.now_ms)
    rig.send("worked on", "failed", "nacked")
    worked_on, failed, nacked = rig.receive(push=True, lease_ms=delivery.auto_renew_lease_ms)
    failure = Failure(
        "c" * delivery.failure_class_bytes_max,
        "t" * delivery.failure_text_bytes_max,
        "h" * 64,
        "s" * delivery.failure_stack_bytes_max,
    )
    engine.change_invisible("billing", failed.handle, 0, rig.now_ms, failure=failure)
    engine.change_invisible("billing", nacked.handle, 0, rig.now_ms)  # the broker's ladder
    live_on_renewals(rig, worked_on.handle)
    slab = engine._state.leases.slab
    for row in slab.live():
        slab.attempt[row] = delivery.max_attempts_max - 1  # as after so many
    engine.ack("billing", [worked_on.handle], rig.now_ms)
    before = facts(engine)
    rig.checkpoint()
    engine = rig.crash()
    assert facts(engine) == before
    rig.advance(max(delivery.delay_levels_ms) + delivery.invisible_ms_max + 1_000)
    for _ in range(2):  # the last attempt, and the dead letters it makes
        rig.receive(lease_ms=delivery.invisible_ms_max)
        rig.receive(topic="many", lease_ms=delivery.invisible_ms_max)
        rig.advance(delivery.invisible_ms_max + 1)
    before = facts(engine)
    rig.restart()
    assert facts(rig.engine) == before


def live_on_renewals(rig: EngineRig, handle: str) -> None:
    """A client that works on, for more renewals than a byte counts where that may be."""
    for _ in range(260):
        delivery = live_delivery(rig.engine._state, "billing", handle, rig.now_ms)
        if delivery is None or delivery.deadline_ms - rig.now_ms > 86_400_000:
            return
        rig.engine.client_seen("client-1", rig.now_ms + 86_400_000)
        rig.advance(max(1, delivery.deadline_ms - rig.now_ms - 1))
