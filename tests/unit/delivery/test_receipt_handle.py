import pytest

from latermq_broker.delivery.leases.receipt_handle import DIGESTS_MAX, NO_DELIVERY, ReceiptHandles

SECRET = bytes(range(16))
#  Delivery 1, generation 2; never change.
GOLDEN = "010000000000000002000000ed3f94409bf09abb"
GOLDEN_ALONE = "0100000000000000020000009a777525db4593a1"  # given out before macs came in blocks


def test_golden() -> None:
    assert ReceiptHandles(SECRET).encode(1, 2) == GOLDEN
    assert ReceiptHandles(SECRET).decode(GOLDEN) == (1, 2)
    assert ReceiptHandles(SECRET).decode(GOLDEN_ALONE) == (1, 2)


@pytest.mark.parametrize(
    "named",
    [
        [(id, 1) for id in range(5, 37)],
        [(id, 1 + id % 2) for id in range(5, 37)],
        [(7, 1), (9, 1), (8, 1), (10, 1)],
        [(7, 1), (7, 1)],
        [((1 << 64) - 1, (1 << 32) - 1)],
        [(8 * block + block % 8 + 1, 1 + block % 3) for block in range(3 * DIGESTS_MAX)],
    ],
)
def test_several_are_each_as_if_alone(named: list[tuple[int, int]]) -> None:
    handles = ReceiptHandles(SECRET)
    encoded = [handles.encode(*one) for one in named]
    assert encoded == [ReceiptHandles(SECRET).encode(*one) for one in named]
    assert len(set(encoded)) == len(set(named))
    assert [handles.decode(handle) for handle in encoded] == named
    assert len(handles._digests) <= DIGESTS_MAX


def test_what_is_no_handle_among_others() -> None:
    handles = ReceiptHandles(SECRET)
    first, second = handles.encode(1, 1), handles.encode(2, 1)
    others = ["", first[:-1], first + "0", second[:-1] + " ", "é", first.replace("1", "2", 1)]
    found = [handles.decode(handle) for handle in (first, *others, GOLDEN_ALONE, second)]
    assert found == [(1, 1), *[NO_DELIVERY] * len(others), (1, 2), (2, 1)]


def test_a_handle_of_another_log_is_not_ours() -> None:
    assert ReceiptHandles(b"another secret..").decode(GOLDEN) == NO_DELIVERY


@pytest.mark.parametrize("index", range(len(GOLDEN)))
def test_any_digit_changed_is_refused(index: int) -> None:
    digit = "0" if GOLDEN[index] != "0" else "1"
    changed = GOLDEN[:index] + digit + GOLDEN[index + 1 :]
    assert ReceiptHandles(SECRET).decode(changed) == NO_DELIVERY


@pytest.mark.parametrize(
    "junk", ["", "x", GOLDEN[:-1], GOLDEN + "0", "z" * 40, " " * 40, "é" * 40, GOLDEN[:-2] + "  "]
)
def test_junk_is_refused(junk: str) -> None:
    assert ReceiptHandles(SECRET).decode(junk) == NO_DELIVERY
