"""HPACK against RFC 7541's own examples and against the `hpack` package, block by block."""

import random
import tracemalloc
import uuid
from collections.abc import Iterator

import hpack
import hpack.exceptions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_h2.hpack import encoder, huffman
from latermq_h2.hpack.decoder import STRIDE_BYTES, Decoder, HpackError, TooManyFieldsError
from latermq_h2.hpack.encoder import encode, integer, literal
from latermq_h2.hpack.fields import (
    CODED,
    INVALID,
    MISORDERED,
    PSEUDO,
    REGULAR,
    SEMANTIC,
    TIMEOUT,
    value_of,
)
from latermq_h2.hpack.tables import STATIC

LIST_BYTES_MAX = 1 << 20
Pairs = list[tuple[bytes, bytes]]


def pairs(decoder: Decoder, block: bytes) -> Pairs:
    fields = decoder.decode(block)[0]
    assert all(entry.size == len(entry.name) + len(value_of(entry)) + 32 for entry in fields)
    return [(entry.name, value_of(entry)) for entry in fields]


def oracle() -> hpack.Decoder:
    return hpack.Decoder(max_header_list_size=LIST_BYTES_MAX)


def oracle_pairs(decoder: hpack.Decoder, block: bytes) -> Pairs:
    return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]


class TestAppendixC:
    REQUESTS: tuple[Pairs, ...] = (
        [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"),
         (b":authority", b"www.example.com")],
        [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"),
         (b":authority", b"www.example.com"), (b"cache-control", b"no-cache")],
        [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/index.html"),
         (b":authority", b"www.example.com"), (b"custom-key", b"custom-value")],
    )  # fmt: skip

    @pytest.mark.parametrize(
        "blocks",
        [
            ("828684410f7777772e6578616d706c652e636f6d", "828684be58086e6f2d6361636865",
             "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565"),
            ("828684418cf1e3c2e5f23a6ba0ab90f4ff", "828684be5886a8eb10649cbf",
             "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"),
        ],
        ids=["C.3 plain", "C.4 Huffman"],
    )  # fmt: skip
    def test_three_requests(self, blocks: tuple[str, ...]) -> None:
        decoder = Decoder(LIST_BYTES_MAX)
        for block, request in zip(blocks, self.REQUESTS, strict=True):
            assert pairs(decoder, bytes.fromhex(block)) == request

    def test_responses_with_eviction(self) -> None:
        """C.6: a table of 256 bytes."""
        decoder = Decoder(LIST_BYTES_MAX, 256)
        first = pairs(decoder, bytes.fromhex(
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863"
            "c78f0b97c8e9ae82ae43d3"
        ))  # fmt: skip
        assert first[0] == (b":status", b"302")
        second = pairs(decoder, bytes.fromhex("4883640effc1c0bf"))
        assert second == [(b":status", b"307"), *first[1:]]
        third = pairs(decoder, bytes.fromhex(
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b3"
            "35dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
        ))  # fmt: skip
        assert third[-1] == (
            b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
        )  # fmt: skip

    def test_integers(self) -> None:
        """C.1, and what the decoder makes of them."""
        assert integer(10, 5).hex() == "0a"
        assert integer(1337, 5).hex() == "1f9a0a"
        assert integer(42, 8).hex() == "2a"


def in_huffman(text: bytes) -> bytes:
    """Write a string of a block, of less than 127 bytes."""
    coded: bytes = hpack.Encoder().huffman_coder.encode(text)
    return bytes([0x80 | len(coded)]) + coded


def length_of(text: bytes) -> int:
    """Return what measuring says of it."""
    return -1 - len(text) if any(each in text for each in b"\0\n\r") else len(text)


def measured(data: bytes) -> int | None:
    """Return None of what cannot be decoded."""
    try:
        return huffman.measure(data)
    except huffman.HuffmanError:
        return None


