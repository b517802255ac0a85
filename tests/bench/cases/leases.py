"""Deliveries in flight: what holding them costs, in time and in memory."""

import gc
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.cases.engine import GROUP, NOW_MS, TOPIC, engine, outgoing, rate, timed
from bench.measured import LOWER, Group, Result, repeated
from latermq_broker.delivery.leases.lease import Event
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.shared import DeliveryKey, Holder
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import ReceiveRequest

IN_FLIGHT: Final = 20_000
LEASE_MS: Final = 60_000
#  Of the prototype that decided for columns: bare arrays, without states, clients or attempts.
PROTOTYPE_PER_SECOND: Final = {32: "1.11 M", 1: "0.27 M"}
PROTOTYPE_BYTES: Final = {32: "1.6", 1: "34"}


def lend_and_end(count: int, batch: int) -> dict[str, float]:
    """The state machine and its table of rows alone: the oldest of many in flight end."""
    leases = Leases()
    place, holder = DeliveryKey(1, 1, 0), Holder(64, "bench", False)
    positions, lengths = [4_096] * batch, [1_200] * batch
    in_flight: deque[Sequence[int]] = deque()

    def lend(now_ms: int) -> None:
        first = leases.next_id
        ids = range(first, first + batch)
        leases.lend_new(first, [place] * batch, ids, positions, lengths, holder, now_ms, LEASE_MS)
        in_flight.append(ids)

    def work() -> None:
        for step in range(count // batch):
            lend(NOW_MS + step // 16)
            ids = in_flight.popleft()
            if leases.finish(ids, Event.ACK) is None:
                for id in ids:
                    leases.finish((id,), Event.ACK)

    for _ in range(IN_FLIGHT // batch):
        lend(NOW_MS)
    figures = timed(count // batch * batch, work)
    assert len(leases.deliveries) == IN_FLIGHT // batch * batch
    return figures


def receive_ack(count: int, batch: int) -> dict[str, float]:
    """The whole core: a receive, and the acknowledgement of what was received long ago."""
    request = _request(batch)
    in_flight: deque[list[str]] = deque()
    with engine() as core:
        _send(core, IN_FLIGHT + count + batch)

        def receive() -> None:
            in_flight.append([one.handle for one in core.receive(request, NOW_MS)])
            core.write()

        def work() -> None:
            for _ in range(count // batch):
                receive()
                core.ack(GROUP, in_flight.popleft(), NOW_MS)
                core.write()

        for _ in range(IN_FLIGHT // batch):
            receive()
        figures = timed(count // batch * batch, work)
        assert all(len(handles) == batch for handles in in_flight)
        return figures


def held_bytes(count: int, batch: int) -> dict[str, float]:
    """What the process grows by for each message that is leased."""
    request = _request(batch)
    with engine() as core:
        _send(core, count + batch)
        core.receive(request, NOW_MS)
        core.write()
        before = anonymous_bytes()
        held = 0
        for step in range(count // batch):
            held += len(core.receive(request, NOW_MS + step // 16))
            if step % 16 == 0:
                core.write()
        core.write()
        return {"bytes": (anonymous_bytes() - before) / held}


def anonymous_bytes() -> int:
    """Of this process, that no file is behind, and that somebody still needs."""
    gc.collect()
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the system does not tell")


def _request(batch: int) -> ReceiveRequest:
    return ReceiveRequest(
        group=GROUP, topic=TOPIC, client_id="bench", count_max=batch, invisible_ms=LEASE_MS
    )


def _send(core: Engine, count: int) -> None:
    messages = [outgoing(100)] * 100
    for _ in range(-(-count // 100)):
        core.send(messages, NOW_MS)
        core.write()


def _bytes(case: str, what: str, measure: Callable[[], Mapping[str, float]]) -> Iterator[Result]:
    runs = repeated(1, measure)["bytes"]
    yield Result(
        case=case, what=what, unit="bytes", better=LOWER, runs=runs,
        bound="< 100", holds=max(runs) < 100,
    )  # fmt: skip


def _rate(
    case: str, what: str, runs: int, measure: Callable[[], Mapping[str, float]]
) -> Iterator[Result]:
    yield rate(case, what, runs, measure)


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    count, runs, held = (100_000, 5, 1_000_000) if full else (20_000, 3, 100_000)
    for batch in (32, 1):
        at_a_time = f"{IN_FLIGHT:,} in flight, {batch} at a time"
        prototype = f"prototype: {PROTOTYPE_PER_SECOND[batch]}"
        case = f"leases_{batch}"
        what = f"leases alone: lend and end, {at_a_time} ({prototype})"
        yield (case,), partial(_rate, case, what, runs, partial(lend_and_end, count, batch))
        case = f"engine_in_flight_{batch}"
        what = f"core: receive and acknowledge, {at_a_time}"
        yield (case,), partial(_rate, case, what, runs, partial(receive_ack, count, batch))
        case = f"held_bytes_{batch}"
        prototype = f"prototype: {PROTOTYPE_BYTES[batch]}"
        what = f"memory of a message in flight, {held:,} leased {batch} at a time ({prototype})"
        yield (case,), partial(_bytes, case, what, partial(held_bytes, held, batch))
