"""The worker against a broker of leases: handlers of every kind, ends, limits, cuts, standstills.

Each example is a history by its seed: messages, listeners, faults on the way to the broker, a first
life that ends somewhere and a second one without faults. Held against it: every lease ends once, as
its call says or by running out; nothing is begun whose lease is over; nothing stays in hand; each
message is done or dead in the end; a failure, and a lost lease, are told once.

    python -m property.test_worker_model FIRST_SEED COUNT
"""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from latermq import App, Delivery
from latermq._values.endpoints import Endpoints
from latermq.client import Client
from latermq.push_consumer import PushConsumer
from support.lease_broker import LeaseBroker
from support.virtual_loop import VirtualLoop, run_virtually

ACTS: Final = (
    "return", "return", "raise", "hang", "swallow", "wrap", "finally", "block", "extend", "short",
    "beats", "ack", "retry_in", "nack", "dead_letter", "ack and raise", "exit", "cancels itself",
)  # fmt: skip
BY_HAND: Final = {"ack": "ack", "retry_in": "nack", "nack": "nack", "dead_letter": "forward"}
END_S_MAX: Final = 1_000.0


class DbError(Exception):
    pass


class Call(NamedTuple):
    """A call of the listener that is over, and how: by itself, by the end, or by its limit."""

    handle: str
    act: str
    came: str  # "returned" or "raised"
    by: str


class Told(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record)