class TestHuffman:
    @given(st.binary(max_size=200))
    def test_any_text_comes_back(self, text: bytes) -> None:
        encoded = hpack.Encoder().huffman_coder.encode(text)
        assert huffman.decode(encoded) == text

    @given(st.binary(max_size=24))
    def test_any_bytes_as_the_oracle_says(self, data: bytes) -> None:
        from hpack.huffman_table import decode_huffman

        try:
            expected: bytes | None = bytes(decode_huffman(data))
        except hpack.exceptions.HPACKDecodingError:
            expected = None
        try:
            found: bytes | None = huffman.decode(data)
        except huffman.HuffmanError:
            found = None
        assert found == expected
        assert measured(data) == (None if expected is None else length_of(expected))

    @given(st.binary(max_size=200))
    def test_any_text_is_measured(self, text: bytes) -> None:
        assert measured(hpack.Encoder().huffman_coder.encode(text)) == length_of(text)

    def test_padding(self) -> None:
        for refused in (b"\xff", b"\x1f\xff", b"\x18", b"\xff" * 4):
            with pytest.raises(huffman.HuffmanError):
                huffman.decode(refused)
            assert measured(refused) is None
        assert huffman.decode(b"\x1f") == b"a"


class TestRefused:
    @pytest.mark.parametrize(
        ("block", "why"),
        [
            ("80", "index 0"),
            ("be", "index 62 is past"),
            ("ffffffffff0f", "integer"),
            ("ff80808080808000", "integer"),
            ("7f", "ends inside"),
            ("0005", "runs past"),
            ("00", "ends inside"),
            ("000161", "ends inside"),
            ("0001610362", "runs past"),
            ("008118", "wrong padding"),
            ("3fe21f", "beyond our setting"),
            ("8220", "inside a block"),
        ],
    )
    def test_with_a_reason(self, block: str, why: str) -> None:
        with pytest.raises(HpackError, match=why):
            Decoder(LIST_BYTES_MAX).decode(bytes.fromhex(block))

    def test_every_cut_of_a_block(self) -> None:
        block = hpack.Encoder().encode([(":path", "/a/b"), ("x-name", "värde")])
        for length in range(1, len(block)):
            try:
                found = pairs(Decoder(LIST_BYTES_MAX), block[:length])
            except HpackError:
                continue
            assert len(found) < 2


class TestTable:
    def test_an_entry_larger_than_the_table_empties_it(self) -> None:
        decoder = Decoder(LIST_BYTES_MAX)
        assert pairs(decoder, bytes.fromhex("4001610162"))
        assert pairs(decoder, b"\xbe") == [(b"a", b"b")]
        decoder.decode(b"\x40" + integer(1, 7) + b"n" + integer(5_000, 7) + b"v" * 5_000)
        with pytest.raises(HpackError):
            decoder.decode(b"\xbe")

    def test_a_resize_evicts_and_a_later_one_does_not_bring_back(self) -> None:
        decoder = Decoder(LIST_BYTES_MAX)
        decoder.decode(bytes.fromhex("4001610162"))
        decoder.decode(bytes.fromhex("20"))
        decoder.decode(bytes.fromhex("3fe11f"))
        with pytest.raises(HpackError):
            decoder.decode(b"\xbe")

    def test_a_bomb_shares_its_entry_and_ends_at_the_limit(self) -> None:
        decoder = Decoder(16_384)
        decoder.decode(b"\x40\x01n" + integer(4_000, 7) + b"v" * 4_000)
        fields, size, _ = decoder.decode(b"\xbe" * 15_000)
        assert len(fields) == 4
        assert size == 15_000 * 4_033
        assert all(entry is fields[0] for entry in fields)
        assert pairs(decoder, b"\xbe")[0][0] == b"n"


