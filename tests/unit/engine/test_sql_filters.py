"""Receiving through SQL filters: properties are read, within bounds, for retries too."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.config.core_bounds import ScanBounds
from latermq_broker.delivery.filters.sql_filter import sql_filter
from latermq_broker.engine.receive import entry_filter
from latermq_broker.engine.state.model import Delivered, Outgoing, ReceiveRequest
from support.engine_rig import EngineRig


def entry(name: str, value: str) -> bytes:
    pair = b"\x0a" + bytes([len(name)]) + name.encode()
    pair += b"\x12" + bytes([len(value)]) + value.encode()
    return b"\x12" + bytes([len(pair)]) + pair


class SqlRig(EngineRig):
    def send_with(self, name: str, tag: str = "", **properties: str) -> None:
        tagged = b"\x0a" + bytes([len(tag)]) + tag.encode() if tag else b""
        message = Outgoing(
            topic="orders",
            rest=b"".join(entry(*pair) for pair in properties.items()),
            sys=tagged + b"\x1a" + bytes([len(name)]) + name.encode(),
            message_id=name,
            tag=tag,
        )
        self.engine.send([message], self.now_ms)
        self.engine.write()

    def take(self, expression: str, *, count: int = 32, group: str = "billing") -> list[Delivered]:
        request = ReceiveRequest(
            group=group,
            topic="orders",
            client_id="client-1",
            count_max=count,
            invisible_ms=1_000,
            filter=sql_filter(expression),
        )
        delivered = self.engine.receive(request, self.now_ms)
        self.engine.write()
        return delivered

    def offsets(self, expression: str, *, group: str = "billing") -> list[int]:
        return [one.queue_offset for one in self.take(expression, group=group)]


def test_properties_and_the_tag_decide() -> None:
    rig = SqlRig()
    for n in range(10):
        rig.send_with(f"m{n}", tag="even" if n % 2 == 0 else "", price=str(n), TAGS="x")
    assert rig.offsets("price > 5", group="g1") == [6, 7, 8, 9]
    assert rig.offsets("TAGS = 'even' AND price < 4", group="g2") == [0, 2]
    assert rig.offsets("TAGS IS NULL AND price BETWEEN 2 AND 6", group="g3") == [3, 5]
    assert rig.offsets("price > 99", group="g4") == []
    assert rig.offsets("TRUE", group="g4") == []  # passed over is consumed
    assert rig.offsets("TRUE", group="g5") == list(range(10))


def test_retries_are_filtered_too_and_wait_for_one_who_wants_them() -> None:
    rig = SqlRig()
    rig.send_with("m0", price="1")
    rig.send_with("m1", price="2")
    assert len(rig.take("TRUE")) == 2
    rig.advance(1_000)
    assert rig.offsets("price = 2") == [1]
    assert rig.offsets("price = 2") == []
    assert rig.offsets("price = 1") == [0]


def test_a_restart_and_a_checkpoint_keep_what_was_passed_over() -> None:
    rig = SqlRig()
    for n in range(20):
        rig.send_with(f"m{n}", price=str(n))
    assert rig.offsets("price = 3") == [3]
    rig.checkpoint()
    rig.crash()
    assert rig.offsets("price >= 0") == []
    rig.send_with("m20", price="20")
    assert rig.offsets("price >= 0") == [20]


@pytest.mark.parametrize(
    ("limit", "value"), [("filter_reads_max", 8), ("filter_read_bytes_max", 1_000)]
)
def test_a_receive_looks_at_a_bounded_part_and_asks_to_go_on(limit: str, value: int) -> None:
    bounds = ScanBounds(**{limit: value})
    rig = SqlRig(delivery=DeliveryConfig(bounds=bounds))
    for n in range(100):
        rig.send_with(f"m{n}", price=str(n))
    rig.engine.take_ready()
    found: list[int] = []
    receives = 0
    while not found:
        receives += 1
        found = rig.offsets("price = 77")
        assert found or ("billing", "orders") in rig.engine.take_ready().pairs
    assert found == [77]
    assert 5 < receives < 40


def test_the_retry_lane_is_looked_through_in_slices() -> None:
    rig = SqlRig(delivery=DeliveryConfig(bounds=ScanBounds(filter_reads_max=8)))
    for n in range(60):
        rig.send_with(f"m{n}", price=str(n))
    for _ in range(10):
        rig.take("TRUE")
    rig.advance(1_000)
    found: list[int] = []
    for _ in range(30):
        found = found or rig.offsets("price = 55")
    assert found == [55]


def test_an_ordered_group_filters_too_within_the_same_bounds() -> None:
    rig = SqlRig(delivery=DeliveryConfig(bounds=ScanBounds(filter_reads_max=8)))
    rig.engine.groups.create("billing", fifo=True, max_attempts=3, backoff=None, now_ms=rig.now_ms)
    for n in range(60):
        rig.send_with(f"m{n}", price=str(n), order=f"g{n % 3}")
    found: list[int] = []
    for _ in range(40):
        found += rig.offsets("price > 50")
    assert sorted(found) == list(range(51, 60))


def test_many_verdicts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_filter, "VERDICTS_MAX", 10)
    rig = SqlRig()
    for n in range(50):
        rig.send_with(f"m{n}", price=str(n))
    assert rig.offsets("price = 49") == [49]
    assert len(rig.engine._lanes._filters._verdicts) == 10
