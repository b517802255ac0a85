"""Our SDK on both its transports beside the official Python client, on the same broker."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.cases.broker import LOAD_TIMEOUT_S, TOPIC, cpu_s, load, running
from bench.children import environment
from bench.measured import HIGHER, LOWER, Group, Result, medians
from bench.sdk_process import WARM_UP

KIB: Final = 1 << 10
CLIENTS: Final = ("lean", "grpcio", "official")
PROMISED: Final = {"send": 4.0, "receive": 5.0}  # times the official client
IN_FLIGHT: Final = {"send": 256, "receive": 4, "listen": 20}
TRACED: Final = {"": "without", "api": "no SDK", "sdk": "SDK"}  # OpenTelemetry
HELD_MS_MAX: Final = 100
SPARE: Final = 2_000  # messages more than are received: no consumer waits for the last


def client_process(endpoint: str, client: str, do: str, **fields: Any) -> dict[str, float]:
    """Run one client to its end and return what it measured."""
    spec = {"endpoint": endpoint, "topic": TOPIC, "client": client, "do": do, **fields}
    ended = subprocess.run(
        [sys.executable, "-m", "bench.sdk_process", json.dumps(spec)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the official client logs there
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=True,
        env={**environment(), "ROCKETMQ_LOG_DIR": str(Path(os.devnull).parent)},
    )
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures


def beside_official(do: str, runs: int, counts: dict[str, int]) -> Iterator[Result]:
    """Turn by turn, so that what disturbs the machine disturbs all of them."""
    values: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
    for _ in range(runs):
        with running() as broker:
            if do == "receive":
                load(broker.endpoint, "fill", count=max(counts.values()) + SPARE, body_bytes=KIB)
            for client in CLIENTS:
                values[client].append(
                    client_process(
                        broker.endpoint, client, do, count=counts[client],
                        concurrency=IN_FLIGHT[do], group=f"bench-{client}",
                    )
                )  # fmt: skip
    what = {
        "send": f"SDK: sends, {IN_FLIGHT['send']} at a time, 1 KiB",
        "receive": f"SDK: receive 32 and acknowledge each, {IN_FLIGHT['receive']} at a time, 1 KiB",
    }[do]
    for client in CLIENTS:
        rates = tuple(run["per_second"] for run in values[client])
        cpu = tuple(run["CPU us"] for run in values[client])
        details = {"CPU us": cpu}
        bound, holds = "", None
        if client == "lean":
            official = values["official"]
            pairs = zip(values[client], official, strict=True)
            times = [(mine["per_second"] / its["per_second"], its["CPU us"] / mine["CPU us"])
                     for mine, its in pairs]  # fmt: skip
            details["times the official client's rate"] = tuple(rate for rate, _ in times)
            details["times less CPU"] = tuple(less for _, less in times)
            bound = f"≥ {PROMISED[do]:g} times the official client's, or that much less CPU"
            holds = statistics.median(max(pair) for pair in times) >= PROMISED[do]
        yield Result(
            case=f"sdk_{do}_{client}", what=f"{what}; {client}", unit="messages/s", better=HIGHER,
            runs=rates, details=medians(details), bound=bound, holds=holds,
        )  # fmt: skip


def traced(do: str, runs: int, count: int) -> Iterator[Result]:
    """What OpenTelemetry costs a send, and an attempt: turn by turn on one broker."""
    values: dict[str, list[dict[str, float]]] = {how: [] for how in TRACED}
    for _ in range(runs):
        with running() as broker:
            if do == "listen":
                load(broker.endpoint, "fill", count=count + SPARE, body_bytes=KIB)
            for how in TRACED:
                values[how].append(
                    client_process(
                        broker.endpoint, "lean", do, count=count, traced=how,
                        concurrency=IN_FLIGHT[do], group=f"bench-{how or 'plain'}",
                    )
                )  # fmt: skip
    what = {"send": "sends", "listen": "calls of a listener"}[do]
    for how, said in TRACED.items():
        cpu = tuple(run["CPU us"] for run in values[how])
        more = tuple(run["CPU us"] - plain["CPU us"]
                     for run, plain in zip(values[how], values[""], strict=True))  # fmt: skip
        yield Result(
            case=f"sdk_{do}_otel_{how or 'none'}", what=f"SDK: {what}, OpenTelemetry: {said}",
            unit="messages/s", better=HIGHER, runs=tuple(run["per_second"] for run in values[how]),
            details=medians({"CPU us": cpu} | ({"CPU us more": more} if how else {})),
        )  # fmt: skip


def deduplicated(at_once: int, runs: int, count: int) -> Iterator[Result]:
    """What a dedup id costs a send, turn by turn on one broker: the client, and the broker."""
    values: dict[str, list[dict[str, float]]] = {"": [], "order-": []}
    for number in range(runs):
        with running() as broker:
            for begins, found in values.items():
                before = cpu_s(broker.pid)
                one = client_process(
                    broker.endpoint, "lean", "send", count=count, concurrency=at_once,
                    ids=begins and f"{begins}{number}-",
                )  # fmt: skip
                used_us = (cpu_s(broker.pid) - before) / (count + WARM_UP) * 1e6
                found.append({**one, "broker us": used_us})
    for begins, found in values.items():
        parts = {name: tuple(run[name] for run in found) for name in ("CPU us", "broker us")}
        yield Result(
            case=f"sdk_dedup_{at_once}_{'with' if begins else 'without'}",
            what=f"SDK: sends, {at_once} at a time, dedup id: {'with' if begins else 'without'}",
            unit="messages/s", better=HIGHER, runs=tuple(run["per_second"] for run in found),
            details=medians(parts),
        )  # fmt: skip


def held_ladder(runs: int) -> Iterator[Result]:
    """What a user's test of three backoffs takes on the held clock."""
    ended = subprocess.run(
        [sys.executable, "-m", "bench.held_process", json.dumps({"runs": runs})],
        stdout=subprocess.PIPE,
        timeout=LOAD_TIMEOUT_S,
        check=True,
        env=environment(),
    )
    yield Result(
        case="held_ladder", what="`latermq_time`: a test of 1 s, 5 s, 30 s, then dead; CPU",
        unit="ms", better=LOWER, runs=(values := tuple(json.loads(ended.stdout))),
        bound=f"< {HELD_MS_MAX}", holds=statistics.median(values) < HELD_MS_MAX,
    )  # fmt: skip


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    runs = 5 if full else 3
    scale = 5 if full else 1
    sends = {"lean": 20_000 * scale, "grpcio": 10_000 * scale, "official": 3_000 * scale}
    receives = {"lean": 10_000 * scale, "grpcio": 5_000 * scale, "official": 3_000 * scale}
    for do, counts in (("send", sends), ("receive", receives)):
        names = tuple(f"sdk_{do}_{client}" for client in CLIENTS)
        yield names, partial(beside_official, do, runs, counts)
    for do in ("send", "listen"):
        names = tuple(f"sdk_{do}_otel_{how or 'none'}" for how in TRACED)
        yield names, partial(traced, do, runs, 10_000 * scale)
    for at_once, count in ((1, 1_500), (100, 10_000)):
        names = tuple(f"sdk_dedup_{at_once}_{kind}" for kind in ("without", "with"))
        yield names, partial(deduplicated, at_once, runs, count * scale)
    yield ("held_ladder",), partial(held_ladder, 10)
