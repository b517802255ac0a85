"""Everything at once, for hours: `make soak MINUTES=60`; exit code 1: a promise broke.

Two brokers. The steady one lives through all of it, with honest and hostile clients: its memory
must become flat, and when everybody has gone, nothing may be left open. The other is stopped or
killed every quarter of a minute under the same hostile clients, while messages wait in it and are
rolled forward (`support/retention_story.py`): each must come exactly as often as promised.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from support.machine import patient

if TYPE_CHECKING:
    from soak.honest import Honest
    from soak.watch import Slope, Watch
    from support.retention_story import Story

TOPIC: Final = "soak"
LIFE_S: Final = 15.0
WAIT_MS_MAX: Final = 30_000
STEADY_RETENTION_MS: Final = 30_000
RETENTION_MS: Final = 8_000  # a busy machine takes seconds for a restart
GROWTH_MIB_PER_HOUR: Final = 4.0
NOISE_MIB: Final = 3.0
YOUNG_MIB_MINUTES: Final = min(patient(5.0), 10.0)  # a young process fills what is bounded
SETTLE_S: Final = patient(60.0)
# Small bounds everywhere, so that all of them are met, and memory has nothing left to fill.
LIMITS: Final = """
[http2]
hello_ms_max = 2000
stall_ms_max = 2000
idle_ms_max = 5000
[tls]
enabled = true
handshake_ms_max = 2000
"""
STEADY: Final = f"""\
[server]
polling_ms_min = 100
keepalive_interval_ms = 3000
keepalive_timeout_ms = 2000
client_silent_ms_max = 10000
[store]
segment_bytes = 4194304
message_body_bytes_max = 131072
retention_ms = {STEADY_RETENTION_MS}
dead_letter_retention_ms = {STEADY_RETENTION_MS}
checkpoint_interval_ms = 2000
disk_full_percent = 0
disk_low_percent = 0
[delivery]
done_handles_max = 1000
client_names_max = 100
{LIMITS}"""

Outcomes = dict[str, Counter[str]]


async def repeat(
    name: str,
    run: Callable[[], Awaitable[str]],
    pause_s: float,
    outcomes: Outcomes,
    over: asyncio.Event,
) -> None:
    """Round after round; a connection that breaks is an outcome too."""
    import grpc.aio

    while not over.is_set():
        try:
            outcome = await run()
        except (OSError, TimeoutError, EOFError) as error:
            outcome = type(error).__name__
        except grpc.aio.AioRpcError as error:
            outcome = str(error.code().name)
        outcomes[name][outcome] += 1
        await asyncio.sleep(pause_s)


def hostile(
    endpoint: str, seed: int, outcomes: Outcomes, over: asyncio.Event
) -> "list[asyncio.Task[None]]":
    from support.hostile import ROUNDS, Target

    target, chance = Target.of(endpoint, TOPIC), random.Random(seed)
    tasks = []
    for name, (run, pause_s) in ROUNDS.items():
        outcomes[name] = Counter()
        one = repeat(name, lambda run=run: run(target, chance), pause_s, outcomes, over)  # type: ignore[misc]
        tasks.append(asyncio.create_task(one))
    return tasks


async def steady(
    endpoint: str, pid: int, seconds: float, seed: int, outcomes: Outcomes
) -> "tuple[Watch, Slope, Honest, list[str]]":
    """Soak a broker that lives through it; what is left open at the end."""
    from soak.honest import Honest
    from soak.watch import Watch, slope

    async with Watch(endpoint, pid) as watch:
        honest = Honest(endpoint, TOPIC, seed, STEADY_RETENTION_MS)
        looking = asyncio.create_task(watch.keep_looking())
        over = asyncio.Event()
        tasks = hostile(endpoint, seed, outcomes, over)
        for name, (run, pause_s) in honest.rounds.items():
            outcomes[name] = Counter()
            count = 3 if name == "receives" else 1
            for _ in range(count):
                tasks.append(asyncio.create_task(repeat(name, run, pause_s, outcomes, over)))
        await asyncio.wait((looking, *tasks), timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        over.set()
        await asyncio.gather(*tasks)
        assert not looking.done(), looking.exception()
        looking.cancel()
        flat = slope(
            watch.samples, GROWTH_MIB_PER_HOUR, NOISE_MIB + YOUNG_MIB_MINUTES / (seconds / 60)
        )
        await honest.settle(SETTLE_S)
        await honest.close()
        return watch, flat, honest, await watch.quiet()


async def restarted(
    story: "Story", broker: Any, seconds: float, seed: int, outcomes: Outcomes
) -> list[str]:
    """The story in a thread of its own, hostile clients beside it; what is left at its end."""
    from soak.watch import Watch

    failed: list[BaseException] = []

    def tell() -> None:
        try:
            story.run(broker, seconds, restarts=max(2, int(seconds / LIFE_S)))
        except BaseException as error:  # noqa: BLE001  raised again below, in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=tell)
    thread.start()
    while broker.endpoint.endswith(":0") and thread.is_alive():
        await asyncio.sleep(0.05)
    over = asyncio.Event()
    tasks = hostile(broker.endpoint, seed + 1, outcomes, over)
    while thread.is_alive():
        await asyncio.sleep(0.1)
    over.set()
    await asyncio.gather(*tasks)
    if failed:
        raise failed[0]
    async with Watch(broker.endpoint, broker.pid) as watch:
        watch.first = watch.first._replace(calls=1, connections=1, timers=0, parked=0, tasks=99)
        return await watch.quiet()


def main(words: list[str]) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `soak` and `support`
    from soak.report import table
    from support import anew_client
    from support.broker_process import BrokerProcess
    from support.retention_story import Story, config
    from support.wire_client import WireClient

    parser = argparse.ArgumentParser(prog="run.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="default: 60")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    options = parser.parse_args(words)
    seconds = options.minutes * 60
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it tells of each write to who is gone
    began = time.monotonic()
    wait_ms_max = min(WAIT_MS_MAX, int(seconds * 250))
    story = Story(seed=options.seed, wait_ms_max=wait_ms_max, retention_ms=RETENTION_MS)
    calm: Outcomes = {}
    rough: Outcomes = {}
    with tempfile.TemporaryDirectory(prefix="latermq-soak-") as directory:
        one, other = Path(directory) / "steady", Path(directory) / "restarted"
        with (
            BrokerProcess(one, config=STEADY) as first,
            BrokerProcess(other, config=config(RETENTION_MS) + LIMITS) as second,
        ):
            first.start()
            with WireClient(first.endpoint) as wire:
                from soak.honest import ATTEMPTS_MAX, GROUP

                for topic in (TOPIC, f"{TOPIC}-quiet", f"{TOPIC}-filler"):
                    wire.create_topic(topic)
                wire.create_group(GROUP, ATTEMPTS_MAX, [200, 500])
                mine = anew_client.GROUP, anew_client.ATTEMPTS_MAX, anew_client.LADDER_MS
                wire.create_group(*mine)

            async def both() -> Any:
                return await asyncio.gather(
                    steady(first.endpoint, first.pid, seconds, options.seed, calm),
                    restarted(story, second, seconds, options.seed, rough),
                )

            (watch, flat, honest, left), left_over = asyncio.run(both())
            codes = [first.terminate().code, second.terminate().code]
    text, broken = table(
        (time.monotonic() - began) / 60, options.seed, watch, flat, honest.ledger, story, calm,
        rough, left, left_over, codes,
    )  # fmt: skip
    print(text)
    for one_broken in broken:
        print(f"BROKEN: {one_broken}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
