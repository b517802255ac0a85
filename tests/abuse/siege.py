"""A broker with its working load, attacked: what it cost whom, and whether all came back."""

import asyncio
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self

from abuse.memory import Peak, status_mib
from abuse.neighbour import EVERY_S, FRESH
from abuse.peer import NOBODY, Caller, Peer, Target
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import broker_pb2, user_pb2
from support.broker_process import BrokerProcess
from support.machine import patience, patient

ROOT: Final = Caller("root", "the-secret-of-root")
WORKER: Final = Caller("worker", "the-secret-of-worker")
GUEST: Final = Caller("guest", "the-secret-of-guest")  # has no right at all
PUBLISHER: Final = Caller("publisher", "the-secret-of-publisher")  # has `pub` alone
OTHER: Final = Caller("other", "the-secret-of-other")  # has the rights of the one who works

PEAK_MIB_MAX: Final = 256.0
GROWTH_MIB_MAX: Final = 100.0
BACK_S_MAX: Final = patient(30.0)
SLOWER_MAX: Final = 10.0
# Below it the machine's noise is measured: beside connections that come and go at a socket that
# only accepts and closes, the neighbour's p99 is 65 ms.
CALM_P99_MS_MIN: Final = 10.0 * min(patience(), 4.0)
PARSED_CALM_MS_MIN: Final = 2 * CALM_P99_MS_MIN  # one request of 4 MiB is parsed in one go
FRESH_MS_MAX: Final = 1_000.0 * min(patience(), 4.0)  # of a newcomer: TCP, TLS and a send
CALM_S: Final = 1.5
BALANCER: Final = "127.0.3.1"  # whose PROXY header is believed
ATTACK_S_MIN: Final = 1.0  # so long the neighbour is measured, however short the attack
ANSWER_S_MAX: Final = patient(60.0)

CONFIG: Final = f"""
[auth]
enabled = true
root_access_key = "{ROOT.access_key}"
root_secret_key = "{ROOT.secret}"
[tls]
enabled = true
[http2]
proxy_from = "{BALANCER}"
[transaction]
first_check_ms = 1000
"""
SMALL: Final = """
[server]
clients_max = 200
[catalog]
topic_count_max = 100
"""  # so that what all share is soon used up
SOURCE_VARIABLE: Final = "ABUSE_SOURCE"  # another source tree, whose broker is attacked

