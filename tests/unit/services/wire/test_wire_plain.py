"""The short way of a send gives what the whole way gives, or nothing."""

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.config.config import Config, ServerConfig, StoreConfig
from latermq_broker.engine.state.model import NO_PRIORITY, Outgoing, PlainMessages
from latermq_broker.errors import RequestError
from latermq_broker.services.call.answers import Caller
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.messaging.send import SendService
from latermq_broker.services.wire.wire_fields import bytes_field
from latermq_broker.services.wire.wire_messages import StoreSide
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import EngineRig
from support.fake_call import CLIENT_ID, FakeCall
from support.fake_committer import FakeCommitter
from support.wire_requests import message, send, timestamp

NOW_MS: Final = 1_795_000_000_000
BATCH_MAX: Final = 4


class Ways:
    """Both ways of one service."""

    def __init__(self, body_bytes_max: int = 1 << 20) -> None:
        config = Config(
            server=ServerConfig(send_messages_max=BATCH_MAX),
            store=StoreConfig(message_body_bytes_max=body_bytes_max),
        )
        rooms = Rooms(EngineRig().engine, FakeCommitter(), Sessions(config.server), config)
        self._service = SendService(rooms)

    def whole(self, data: bytes) -> PlainMessages | None:
        """Read a request by protobuf, as the service does; None: it is refused, or not plain."""
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
        """Read a request in one pass; None: the whole way decides, or it is refused."""
        side = StoreSide(now_ms=NOW_MS, call=FakeCall())
        found = self._service._plain.read(data, side, BATCH_MAX)
        if found is not None and found.message_groups:
            try:
                self._service._special(found, None, NOW_MS)
            except RequestError:
                return None
        return found


def is_plain(message: Outgoing) -> bool:
    return not (
        message.delay_level
        or message.lite_topic
        or message.dedup_id
        or message.first_check_ms
        or message.priority != NO_PRIORITY
        or not message.message_id
    )


def plain(messages: list[Outgoing]) -> PlainMessages:
    columns = PlainMessages(
        messages[0].topic,
        [message.message_id.encode() for message in messages],
        [message.tag.encode() for message in messages],
        [tuple(map(str.encode, message.keys)) for message in messages],
        [len(message.rest) for message in messages],
        [len(message.sys) for message in messages],
        [message.rest + message.sys for message in messages],
    )
    groups = [message.message_group for message in messages]
    times_ms = [message.deliver_at_ms for message in messages]
    if not any(groups) and not any(times_ms):
        return columns
    return columns._replace(message_groups=groups, deliver_at_ms=times_ms)


def parts(found: PlainMessages | None) -> Any:
    """What is stored, and what it means: protobuf has an order of its own for a map's entries."""
    if found is None:
        return None
    sizes = list(zip(found.rest_bytes, found.sys_bytes, found.stored, strict=True))
    assert all(rest + sys == len(stored) for rest, sys, stored in sizes)
    messages = [definition_pb2.Message.FromString(stored[:rest]) for rest, _, stored in sizes]
    return found._replace(stored=[]), messages, [stored[rest:] for rest, _, stored in sizes]


def like(number: int, *, body: bytes = b"body", **fields: Any) -> definition_pb2.Message:
    made = message("orders", body, message_id=f"01{number:032X}", tag="paid", **fields)
    made.system_properties.born_timestamp.CopyFrom(timestamp(NOW_MS + 300 + number % 600))
    made.system_properties.born_host = "producer-1"
    return made


def request(*messages: definition_pb2.Message) -> bytes:
    return send(messages).SerializeToString()


def test_plain_messages_take_the_short_way() -> None:
    ways = Ways()
    zipped = like(1)
    zipped.system_properties.body_encoding = definition_pb2.GZIP
    of_java = like(2, keys=["order-1", "order-2"], properties={"a": "é"})
    of_java.system_properties.queue_id = 300
    of_java.system_properties.trace_context = "00-1"
    of_java.system_properties.message_type = definition_pb2.NORMAL
    digested = like(3)
    digested.system_properties.body_digest.checksum = "0A"
    digested.system_properties.ClearField("tag")
    space = like(4, properties={"a": "", "b": "x"})
    delayed = like(8, keys=["k"])
    delayed.system_properties.delivery_timestamp.CopyFrom(timestamp(NOW_MS + 5_001))
    delayed.system_properties.queue_id = 3
    past = like(8)
    past.system_properties.delivery_timestamp.seconds = 1
    ordered = like(9, properties={"a": "é"})
    ordered.system_properties.message_group = "customer ü"
    ordered.system_properties.trace_context = "00-1"
    alone = like(9)
    alone.system_properties.message_group = "g"
    for made in (like(5), zipped, of_java, digested, space, delayed, past, ordered, alone):
        assert parts(ways.short(request(made))) == parts(ways.whole(request(made))) is not None
    for several in (
        request(like(6), zipped, like(7, keys=["k"]), of_java),
        request(like(6), delayed, zipped, ordered),
    ):
        assert parts(ways.short(several)) == parts(ways.whole(several)) is not None


