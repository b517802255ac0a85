import pytest

from latermq_broker.delivery.receipt_handle import ReceiptHandles

SECRET = bytes(range(16))
GOLDEN = "0100000000000000020000009a777525db4593a1"  # delivery 1, generation 2; never changes


def test_golden() -> None:
    assert ReceiptHandles(SECRET).encode(1, 2) == GOLDEN
    assert ReceiptHandles(SECRET).decode(GOLDEN) == (1, 2)


def test_a_handle_of_another_log_is_not_ours() -> None:
    assert ReceiptHandles(b"another secret..").decode(GOLDEN) is None


@pytest.mark.parametrize("index", range(len(GOLDEN)))
def test_any_digit_changed_is_refused(index: int) -> None:
    digit = "0" if GOLDEN[index] != "0" else "1"
    changed = GOLDEN[:index] + digit + GOLDEN[index + 1 :]
    assert ReceiptHandles(SECRET).decode(changed) is None


@pytest.mark.parametrize(
    "junk", ["", "x", GOLDEN[:-1], GOLDEN + "0", "z" * 40, " " * 40, "é" * 40, GOLDEN[:-2] + "  "]
)
def test_junk_is_refused(junk: str) -> None:
    assert ReceiptHandles(SECRET).decode(junk) is None