class History:
    """One seed's."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.seed = seed
        faulty = random.choice((0.0, 0.05, 0.3))
        self.broker = LeaseBroker(
            random=Random(seed + 1), fifo=random.random() < 0.25, faulty=faulty
        )
        self.broker.backoff.customized_backoff.next.add().FromSeconds(random.choice((1, 5)))
        self.broker.backoff.max_attempts = self.broker.max_attempts
        self.limit = random.choice((None, timedelta(seconds=2)))
        self.lease_max = random.choice((None, None, timedelta(seconds=20)))
        self.batch = random.choice((None, None, 3))
        self.concurrency = random.randint(1, 4)
        self.stood_still = self.was_cut = False
        self.short = False  # some extension ends before its call
        self.calls: list[Call] = []
        self.begun: Counter[str] = Counter()
        self.final = False
        self.consumers: list[PushConsumer] = []
        self.problems: list[str] = []
        for number in range(random.randint(1, 8)):
            self.broker.send(b"%d" % number, random.choice(("a", "b")))

    def act_of(self, delivery: Delivery) -> str:
        if self.final:
            return "return"
        return Random(f"{self.seed}/{delivery._handle}").choice(ACTS)

    def life(self, app: App) -> None:
        about: dict[str, Any] = {
            "group": "billing", "concurrency": self.concurrency, "timeout": self.limit,
            "lease_max": self.lease_max, "cached_count_max": self.random.choice((1, 4, 100)),
        }  # fmt: skip
        if self.batch is None:

            @app.listener("orders", **about)  # type: ignore[untyped-decorator]
            async def one(delivery: Delivery) -> None:
                await self.called([delivery])
        else:

            @app.listener("orders", batch=self.batch, batch_wait="100ms", **about)
            async def several(deliveries: list[Delivery]) -> None:
                await self.called(deliveries)

    async def called(self, deliveries: list[Delivery]) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for each in deliveries:
            self.begun[each._handle] += 1
            if self.begun[each._handle] > 1:
                self.problems.append(f"{each._handle} was begun twice")
            if not self.broker.is_live(each._handle):
                self.problems.append(f"{each._handle} was begun after its lease")
        act = self.act_of(deliveries[0])
        came = "raised"
        try:
            await self.do(act, deliveries[0])
            came = "returned"
        finally:
            over = (
                self.limit is not None
                and loop.time() - began_s > self.limit.total_seconds() - 0.001
            )
            ended = any(each._workers.cancelled for each in self.consumers)
            over = over and (came == "raised" or act == "swallow")
            by = "end" if ended else "limit" if over else "itself"
            for number, each in enumerate(deliveries):
                done = act if number == 0 else "return" if came == "returned" else "raise"
                self.calls.append(Call(each._handle, done, came, by))

    async def do(self, act: str, delivery: Delivery) -> None:
        random = Random(f"{self.seed}/{delivery._handle}/how")
        takes_s = random.choice((0, 0.01, 0.5, 1.5))
        match act:
            case "raise":
                await asyncio.sleep(takes_s)
                raise ValueError("no")
            case "hang":
                await asyncio.sleep(60)
            case "swallow":
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    await asyncio.sleep(takes_s)
            case "wrap":
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError as error:
                    raise DbError from error
            case "finally":
                try:
                    await asyncio.sleep(30)
                finally:
                    raise DbError
            case "block":
                self.stood_still = True
                stand_still(random.choice((1, 30, 150, 4_000)))
            case "extend" | "short":
                await delivery.extend(timedelta(seconds=100 if act == "extend" else 1))
                self.short = self.short or act == "short"
                await asyncio.sleep(1.5 if act == "short" else takes_s)
            case "beats":
                beat = asyncio.create_task(beats(delivery))
                beat.add_done_callback(lambda task: task.cancelled() or task.exception())
                await asyncio.sleep(takes_s)
                beat.cancel()
            case "retry_in" | "dead_letter":
                await getattr(delivery, act)(timedelta(seconds=1) if act == "retry_in" else "no")
            case "nack" | "ack":
                await getattr(delivery, act)()
            case "ack and raise":
                await delivery.ack()
                raise ValueError("after it was done")
            case "exit":
                raise SystemExit(3)
            case "cancels itself":
                raise asyncio.CancelledError
            case _:
                await asyncio.sleep(takes_s)

    async def run(self) -> None:
        told = Told()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.problems.append(f"the loop: {context}")
        )
        with listening(told):
            await self.first_life()
            self.final, self.broker.faulty, self.broker.cut = True, 0.0, False
            await self.second_life()
        self.judge(told)

    async def first_life(self) -> None:
        random, end = self.random, asyncio.Event()
        app = self.app()
        serving = asyncio.create_task(self.serve(app, end, random.choice((0, 0.3, 3))))
        await asyncio.sleep(random.choice((0.05, 1, 2.5, 10, 100)) * random.random())
        if random.random() < 0.2:
            self.broker.cut, self.was_cut = True, True
            await asyncio.sleep(random.choice((0, 15, 200)))
            if random.random() < 0.5:
                self.broker.cut = False
                await asyncio.sleep(random.choice((0, 5, 60)))
        if random.random() < 0.2:
            self.stood_still = True
            stand_still(random.choice((25, 150, 5_000)))
            await asyncio.sleep(random.choice((0, 0.01, 5)))
        end.set()
        await serving
        self.nothing_stays()

    async def second_life(self) -> None:
        end = asyncio.Event()
        serving = asyncio.create_task(self.serve(self.app(), end, 30))
        until_s = asyncio.get_running_loop().time() + END_S_MAX
        while not self.broker.over and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(5)
        end.set()
        await serving
        self.nothing_stays()

    def app(self) -> App:
        app = App("127.0.0.1:8081")
        self.life(app)
        return app

    async def serve(self, app: App, end: asyncio.Event, grace_s: float) -> None:
        endpoints = Endpoints.parse("127.0.0.1:8081")
        ready = asyncio.Event()
        with app._connecting(lambda: Client(endpoints, transport=self.broker.connect)):
            serving = asyncio.create_task(
                app.serve(end, grace=timedelta(seconds=grace_s), ready=ready)
            )
            await asyncio.sleep(0)
            self.consumers = [
                each for each in app.client._consumers if isinstance(each, PushConsumer)
            ]
            await serving

    def nothing_stays(self) -> None:
        for consumer in self.consumers:
            held = len(consumer._identities.held())
            if consumer._in_hand or len(consumer._inbox) or held:
                self.problems.append(f"in hand: {len(consumer._in_hand)}, held: {held}")
        left = [each.get_name() for each in asyncio.all_tasks() if "latermq" in each.get_name()]
        if left:
            self.problems.append(f"tasks: {left}")

    def judge(self, told: Told) -> None:
        broker, problems = self.broker, self.problems
        problems += [
            f"{each.message.system_properties.message_id} is {each.state}"
            for each in broker.parcels
            if each.state not in ("done", "dead")
        ]
        excused = broker.faults or self.was_cut or self.stood_still or self.short or self.lease_max
        for call in self.calls:
            how = broker.ends.get(call.handle, "nothing")
            if how not in self.allowed(call) and not (how == "expired" and excused):
                problems.append(f"{call} ended as {how}")
        lost = Counter(
            vars(line)["message_id"] for line in told.lines if "lease was lost" in line.getMessage()
        )
        for parcel in broker.parcels:
            message_id = parcel.message.system_properties.message_id
            if lost[message_id] > parcel.lent:
                problems.append(f"{message_id}: {lost[message_id]} lost leases told")
        if self.batch is None:
            failed = sum(line.getMessage().startswith("attempt ") for line in told.lines)
            wrong = sum(self.fails(call) for call in self.calls)
            if failed != wrong:
                problems.append(f"{failed} failures were told of {wrong}")
        problems += [line.getMessage() for line in told.lines if line.levelno >= logging.ERROR]
        assert not problems, f"seed {self.seed}: " + "; ".join(problems)

    def fails(self, call: Call) -> bool:
        """Whether it is a failed attempt, or an error beside it, that a warning tells of."""
        if call.by == "end":
            return False
        return call.came == "raised" or call.by == "limit"

    def allowed(self, call: Call) -> set[str]:
        """How the broker may have seen its lease end."""
        by_hand = BY_HAND.get(call.act) or ("ack" if call.act == "ack and raise" else "")
        allowed = {by_hand} if by_hand else set()
        if call.by == "end":
            return allowed | {"suspend"}
        if by_hand and call.came == "returned":
            return allowed
        if call.came == "raised" or call.by == "limit":
            allowed |= {"nack"}
        else:
            allowed |= {"ack"}
        return allowed | {"suspend"}  # the end came while the broker was told


async def beats(delivery: Delivery) -> None:
    while True:
        await delivery.extend(timedelta(seconds=100))
        await asyncio.sleep(0.2)


def stand_still(for_s: float) -> None:
    """Let time pass in which nothing of this process runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._virtual.elapsed_us += round(for_s * 1_000_000)


@contextmanager
def listening(told: Told) -> Iterator[None]:
    """Have `told` get what the SDK logs, and nobody else."""
    log, disabled = logging.getLogger("latermq"), logging.root.manager.disable
    before = log.propagate
    log.propagate = False
    log.addHandler(told)
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        log.removeHandler(told)
        log.propagate = before
        logging.disable(disabled)


def run(seed: int) -> None:
    run_virtually(History(seed).run)


@settings(max_examples=150)
@example(22_874)  # a connection breaks while its consumer starts
@given(st.integers(0, 1 << 48))
def test_a_worker_ends_what_it_was_given(seed: int) -> None:
    run(seed)


def main(first: int, count: int) -> int:
    failed = 0
    for seed in range(first, first + count):
        try:
            run(seed)
        except Exception as error:  # noqa: BLE001  each seed is told
            failed += 1
            print(f"{type(error).__name__}: {error}", flush=True)
    print(f"seeds {first} to {first + count - 1}: {failed} failed", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