def test_a_message_without_a_birth_gets_the_time_of_its_arrival() -> None:
    ways = Ways()
    messages = [like(1), like(2), like(3, keys=["k"]), like(4, properties={"a": "b"})]
    for made in messages[1:]:
        made.system_properties.ClearField("born_timestamp")
    messages[2].system_properties.body_encoding = definition_pb2.GZIP
    data = request(*messages)
    short = ways.short(data)
    assert short is not None
    assert parts(short) == parts(ways.whole(data))


def test_what_is_rare_or_wrong_takes_the_whole_way() -> None:
    ways = Ways()
    grouped = like(3)
    grouped.system_properties.message_group = "g"
    grouped.system_properties.delivery_timestamp.CopyFrom(timestamp(NOW_MS + 5_000))
    timeless = like(3)
    timeless.system_properties.delivery_timestamp.nanos = 1
    nameless = like(3)
    nameless.system_properties.message_group = ""
    long = like(3)
    long.system_properties.message_group = "g" * 64
    ranked = like(3)
    ranked.system_properties.priority = 0
    lite = like(3)
    lite.system_properties.lite_topic = "l"
    half = like(3)
    half.system_properties.message_type = definition_pb2.TRANSACTION
    blank = like(3)
    blank.system_properties.message_id = " " * 34
    escape = like(3)
    escape.system_properties.message_id = "\x1b" * 34
    unborn = like(3)
    unborn.system_properties.born_timestamp.nanos = -1
    nowhere = like(3)
    nowhere.system_properties.born_host = ""
    barred = like(3)
    barred.system_properties.tag = "a|b"
    retry = like(3)
    retry.topic.name = "%RETRY%group"
    nobody = like(3)
    nobody.ClearField("topic")
    negative = like(3)
    negative.system_properties.queue_id = -1
    for rare in (
        grouped, timeless, nameless, long, ranked, lite, half, blank, escape, unborn, nowhere,
        barred, retry, nobody, negative, like(3, body=b""), like(3, keys=[""]),
        like(3, keys=["\x07"]),
        like(3, properties={"KEYS": "x"}), like(3, properties={"a": "\x07"}),
        like(3, properties={"__SHARDINGKEY": "x"}),
        like(3, properties={"LATERMQ_DEDUP_ID": "x"}),
        like(3, keys=["k"] * 65), like(3, properties={"a": "x" * 4_096}),
        like(3, properties={str(n): "" for n in range(65)}),
    ):  # fmt: skip
        assert ways.short(request(rare)) is None, rare
    assert ways.short(b"") is None
    assert ways.short(request(*[like(number) for number in range(BATCH_MAX + 1)])) is None
    assert ways.short(request(like(4), ranked)) is None


def test_bytes_that_protobuf_would_write_otherwise_take_the_whole_way() -> None:
    ways = Ways()
    made = like(1, properties={"a": "b"})
    data = made.SerializeToString()
    topic, rest = data[: 2 + data[1]], data[2 + data[1] :]
    long_length = topic[:1] + bytes((topic[1] | 128, 0)) + topic[2:]
    system = made.system_properties.SerializeToString()
    others = [
        rest + topic,  # in another order
        topic + topic + rest,  # twice
        long_length + rest,
        data + b"\x28\x01",  # a field that nobody knows
        topic + b"\x12\x06\x0a\x01a\x12\x01c" + rest,  # a property twice
        topic + b"\x12\x03\x0a\x01x" + rest,  # without its value
        topic + b"\x1a" + bytes((len(system) + 2, 1)) + system + b"\x28\x01" + b"\x22\x01x",
        topic + b"\x1a" + bytes((len(system) + 13, 1)) + system + b"\x68" + b"\xff" * 9 + b"\x01",
    ]
    for other in others:
        size = bytes((len(other) & 127 | 128, len(other) >> 7))
        assert ways.short(b"\x0a" + size + other) is None, other