class TestKinds:
    @pytest.mark.parametrize(
        ("name", "value", "kind"),
        [
            (b":path", b"/", PSEUDO), (b":nothing", b"", INVALID), (b"te", b"x", SEMANTIC),
            (b"x-mq", b"v", REGULAR), (b"X-mq", b"v", INVALID), (b"", b"v", INVALID),
            (b"connection", b"close", INVALID), (b"x", b"a\0b", INVALID), (b"x", b" a", REGULAR),
            (b"x", b"a\nb", INVALID), (b"x", b"a\rb", INVALID), (b"x", b"", REGULAR),
            (b"grpc-timeout", b"3S", TIMEOUT), (b"grpc-timeout", b"3\n", INVALID),
        ],
    )  # fmt: skip
    def test_classified_once(self, name: bytes, value: bytes, kind: int) -> None:
        assert Decoder(LIST_BYTES_MAX).decode(literal(name, value))[0][0][3] == kind
        block = b"\0" + in_huffman(name) + in_huffman(value)
        (entry,), _, _ = Decoder(LIST_BYTES_MAX).decode(block)
        assert entry.kind == (CODED if kind == REGULAR else kind)
        assert (entry.name, value_of(entry)) == (name, value)

    def test_a_long_value_is_decoded_once_however_often_it_is_read(self) -> None:
        """One byte of a call names an entry of the table."""
        coded = hpack.Encoder().huffman_coder.encode(b"\xff" * 1_000)
        block = b"\x40" + literal(b"x", b"")[1:-1] + integer(len(coded), 7, 0x80) + coded
        decoder = Decoder(LIST_BYTES_MAX)
        assert [entry.kind for entry in decoder.decode(block + b"\xbe")[0]] == [REGULAR] * 2

    def test_a_pseudo_field_after_a_regular_one_shows_in_the_gist(self) -> None:
        block = literal(b"x", b"y") + literal(b":path", b"/")
        assert Decoder(LIST_BYTES_MAX).decode(block)[2].fields == (MISORDERED,)

    def test_the_gist_keeps_the_order(self) -> None:
        block = encode([(b":path", b"/"), (b"x", b"y"), (b"te", b"trailers")])
        names = [entry[0] for entry in Decoder(LIST_BYTES_MAX).decode(block)[2].fields]
        assert names == [b":path", b"te"]

    def test_calls_that_differ_in_their_timeout_have_one_gist(self) -> None:
        decoder = Decoder(LIST_BYTES_MAX)
        gists = [
            decoder.decode(encode([(b":path", b"/"), (b"grpc-timeout", timeout)]))[2]
            for timeout in (b"2999871u", b"2999874u")
        ]
        assert gists[0] is gists[1]


class TestEncoder:
    @given(st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=300))))
    def test_the_oracle_reads_it(self, fields: Pairs) -> None:
        assert oracle_pairs(oracle(), encode(fields)) == fields

    def test_a_known_status_is_one_byte(self) -> None:
        assert encoder.encode([(b":status", b"200")]) == b"\x88"
        assert oracle_pairs(oracle(), encode([(b":status", b"415")])) == [(b":status", b"415")]

    def test_static_table_as_the_oracle_has_it(self) -> None:
        from hpack.table import HeaderTable

        mine = [entry[:2] for entry in STATIC if entry]
        assert mine == [tuple(entry) for entry in HeaderTable.STATIC_TABLE]


def client_like(seed: int, count: int) -> Iterator[bytes]:
    """Blocks as official clients send them: constant, grpc-core, Netty and Go habits, mixed."""
    rng = random.Random(seed)
    peer = hpack.Encoder()
    style = rng.choice(["core", "netty", "go", "mixed"])
    core = [
        (b":scheme", b"http"), (b":method", b"POST"), (b":authority", b"h:1"), (b":path", b"/s/M"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    ]  # fmt: skip
    second = 0
    for number in range(count):
        habit = rng.choice(["core", "netty", "go"]) if style == "mixed" else style
        second += rng.random() < 0.1
        changing = [
            (b"x-mq-client-id", b"host@1"), (b"x-mq-language", b"PYTHON"),
            (b"x-mq-request-id", uuid.UUID(int=rng.getrandbits(128)).hex.encode()),
            (b"x-mq-date-time", b"2026%d" % second), (b"authorization", b"sig" * 20),
        ]  # fmt: skip
        if habit == "core":
            timeout = (b"grpc-timeout", rng.choice([b"3S", b"3010m"]))
            block = peer.encode([*core, timeout], huffman=False)
            block += b"".join(literal(name, value) for name, value in changing)
        else:
            block = peer.encode([*core, *changing], huffman=habit == "go")
        if number % 97 == 96:
            peer.header_table_size = rng.choice([0, 100, 4_096])
        yield block


class TestAgainstTheOracle:
    @pytest.mark.parametrize("seed", range(24))
    def test_connections_of_clients(self, seed: int) -> None:
        mine, theirs = Decoder(LIST_BYTES_MAX), oracle()
        for block in client_like(seed, 200):
            assert pairs(mine, block) == oracle_pairs(theirs, block)

    @pytest.mark.parametrize("seed", range(60))
    def test_mutated_blocks(self, seed: int) -> None:
        """Each connection ends at its first refused block; both must refuse the same one."""
        rng = random.Random(seed)
        for round_number in range(20):
            mine, theirs = Decoder(LIST_BYTES_MAX), oracle()
            for number, block in enumerate(client_like(seed * 100 + round_number, 40)):
                mutated = mutate(block, rng) if number > 4 and rng.random() < 0.4 else block
                expected = attempt_oracle(theirs, mutated)
                found = attempt(mine, mutated)
                assert found == expected, (seed, mutated.hex())
                if found is None:
                    break

    def test_a_string_over_the_assumed_boundary(self) -> None:
        """The varying literal's length reaches into the closing, which is still there whole."""
        decoder, reference = Decoder(LIST_BYTES_MAX), oracle()
        head = encode([(b":path", b"/"), (b"a", b"b")])
        closing = literal(b"x-b", b"12345")
        for value in (b"first", b"other", b"third", b"fourth"):
            block = head + literal(b"x-id", value) + closing
            assert pairs(decoder, block) == oracle_pairs(reference, block)
        inside = literal(b"x-id", b"seven77" + closing[:3]) + closing[3:]
        for block in (head + inside, head + literal(b"x-id", b"five5") + closing):
            expected = attempt_oracle(reference, block)
            assert attempt(decoder, block) == expected


def attempt(decoder: Decoder, block: bytes) -> Pairs | None:
    try:
        return pairs(decoder, block)
    except HpackError:
        return None


def attempt_oracle(decoder: hpack.Decoder, block: bytes) -> Pairs | None:
    try:
        return oracle_pairs(decoder, block)
    except hpack.exceptions.HPACKError:
        return None


def mutate(block: bytes, rng: random.Random) -> bytes:
    data = bytearray(block)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at] = rng.randrange(256)
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            case 3:
                del data[at : at + rng.randint(1, 4)]
            case _:
                source = rng.randrange(len(data)) if data else 0
                data[at:at] = data[source : source + rng.randint(1, 12)]
    return bytes(data)


