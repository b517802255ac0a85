"""Messages, heads, status and the PROXY header: bytes in, meaning out."""

import gzip
import ipaddress
import random
import struct
import zlib
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.errors import ConfigError
from latermq_broker.services.call.handler import Method
from latermq_broker.transport.grpc import head, status
from latermq_broker.transport.listener import is_trusted, trusted_networks
from latermq_broker.transport.proxy_protocol import ProxyError, ProxyHeader, parse
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.decoder import Decoder
from latermq_h2.hpack.encoder import encode
from latermq_h2.hpack.fields import field
from latermq_h2.http2.request import RequestHead, head_of
from latermq_h2.messages import Assembly, Encoding, MessageFault, SingleMessage, framed, inflate

GZIP, DEFLATE = Encoding.GZIP, Encoding.DEFLATE
LIMIT = 1_000


def wire(*messages: bytes, flag: int = 0) -> bytes:
    return b"".join(struct.pack(">BI", flag, len(m)) + m for m in messages)


def aborted(assembly: Assembly, data: bytes) -> GrpcCode:
    with pytest.raises(MessageFault) as raised:
        assembly.feed(data)
    return GrpcCode(raised.value.code)


class TestAssembly:
    @given(st.lists(st.binary(max_size=60), max_size=6), st.data())
    def test_any_cut_gives_the_same_messages(
        self, messages: list[bytes], draw: st.DataObject
    ) -> None:
        data = wire(*messages)
        cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
        assembly = Assembly(LIMIT, None)
        found: list[bytes] = []
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            found += assembly.feed(data[start:end])
        assert found == messages
        assert assembly.bytes_kept == 0

    def test_too_long_is_known_from_the_prefix(self) -> None:
        assembly = Assembly(LIMIT, None)
        assert aborted(assembly, struct.pack(">BI", 0, LIMIT + 1)) is GrpcCode.RESOURCE_EXHAUSTED

    def test_compression(self) -> None:
        for encoding, compress in ((GZIP, gzip.compress), (DEFLATE, zlib.compress)):
            assembly = Assembly(LIMIT, encoding)
            assert assembly.feed(wire(compress(b"x" * LIMIT), flag=1)) == [b"x" * LIMIT]

    @pytest.mark.parametrize(
        ("encoding", "flag", "payload", "code"),
        [
            (None, 1, gzip.compress(b"x"), GrpcCode.INTERNAL),
            (GZIP, 2, b"x", GrpcCode.INTERNAL),
            (GZIP, 1, b"not gzip", GrpcCode.INTERNAL),
            (GZIP, 1, gzip.compress(b"x")[:-3], GrpcCode.INTERNAL),
            (GZIP, 1, gzip.compress(b"x") + b"more", GrpcCode.INTERNAL),
            (GZIP, 1, gzip.compress(bytes(LIMIT + 1)), GrpcCode.RESOURCE_EXHAUSTED),
            (GZIP, 1, gzip.compress(bytes(10 << 20))[:LIMIT], GrpcCode.RESOURCE_EXHAUSTED),
            (DEFLATE, 1, gzip.compress(b"x"), GrpcCode.INTERNAL),
            (DEFLATE, 1, zlib.compress(bytes(10 << 20))[:LIMIT], GrpcCode.RESOURCE_EXHAUSTED),
        ],
        ids=[
            "off",
            "flag",
            "not gzip",
            "cut",
            "more",
            "too large",
            "bomb",
            "not zlib",
            "zlib bomb",
        ],
    )
    def test_refused(
        self, encoding: Encoding | None, flag: int, payload: bytes, code: GrpcCode
    ) -> None:
        assert aborted(Assembly(LIMIT, encoding), wire(payload, flag=flag)) is code

    def test_framed(self) -> None:
        assert framed(b"abc") == (b"\0\0\0\0\x03", b"abc")
        prefix, body = framed(b"a" * 100, 50)
        assert prefix[0] == 1
        assert gzip.decompress(body) == b"a" * 100
        assert framed(b"a" * 49, 50)[0][0] == 0