def test_a_digest_is_dropped_but_has_to_be_one() -> None:
    ways = Ways()
    made = like(1)
    labels = made.system_properties
    labels.ClearField("body_encoding")
    labels.ClearField("message_type")
    topic = bytes_field(b"\x0a", made.topic.SerializeToString())
    system = labels.SerializeToString()
    labels.ClearField("born_timestamp")
    labels.ClearField("born_host")
    at = len(labels.SerializeToString())  # behind the message id
    for digest, right in (
        (b"\x22\x00", True), (b"\x22\x02\x08\x02", True), (b"\x22\x05\x08\x02\x12\x01A", True),
        (b"\x22\x02\x00\x00", False), (b"\x22\x03\x12\x01\xff", False),
        (b"\x22\x02\x12\x01", False),
    ):  # fmt: skip
        inner = bytes_field(b"\x1a", system[:at] + digest + system[at:])
        data = bytes_field(b"\x0a", topic + inner + b"\x22\x01x")
        assert (ways.short(data) is not None) is right
        assert parts(ways.short(data)) == parts(ways.whole(data))


def test_what_stands_before_a_message_counts() -> None:
    ways = Ways()
    unknown = b"\x12" + request(like(1))[1:]  # a field that is no message, skipped by the whole way
    assert ways.short(unknown + request(like(1))) is None
    assert ways.whole(unknown + request(like(1))) is not None


def test_sizes_are_cut_right() -> None:
    ways = Ways()
    for size in (1, 2, 126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385, 70_000):
        batch = request(like(2), like(3, body=b"x" * size), like(4))
        assert ways.short(batch) == ways.whole(batch) is not None


def test_a_body_beyond_the_limit_takes_the_whole_way_every_time() -> None:
    ways = Ways(body_bytes_max=100)
    for _ in range(2):
        assert ways.short(request(like(2, body=b"x" * 100))) is not None
        assert ways.short(request(like(3, body=b"x" * 101))) is None
        assert ways.short(request(like(2), like(3, body=b"x" * 101))) is None


def test_two_topics_are_not_sent_to_in_one_request() -> None:
    ways = Ways()
    other = like(2)
    other.topic.name = "billing"
    for _ in range(2):
        assert ways.short(request(like(3))) is not None
        assert ways.short(request(other)) is not None
        assert ways.short(request(like(3), other)) is None


looks = st.fixed_dictionaries(
    {},
    optional={
        "keys": st.lists(st.sampled_from(["", "k", "key-2"]), max_size=2),
        "properties": st.dictionaries(
            st.sampled_from(["a", "b", "LATERMQ_DEDUP_ID"]), st.text("xy", max_size=3)
        ),
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
    if draw(st.booleans()):
        system.body_digest.checksum = draw(st.text("0A", max_size=3))
    if draw(st.integers(0, 3)) == 0:
        system.message_group = draw(st.sampled_from(["g", "", "ü" * 31, "g" * 64]))
    if draw(st.integers(0, 3)) == 0:
        at_ms = draw(st.sampled_from([NOW_MS + 5_001, NOW_MS - 1, 1, 0, NOW_MS + (1 << 40)]))
        system.delivery_timestamp.CopyFrom(timestamp(at_ms))
    if draw(st.integers(0, 9)) == 0:
        system.message_type = definition_pb2.TRANSACTION
    if draw(st.integers(0, 9)) == 0:
        system.ClearField("born_timestamp")
    if draw(st.integers(0, 9)) == 0:
        system.born_host = ""
    return made


@settings(max_examples=200)
@given(st.data())
def test_both_ways_end_in_the_same(data: st.DataObject) -> None:
    ways = Ways()
    looks_of_one = data.draw(st.lists(messages(), min_size=1, max_size=3))
    for number in range(6):
        batch = data.draw(st.lists(st.sampled_from(looks_of_one), min_size=1, max_size=3))
        for made in batch:
            made.system_properties.message_id = f"01{number:032X}"
            made.body = data.draw(st.binary(max_size=20_000))
        wire = bytearray(request(*batch))
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, min(len(wire) - 1, 150)))
            wire[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        short = ways.short(bytes(wire))
        assert short is None or parts(short) == parts(ways.whole(bytes(wire)))