class TestWork:
    """What blocks take is counted, and little for fields that are known."""

    FIRST = b"\x83\x86\x44\x04/s/M\x41\x01h\x40\x02te\x08trailers\x5f\x10application/grpc"
    LATER = b"\x83\x86\xc1\xc0\xbf\xbe"

    def test_literals_that_are_known_take_none(self) -> None:
        more = b"".join(literal(b"x-%d" % number, b"z") for number in range(5))
        decoder = Decoder(16_384, fields_max=128)
        for number in range(1_000):
            block = literal(b"x-id", b"%032x" % number) + more
            decoder.decode((self.LATER if number else self.FIRST) + block)
            if not number:
                decoder.work = 0
        assert decoder.work < 5 * 999  # of each block its length, its number of fields, one literal

    def test_new_fields_and_bytes_are_work(self) -> None:
        decoder = Decoder(16_384, fields_max=128)
        few = b"".join(literal(b"a-%d" % number, b"v") for number in range(10))
        decoder.decode(few)
        assert 10 <= decoder.work <= 15
        decoder.work = 0
        decoder.decode(literal(b"long", b"v" * 6_400))
        assert 100 <= decoder.work <= 110

    @pytest.mark.parametrize("count", [128, 129, 512])
    def test_more_fields_than_may_be_make_the_list_too_large(self, count: int) -> None:
        decoder = Decoder(1 << 20, fields_max=128)
        block = b"".join(b"\x40" + literal(b"a%d" % n, b"v")[1:] for n in range(count))
        _, size, _ = decoder.decode(block)
        assert (size > 1 << 20) is (count > 128)
        assert decoder.decode(b"\xbe")[0][0][0] == b"a%d" % (count - 1)  # the table is right

    def test_far_more_are_not_read(self) -> None:
        for block in (
            b"".join(literal(b"a%d" % number, b"v") for number in range(513)),
            b"\x82" * (STRIDE_BYTES + 1),
            b"\x20" * 513,
        ):
            with pytest.raises(TooManyFieldsError):
                Decoder(1 << 20, fields_max=128).decode(block)

    def test_what_is_remembered_is_bounded_in_bytes(self) -> None:
        """Blocks that stay, and their heads: not 64 of whatever size."""
        decoder = Decoder(16_384)
        tracemalloc.start()
        try:
            for number in range(200):
                path = literal(b":path", b"%d" % number + b"p" * 5_000)
                decoder.decode(path + literal(b"x", b"%d" % number + b"v" * 5_000))
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 256 << 10