class TestSingleMessage:
    @given(payload=st.binary(max_size=120), draw=st.data())
    def test_any_cut_gives_the_message(self, payload: bytes, draw: st.DataObject) -> None:
        for encoding, sent in (
            (None, wire(payload)),
            (GZIP, wire(gzip.compress(payload), flag=1)),
            (GZIP, wire(payload)),
        ):
            cuts = draw.draw(st.lists(st.integers(0, len(sent) - 1), max_size=8).map(sorted))
            message = SingleMessage(LIMIT, encoding, LIMIT)
            assert not message.is_begun
            for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
                assert not message.is_whole
                message.put(sent[start:end])
                assert message.is_begun == (end > 0)
            assert message.is_whole
            assert message.take() == payload

    def test_pieces_of_all_sizes(self) -> None:
        sizes = [1, 5_000, 2, 3, 4_096, 70_000, 1, 4_095, *[1_000] * 200]
        payload = bytes(number % 251 for number in range(sum(sizes)))
        message = SingleMessage(1 << 20, None, 0)
        message.put(wire(payload)[:5])
        for start, size in zip(accumulate([0, *sizes]), sizes, strict=False):
            message.put(payload[start : start + size])
        assert message.take() == payload

    def test_more_than_one(self) -> None:
        for rest in (wire(b"y"), b"y"):
            with pytest.raises(MessageFault) as raised:
                SingleMessage(LIMIT, None, 0).put(wire(b"x") + rest)
            assert raised.value.code is GrpcCode.UNIMPLEMENTED

    def test_a_compressed_one_has_a_limit_of_its_own(self) -> None:
        for size, limit in ((100, 99), (LIMIT, 1 << 20)):
            message = SingleMessage(LIMIT - 1, GZIP, limit)
            message.put(wire(gzip.compress(bytes(size)), flag=1))
            with pytest.raises(MessageFault) as raised:
                message.take()
            assert raised.value.code is GrpcCode.RESOURCE_EXHAUSTED

    @pytest.mark.parametrize("size", [0, 1, LIMIT, 3 * (256 << 10), (1 << 20) + 1])
    def test_inflating_by_steps(self, size: int) -> None:
        for compress, encoding in ((gzip.compress, GZIP), (zlib.compress, DEFLATE)):
            for payload in (bytes(size), random.Random(size).randbytes(size)):
                grown: list[int] = []
                assert inflate(compress(payload), size, encoding, grown.append) == payload
                assert grown == sorted(grown)
                assert grown[-1] >= size
                if size:
                    with pytest.raises(MessageFault) as raised:
                        inflate(compress(payload), size - 1, encoding)
                    assert raised.value.code is GrpcCode.RESOURCE_EXHAUSTED


METHODS = {b"/s/M": Method.unary(lambda request, call: request)}


def request_head(**changes: str) -> RequestHead:
    fields = {
        ":method": "POST", ":scheme": "http", ":path": "/s/M", "content-type": "application/grpc",
    }  # fmt: skip
    fields |= {name.replace("_", "-"): value for name, value in changes.items()}
    block = encode((name.encode(), value.encode()) for name, value in fields.items() if value)
    found = head_of(Decoder(1 << 16).decode(block)[2])
    assert isinstance(found, RequestHead)
    return found


class TestHead:
    @pytest.mark.parametrize(
        ("text", "ms"),
        [(b"1H", 3_600_000), (b"2M", 120_000), (b"3S", 3_000), (b"3010m", 3_010), (b"1u", 1),
         (b"1n", 1), (b"99999999n", 100), (b"2999871u", 3_000), (b"20000001n", 21), (b"0S", 0),
         (b"99999999H", 99_999_999 * 3_600_000)],
    )  # fmt: skip
    def test_timeouts_are_rounded_up(self, text: bytes, ms: int) -> None:
        other = field(b"x-mq-language", b"GO")
        assert head.timeout_ms_of([other, field(b"grpc-timeout", text)]) == ms
        assert head.timeout_ms_of([other]) is None

    @pytest.mark.parametrize(
        "text",
        [b"", b"1", b"S", b"123456789S", b"123456789n", b"1s", b"1x", b"-1S", b"1.5S", b"1 S",
         b"\xb2S"],
    )  # fmt: skip
    def test_malformed_timeouts(self, text: bytes) -> None:
        assert head.timeout_ms_of([field(b"grpc-timeout", text)]) == head.MALFORMED

    @pytest.mark.parametrize(
        ("content_type", "refused"),
        [("application/grpc", None), ("application/grpc+proto", None),
         ("application/grpc;x=y", None), ("application/grpcx", head.NOT_GRPC),
         ("application/grpc+json", head.NOT_GRPC),
         ("text/html", head.NOT_GRPC), ("", head.NOT_GRPC)],
    )  # fmt: skip
    def test_content_types(self, content_type: str, refused: object) -> None:
        meaning = head.read(request_head(content_type=content_type), METHODS, {})
        assert meaning is refused if refused else isinstance(meaning, head.CallHead)

    def test_other_refusals(self) -> None:
        def read(**changes: str) -> object:
            fields = {(":" + n[1:] if n[0] == "_" else n): v for n, v in changes.items()}
            return head.read(request_head(**fields), METHODS, {b"/plain": b"x"})

        assert read(_method="GET") is head.NOT_POST
        assert read(_path="/s/None") is head.NO_METHOD
        # What tools of ours ask a broker that is alone is no unknown method: it counts as nothing.
        assert read(_path="/latermq.v1.Cluster/DescribeCluster") is head.ALONE
        assert (head.NO_METHOD.why, head.ALONE.why) == ("unknown method", "")
        assert read(grpc_encoding="snappy") is head.NO_ENCODING
        assert read(_path="/plain", _method="GET") == head.Plain(b"x")
        accepted = read(grpc_accept_encoding="identity, gzip", grpc_encoding="gzip")
        assert isinstance(accepted, head.CallHead)
        assert accepted.encoding is GZIP
        assert accepted.accepts_gzip


