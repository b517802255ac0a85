"""The one decoder of bodies: the whole stream within the bound, or damaged."""

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_cli.terminal.bodies import body_lines
from latermq_console.drawing.bodies import SHOWN_BYTES_MAX, body_of
from latermq_text.bodies import DamagedBodyError, unpacked

TEXTS = st.binary(max_size=200)


@given(TEXTS, st.booleans())
def test_what_was_packed_comes_out(text: bytes, plain_zlib: bool) -> None:
    packed = zlib.compress(text) if plain_zlib else gzip.compress(text)
    assert unpacked(packed, "gzip") == text
    assert unpacked(packed, "identity") == packed
    assert unpacked(packed, "") == packed


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(0, 40))
def test_all_members_of_a_gzip_body_count(texts: list[bytes], zeros: int) -> None:
    packed = b"".join(map(gzip.compress, texts)) + bytes(zeros)
    assert unpacked(packed, "gzip") == b"".join(texts)


@given(TEXTS, st.sampled_from((gzip.compress, zlib.compress)), st.data())
def test_every_cut_and_every_addition_is_damage(
    text: bytes, pack: object, data: st.DataObject
) -> None:
    packed: bytes = pack(text)  # type: ignore[operator]
    cut = data.draw(st.integers(0, len(packed) - 1))
    for body in (packed[:cut], packed + b"\x01", packed + b"\x1f\x8b", packed + b"\0\x01"):
        with pytest.raises(DamagedBodyError):
            unpacked(body, "gzip")


def test_the_bound_holds_over_all_members() -> None:
    packed = gzip.compress(b"x" * 60) + gzip.compress(b"y" * 40)
    assert len(unpacked(packed, "gzip", 100)) == 100
    with pytest.raises(DamagedBodyError, match="more than is allowed"):
        unpacked(packed, "gzip", 99)
    with pytest.raises(DamagedBodyError, match="more than is allowed"):
        unpacked(zlib.compress(bytes(1 << 20)), "gzip", 1 << 10)


def test_many_small_members_take_no_square_of_time() -> None:
    assert unpacked(gzip.compress(b"", 1) * 20_000, "gzip") == b""


def test_a_terminal_is_told_of_damage() -> None:
    damaged, preview = body_lines(b"no gzip", "gzip", 80)
    assert damaged.startswith("damaged: the body cannot be unpacked")
    assert preview.startswith("7 bytes, not text")


@pytest.mark.parametrize("character", ["x", "本", "a\u0301", "\t", "\x1b", "[", " "])
def test_only_what_is_shown_is_laid_out(character: str) -> None:
    body = (character * (1 << 20)).encode()
    lines = body_lines(body, "", 78, size="1 byte", lines_max=6)
    assert lines[0] == "1 byte"
    assert lines[-1] == "… --body shows the rest"
    assert len(lines) <= 8
    assert sum(map(len, lines)) < 10_000


def test_one_long_word_is_laid_out_once() -> None:
    lines = body_lines(("本" * 300_000 + "x" * 300_000).encode(), "", 78)
    assert len(lines) == 300_000 // 39 + 300_000 // 78 + 1
    assert "".join(lines) == "本" * 300_000 + "x" * 300_000


def test_nested_json_of_a_page_is_bounded() -> None:
    deep = "[" * 900 + ",".join(itertools.repeat("1", 30_000)) + "]" * 900
    shown = body_of(deep.encode(), "")
    assert shown.kind == "json"
    assert shown.cut
    assert len(shown.text) <= SHOWN_BYTES_MAX


def test_a_page_is_told_of_damage() -> None:
    shown = body_of(gzip.compress(b"order 17")[:-3], "gzip")
    assert shown.kind == "hex"
    assert shown.damage == "the body cannot be unpacked: it is cut short"


def test_who_shows_a_part_says_where_the_rest_is() -> None:
    assert body_lines(b"a\n" * 9, "", 78, lines_max=2, more="x has it") == ["a", "a", "… x has it"]
