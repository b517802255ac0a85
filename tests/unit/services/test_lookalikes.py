"""The short way of a send gives what the whole way gives, or nothing."""

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.config.config import Config, ServerConfig, StoreConfig
from latermq_broker.engine.send.plain_sends import is_plain, plain
from latermq_broker.engine.state.model import PlainMessages
from latermq_broker.errors import RequestError
from latermq_broker.services.call.answers import Caller
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.messaging.send import SendService
from latermq_broker.services.wire.wire_messages import StoreSide
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import EngineRig
from support.fake_call import CLIENT_ID, FakeCall
from support.fake_committer import FakeCommitter
from support.wire_requests import message, send, timestamp

NOW_MS: Final = 1_795_000_000_000
BATCH_MAX: Final = 4


class Ways:
    """Both ways of one service, which learns from the whole one."""

    def __init__(self, body_bytes_max: int = 1 << 20) -> None:
        config = Config(
            server=ServerConfig(send_messages_max=BATCH_MAX),
            store=StoreConfig(message_body_bytes_max=body_bytes_max),
        )
        self._service = SendService(
            EngineRig().engine, FakeCommitter(), Sessions(config.server), config
        )

    def whole(self, data: bytes) -> PlainMessages | None:
        """None: refused."""
        caller = Caller(CLIENT_ID, FakeCall(), data)
        try:
            request = service_pb2.SendMessageRequest.FromString(data)
            outgoing = self._service._outgoing(request.messages, caller, NOW_MS)
        except (RequestError, ValueError):
            return None
        except Exception as error:
            if type(error).__name__ == "DecodeError":
                return None
            raise
        return plain(outgoing) if all(map(is_plain, outgoing)) else None

    def short(self, data: bytes) -> PlainMessages | None:
        side = StoreSide(now_ms=NOW_MS, call=FakeCall())
        return self._service._templates.outgoing(data, side, BATCH_MAX)


def like(number: int, *, body: bytes = b"body", **fields: Any) -> definition_pb2.Message:
    """Messages of one producer: equal but for id, birth and body."""
    made = message("orders", body, message_id=f"01{number:032X}", tag="paid", **fields)
    made.system_properties.born_timestamp.CopyFrom(timestamp(NOW_MS + 300 + number % 600))
    made.system_properties.born_host = "producer-1"
    return made


def request(*messages: definition_pb2.Message) -> bytes:
    return send(messages).SerializeToString()


def test_the_second_message_of_a_producer_takes_the_short_way() -> None:
    ways = Ways()
    first, second = request(like(1)), request(like(2, body=b"another" * 100))
    assert ways.short(first) is None
    ways.whole(first)
    assert ways.short(second) == ways.whole(second)
    assert ways.short(request(like(3), like(4))) == ways.whole(request(like(3), like(4)))


def test_what_is_not_alike_takes_the_whole_way() -> None:
    ways = Ways()
    ways.whole(request(like(1)))
    assert ways.short(request(like(2))) is not None
    other_tag = like(3)
    other_tag.system_properties.tag = "sent"
    other_topic = like(3)
    other_topic.topic.name = "orderz"
    other_namespace = like(3)
    other_namespace.topic.resource_namespace = "n"
    delayed = like(3)
    delayed.system_properties.delivery_timestamp.CopyFrom(timestamp(NOW_MS + 5_000))
    grouped = like(3)
    grouped.system_properties.message_group = "g"
    blank = like(3)
    blank.system_properties.message_id = " " * 34
    escape = like(3)
    escape.system_properties.message_id = "\x1b" * 34
    unborn = like(3)
    unborn.system_properties.born_timestamp.nanos = -1
    keyed = like(3, keys=["k"])
    named = like(3, properties={"a": "b"})
    for unlike in (
        other_tag, other_topic, other_namespace, delayed, grouped, blank, escape, unborn, keyed,
        named, like(3, body=b""),
    ):  # fmt: skip
        assert ways.short(request(unlike)) is None
    assert ways.short(b"") is None
    assert ways.short(request(*[like(number) for number in range(BATCH_MAX + 1)])) is None
    assert ways.short(request(like(4), other_namespace)) is None