def test_status_text_is_escaped() -> None:
    assert status.escaped("größer 100%") == b"gr%C3%B6%C3%9Fer 100%25"
    assert status.escaped("a\nb") == b"a%0Ab"
    fields, _, _ = Decoder(1 << 16).decode(status.only(GrpcCode.UNKNOWN, "x"))
    assert [entry[:2] for entry in fields] == [
        (b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"2"),
        (b"grpc-message", b"x"),
    ]  # fmt: skip


def v2(command: int, family: int, body: bytes) -> bytes:
    return struct.pack(">12sBBH", b"\r\n\r\n\0\r\nQUIT\n", command, family, len(body)) + body


V4 = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + struct.pack(">HH", 1_234, 8_081)
V6 = ipaddress.ip_address("2001:db8::1").packed + ipaddress.ip_address("::1").packed
V6 += struct.pack(">HH", 1, 2)


class TestProxyHeader:
    @pytest.mark.parametrize(
        ("data", "source", "destination"),
        [
            (b"PROXY TCP4 10.0.0.1 10.0.0.2 1234 8081\r\n", "10.0.0.1:1234", "10.0.0.2:8081"),
            (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1", "[::1]:2"),
            (b"PROXY UNKNOWN whatever\r\n", "", ""),
            (v2(0x21, 0x11, V4 + b"tlv"), "10.0.0.1:1234", "10.0.0.2:8081"),
            (v2(0x21, 0x21, V6), "[2001:db8::1]:1", "[::1]:2"),
            (v2(0x20, 0x00, b""), "", ""),
        ],
    )
    def test_whole_ones_at_every_cut(self, data: bytes, source: str, destination: str) -> None:
        for length in range(len(data)):
            assert parse(data[:length]) is None
        assert parse(data + b"PRI") == ProxyHeader(len(data), source, destination)

    @pytest.mark.parametrize("data", [b"PRI * HTTP/2.0", b"\x16\x03\x01", b"\r\n\r\nx"])
    def test_no_header(self, data: bytes) -> None:
        assert parse(data) == ProxyHeader(0)

    @pytest.mark.parametrize(
        "data",
        [
            b"PROXY TCP4 10.0.0.1 10.0.0.2 1234\r\n", b"PROXY TCP4 x 10.0.0.2 1 2\r\n",
            b"PROXY TCP4 10.0.0.1 10.0.0.2 1 70000\r\n", b"PROXY " + b"x" * 200,
            v2(0x22, 0x11, V4), v2(0x21, 0x11, V4[:-1]),
        ],
    )  # fmt: skip
    def test_broken_ones(self, data: bytes) -> None:
        with pytest.raises(ProxyError):
            parse(data)

    @given(st.binary(max_size=300))
    def test_anything(self, data: bytes) -> None:
        try:
            parse(b"PROXY " + data)
            parse(b"\r\n\r\n\0\r\nQUIT\n" + data)
        except ProxyError:
            pass

    def test_who_is_trusted(self) -> None:
        networks = trusted_networks("10.0.0.0/8, 127.0.0.1,fd00::/8")
        assert is_trusted("10.1.2.3", networks)
        assert is_trusted("::ffff:127.0.0.1", networks)
        assert not is_trusted("192.0.2.1", networks)
        with pytest.raises(ConfigError):
            trusted_networks("10.0.0.0/99")