Attack = Callable[[Target], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attack.

    It has closed what it opened when it returns what it was told.

    Fields:
        number: of the class of attacks, as docs/security.md counts them.
        what: in the table's words.
        by: in whose name.
        answers: a regular expression of what it is told; "": whatever it is.
        prepare: what has to be there before, made before anything is measured.
        seconds_max: a bound on the attacker, not on the broker.
        always: a part of every run of the tests; the others are variations.
        calm_ms_min: a calm p99 of sends counts as no less.
    """

    number: int
    name: str
    what: str
    attack: Attack
    by: Caller = NOBODY
    prepare: Attack | None = None
    answers: str = ""
    seconds_max: float = 15.0
    always: bool = True
    calm_ms_min: float = CALM_P99_MS_MIN


class Figures(NamedTuple):
    """What one attack cost. Times of sends in milliseconds, of recovery in seconds."""

    answer: str
    start_mib: float
    peak_mib: float
    after_mib: float
    calm_p99_ms: float
    p50_ms: float
    p99_ms: float
    fresh_ms: float
    failed: int
    back_s: float
    why_not_back: str

    def line(self) -> str:
        """For people, while the cases run."""
        return (
            f"{self.answer[:120]}; RSS {self.start_mib:.0f}, at most {self.peak_mib:.0f}, then "
            f"{self.after_mib:.0f} MiB; p99 {self.calm_p99_ms:.0f}, then {self.p99_ms:.0f} ms "
            f"(p50 {self.p50_ms:.0f}); newcomers {self.fresh_ms:.0f} ms; "
            f"back after {self.back_s:.1f} s"
        )

    def is_late(self, case: Case) -> bool:
        """A neighbour's sends, or newcomers, waited for longer than they may."""
        p99_max = SLOWER_MAX * max(self.calm_p99_ms, case.calm_ms_min)
        return self.p99_ms > p99_max or self.fresh_ms > FRESH_MS_MAX

    def faults(self, case: Case) -> list[str]:
        """What was promised of the case and does not hold."""
        found = {
            f"answered {self.answer}": re.fullmatch(case.answers or ".*", self.answer) is None,
            f"peak RSS {self.peak_mib:.0f} MiB": self.peak_mib > PEAK_MIB_MAX,
            f"{self.after_mib - self.start_mib:.0f} MiB stay": bool(self.why_not_back),
            f"not back after {self.back_s:.0f} s: {self.why_not_back}": bool(self.why_not_back),
            f"a neighbour's p99 {self.p99_ms:.0f} ms, calm {self.calm_p99_ms:.0f}": (
                self.p99_ms > SLOWER_MAX * max(self.calm_p99_ms, case.calm_ms_min)
            ),
            f"newcomers wait for {self.fresh_ms:.0f} ms": self.fresh_ms > FRESH_MS_MAX,
            f"{self.failed} of a neighbour's calls failed": self.failed > 0,
        }
        return [text for text, broken in found.items() if broken]


@dataclass
class Load:
    """The neighbour's process and what it told so far."""

    process: "subprocess.Popen[str]"
    every_s: float = EVERY_S
    sent: list[tuple[float, float]] = field(default_factory=list)
    fresh: list[tuple[float, float]] = field(default_factory=list)
    failed: list[tuple[float, str]] = field(default_factory=list)
    fresh_failed: list[tuple[float, str]] = field(default_factory=list)
    came: int = 0

    @classmethod
    def run(cls, words: Sequence[str], every_s: float = EVERY_S) -> "Load":
        """Run a module that works at fixed instants; `words`: its name, and what it is told."""
        root = Path(__file__).resolve().parents[1]
        search = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        load = cls(process, every_s)
        assert process.stdout is not None
        threading.Thread(target=load._hear, args=(process.stdout,), daemon=True).start()
        return load

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    async def until(self, true: Callable[[], bool], what: str) -> None:
        """Raises AssertionError: not within a minute, or the process ended."""
        limit_s = time.monotonic() + ANSWER_S_MAX
        while not true():
            assert self.process.poll() is None, "the neighbour's process ended"
            assert time.monotonic() < limit_s, f"no {what} in {ANSWER_S_MAX:.0f} s"
            await asyncio.sleep(0.02)

    async def settled(self, from_s: float, until_s: float) -> None:
        """Until it is known what became of each send, and each newcomer, that was due then."""
        sends = int((until_s - from_s) / self.every_s) - 1
        await self.until(
            lambda: (
                len(self.latencies_ms(from_s, until_s)) >= sends
                and any(due_s > until_s for due_s, _ in [*self.fresh, *self.fresh_failed])
            ),
            "end of all sends",
        )

    def latencies_ms(self, from_s: float, until_s: float) -> list[float]:
        """Of the sends that were due then; without end of those that failed."""
        sent = [ms for due_s, ms in list(self.sent) if from_s <= due_s <= until_s]
        return sent + [math.inf] * len(self._between(self.failed, from_s, until_s))

    def fresh_ms(self, from_s: float, until_s: float) -> list[float]:
        """Of the newcomers that came then, likewise."""
        served = [ms for due_s, ms in list(self.fresh) if from_s <= due_s <= until_s]
        return served + [math.inf] * len(self._between(self.fresh_failed, from_s, until_s))

    def failures(self, from_s: float, until_s: float) -> list[str]:
        both = [*self.failed, *self.fresh_failed]
        return self._between(both, from_s, until_s)

    @staticmethod
    def _between(failed: list[tuple[float, str]], from_s: float, until_s: float) -> list[str]:
        return [why for due_s, why in list(failed) if from_s <= due_s <= until_s]

    def _hear(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                if not line.endswith("\n"):
                    return  # killed in the middle of it
                kind, *words = line.split(maxsplit=2)
                if kind == "came":
                    self.came += 1
                elif kind == "failed":
                    fresh = words[1].startswith(FRESH)
                    (self.fresh_failed if fresh else self.failed).append(
                        (float(words[0]), words[1])
                    )
                else:
                    known = self.sent if kind == "sent" else self.fresh
                    known.append((float(words[0]), float(words[1])))


async def endured(
    load: Load,
    pid: int,
    calm_s: float,
    seconds_max: float,
    *,
    attack: Callable[[], Awaitable[str]],
    back: Callable[[float], Awaitable[str]],
) -> Figures:
    """Measure a load on a process for so long calm, beside an attack, and until all is back.

    Args:
        seconds_max: of the attack; then it is given up.
        back: waits, given the MiB of before; returns why not all is as it was, "" once it is.
    """
    calm_from_s = time.monotonic()
    await asyncio.sleep(calm_s)
    start_mib = status_mib(pid, "VmRSS")
    with Peak(pid) as peak:
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(seconds_max):
                answer = await attack()
        except TimeoutError:
            answer = "no end"
        await asyncio.sleep(max(0.0, begun_s + ATTACK_S_MIN - time.monotonic()))
        ended_s = time.monotonic()
        why_not_back = await back(start_mib)
        back_s = time.monotonic() - ended_s
        await load.settled(begun_s, ended_s)
    calm = load.latencies_ms(calm_from_s, begun_s)
    during = load.latencies_ms(begun_s, ended_s)
    return Figures(
        answer, start_mib, peak.mib, status_mib(pid, "VmRSS"), percentile(calm, 99),
        percentile(during, 50), percentile(during, 99),
        percentile(load.fresh_ms(begun_s, ended_s), 50),
        len(load.failures(begun_s, ended_s)), back_s, why_not_back,
    )  # fmt: skip


class Siege:
    """A broker process, its users and its neighbour; attacked one case at a time."""

    def __init__(self, data_dir: Path, config: str = CONFIG) -> None:
        self.broker = BrokerProcess(data_dir, config=config)
        self.load: Load

    async def start(self) -> Self:
        with other_source():
            self.broker.start()
        await self._users()
        self.load = Load.run(["abuse.neighbour", self.broker.endpoint, *WORKER])
        await self.load.until(lambda: len(self.load.fresh) >= 2, "newcomer")
        return self

    def stop(self) -> None:
        if hasattr(self, "load"):
            self.load.stop()
        with self.broker:
            pass

    def target(self, by: Caller) -> Target:
        host, _, port = self.broker.endpoint.rpartition(":")
        return Target(host, int(port), by)

    async def endure(self, case: Case) -> Figures:
        """Measure calm, attack, measure, and wait until all is back."""
        if case.prepare is not None:
            await case.prepare(self.target(case.by))
        before = await self.counts()
        return await endured(
            self.load, self.broker.pid, CALM_S, case.seconds_max,
            attack=lambda: case.attack(self.target(case.by)),
            back=lambda start_mib: self._back(before, start_mib),
        )  # fmt: skip

    async def counts(self) -> broker_pb2.BrokerTransport:
        """What the broker says is open; this call and its connection among it."""
        async with await Peer.open(self.target(ROOT).at("127.0.0.1")) as peer:
            stream_id = peer.ask("/latermq.v1.Brokers/GetBroker", b"")
            answer = await peer.answered(stream_id, ANSWER_S_MAX)
        return broker_pb2.GetBrokerResponse.FromString(answer.message).broker.transport

    async def _back(self, before: broker_pb2.BrokerTransport, start_mib: float) -> str:
        """Why not all is as it was, when the time is over; "" once it is."""
        until_s = time.monotonic() + BACK_S_MAX
        while True:
            left = await self._left(before, start_mib)
            if not left or time.monotonic() > until_s:
                return ", ".join(left)
            await asyncio.sleep(0.25)

    async def _left(self, before: broker_pb2.BrokerTransport, start_mib: float) -> list[str]:
        begun_s = time.monotonic()
        now = await self.counts()
        more = {
            name: getattr(now, name) - getattr(before, name)
            for name in ("connections_open", "calls_open", "tasks", "deadline_timers")
        }
        # Newcomers and what the neighbour sends just now come and go.
        left = [f"{count} more {name}" for name, count in more.items() if count > 6]
        grown_mib = status_mib(self.broker.pid, "VmRSS") - start_mib
        if grown_mib > GROWTH_MIB_MAX:
            left.append(f"{grown_mib:.0f} MiB more")
        if not any(due_s > begun_s - 2.0 for due_s, _ in self.load.fresh):
            left.append("no newcomer served in the last two seconds")
        return left

    async def _users(self) -> None:
        async with await Peer.open(self.target(ROOT).at("127.0.0.1")) as peer:
            grants = [(PUBLISHER, user_pb2.Grant.TOPIC, ["pub"])]
            for user in (WORKER, OTHER):
                grants.append((user, user_pb2.Grant.TOPIC, ["pub", "sub", "browse", "body"]))
                grants.append((user, user_pb2.Grant.GROUP, ["sub", "browse"]))
            for user in (WORKER, GUEST, PUBLISHER, OTHER):
                request = user_pb2.CreateUserRequest(access_key=user.access_key, secret=user.secret)
                await ask(peer, "/latermq.v1.Users/CreateUser", request)
            for user, kind, rights in grants:
                grant = user_pb2.Grant(kind=kind, pattern="*", rights=rights)
                change = user_pb2.ChangeGrantRequest(access_key=user.access_key, grant=grant)
                await ask(peer, "/latermq.v1.Users/GrantRights", change)


async def ask(peer: Peer, path: str, request: Any, *, client_id: str = "") -> bytes:
    """The answer's message; gRPC's own status must be OK."""
    stream_id = peer.ask(path, request, client_id=client_id)
    answer = await peer.answered(stream_id, ANSWER_S_MAX)
    told = f"{path}: {answer.said} {peer.said} {answer.headers}"
    assert answer.headers.get("grpc-status") == "0", told
    return answer.message


def code_of(answer: Any) -> str:
    """The name of the code in an answer's status."""
    return str(definition_pb2.Code.Name(answer.status.code))


class other_source:  # noqa: N801  reads as a statement
    """The broker of another source tree is run, where one is named."""

    def __enter__(self) -> None:
        self._before = os.environ.get("PYTHONPATH")
        tree = os.environ.get(SOURCE_VARIABLE)
        if tree:
            rooms = [str(Path(tree) / room) for room in ("broker", "client", "proto")]
            os.environ["PYTHONPATH"] = os.pathsep.join(rooms)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = self._before


def percentile(values: Sequence[float], percent: int) -> float:
    """Infinite without values: nothing was served."""
    if not values:
        return float("inf")
    ordered = sorted(values)  # some may be infinite, between which nothing is
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