def test_what_stands_before_a_message_teaches_nothing() -> None:
    ways = Ways()
    other = like(1)
    other.topic.name = "orderz"
    unknown = b"\x12" + request(other)[1:]  # a field that is no message, skipped by the whole way
    assert ways.short(unknown + request(like(1))) is None
    assert ways.whole(unknown + request(like(1))) is not None
    assert ways.short(request(other)) is None


def test_sizes_that_were_never_seen_are_cut_right() -> None:
    ways = Ways()
    ways.whole(request(like(1)))
    for size in (1, 2, 126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385, 70_000):
        batch = request(like(2), like(3, body=b"x" * size), like(4))
        assert ways.short(batch) == ways.whole(batch) is not None


def test_a_body_beyond_the_limit_takes_the_whole_way_every_time() -> None:
    ways = Ways(body_bytes_max=100)
    ways.whole(request(like(1)))
    for _ in range(2):
        assert ways.short(request(like(2, body=b"x" * 100))) is not None
        assert ways.short(request(like(3, body=b"x" * 101))) is None
        assert ways.short(request(like(2), like(3, body=b"x" * 101))) is None


def test_two_topics_that_are_known_are_not_sent_to_in_one_request() -> None:
    ways = Ways()
    other = like(2)
    other.topic.resource_namespace = "n"
    ways.whole(request(like(1)))
    ways.whole(request(other))
    assert ways.short(request(like(3))) is not None
    assert ways.short(request(other)) is not None
    assert ways.short(request(like(3), other)) is None


def test_learning_ends_when_it_is_of_no_use_and_begins_again() -> None:
    ways = Ways()
    for number in range(200):
        ways.whole(request(like(number, keys=[f"key-{number:04}"])))
    ways.whole(request(like(1)))
    assert ways.short(request(like(2))) is None
    for _ in range(100):
        assert ways.short(request(like(1, keys=["key-0063"]))) is not None
    ways.whole(request(like(1)))
    assert ways.short(request(like(2))) is not None


looks = st.fixed_dictionaries(
    {},
    optional={
        "keys": st.lists(st.sampled_from(["", "k", "key-2"]), max_size=2),
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), st.text("xy", max_size=3)),
    },
)


@st.composite
def messages(draw: st.DrawFn) -> definition_pb2.Message:
    made = like(draw(st.integers(0, 5_000)), body=draw(st.binary(max_size=200)), **draw(looks))
    system = made.system_properties
    system.tag = draw(st.sampled_from(["paid", ""]))
    if draw(st.booleans()):
        system.body_encoding = definition_pb2.GZIP
    if draw(st.booleans()):
        system.queue_id = draw(st.integers(0, 9))
        system.trace_context = "00-1"
    if draw(st.integers(0, 9)) == 0:
        system.message_type = definition_pb2.TRANSACTION
    if draw(st.integers(0, 9)) == 0:
        system.ClearField("born_timestamp")
    if draw(st.integers(0, 9)) == 0:
        system.born_host = ""
    return made


@settings(max_examples=60)
@given(st.data())
def test_both_ways_end_in_the_same(data: st.DataObject) -> None:
    ways = Ways()
    looks_of_one = data.draw(st.lists(messages(), min_size=1, max_size=3))
    for made in looks_of_one:
        ways.whole(request(made))
    for number in range(6):
        batch = data.draw(st.lists(st.sampled_from(looks_of_one), min_size=1, max_size=3))
        for made in batch:
            made.system_properties.message_id = f"01{number:032X}"
            made.body = data.draw(st.binary(max_size=20_000))
        wire = bytearray(request(*batch))
        for _ in range(data.draw(st.integers(0, 2))):
            wire[data.draw(st.integers(0, min(len(wire) - 1, 120)))] = data.draw(
                st.integers(0, 255)
            )
        short = ways.short(bytes(wire))
        whole = ways.whole(bytes(wire))
        assert short is None or short == whole
