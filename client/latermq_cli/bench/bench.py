"""`latermq bench`: a small load generator, measured where a client sits."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from latermq_cli.bench.bench_load import Load, Report, Target, receive_load, roundtrip, send_load
from latermq_cli.connection.connection import Connection, checked_endpoint
from latermq_cli.connection.options import broker_options, duration, example, filter_options
from latermq_cli.messages.send import require_topic
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, print_json
from latermq_cli.terminal.failures import RefusedError
from latermq_cli.terminal.table import plain
from latermq_proto.latermq.v1 import topic_pb2

_SIZE: Final = re.compile(r"(\d+)\s*(b|k|kb|kib|m|mb|mib)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20}
BODY_BYTES_MAX: Final = 4 << 20
CALL_BYTES_MAX: Final = 64 << 20
FLIGHT_BYTES_MAX: Final = 1 << 30
RATE_MAX: Final = 1_000_000
DURATION_MS_MAX: Final = 7 * 86_400_000


def size(text: str) -> int:
    """Read `512`, `1k`, `4MiB` as bytes; a `type=` for options."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 512, 1k, 4m")
    count = int(match[1]) * _UNITS[(match[2] or "").lower()[:1]]
    if not 1 <= count <= BODY_BYTES_MAX:
        raise click.BadParameter(f"{text!r}: a body has 1 to {BODY_BYTES_MAX} bytes")
    return count


def run_time(text: str) -> int:
    """Parse how long a run takes, as `duration` does; a `type=` for options."""
    wanted = duration(text)
    if not 1 <= wanted <= DURATION_MS_MAX:
        raise click.BadParameter(f"{text!r}: a run takes 1ms to 7d")
    return wanted


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure a broker: how much it sends, delivers and acknowledges, and how quickly.

    The load generator is one Python process, so it may be the limit itself: watch its CPU, and give
    it a core of its own. Exits 1 when a call failed or a message of a round trip is missing.
    """


load_options: Final = filter_options(
    click.option("--topic", default="bench", show_default=True),
    click.option("--concurrency", type=click.IntRange(1, 10_000), default=16, show_default=True,
                 help="Calls in flight at a time."),
    click.option("--duration", type=run_time, default="10s", show_default=True,
                 help="Stop after this long."),
    click.option("--count", type=click.IntRange(min=1), default=None, metavar="N",
                 help="Stop after N messages [until the time is up]."),
)  # fmt: skip
send_options: Final = filter_options(
    click.option("--size", type=size, default="1k", show_default=True, help="Of each body."),
    click.option("--rate", type=click.IntRange(1, RATE_MAX), default=None, metavar="N",
                 help="Messages per second [as fast as it goes]."),
    click.option("--batch", type=click.IntRange(1, 1000), default=1, show_default=True,
                 help="Messages per send."),
)  # fmt: skip
group_option: Final = click.option("--group", default="bench", show_default=True)


@bench.command(epilog=example("latermq bench send --size 1k --concurrency 64 --duration 10s"))
@load_options
@send_options
@broker_options
def send(endpoint: str, as_json: bool, **options: Any) -> None:
    """Send messages. Latency is that of a send call, from when it was due at a given --rate."""
    _run("send", send_load, endpoint, as_json, options)


@bench.command(epilog=example("latermq bench receive --concurrency 16"))
@load_options
@group_option
@broker_options
def receive(endpoint: str, as_json: bool, **options: Any) -> None:
    """Receive and acknowledge what is there, until the topic is empty or the time is up.

    Latency is that of a receive call.
    """
    _run("receive", receive_load, endpoint, as_json, options)


@bench.command("roundtrip", epilog=example("latermq bench roundtrip --rate 500 --duration 30s"))
@load_options
@send_options
@group_option
@broker_options
def roundtrip_(endpoint: str, as_json: bool, **options: Any) -> None:
    """Send, receive and acknowledge at the same time.

    Latency is from just before the send until a waiting receive has the message.
    """
    _run("roundtrip", roundtrip, endpoint, as_json, options)


def _run(
    name: str,
    run: Callable[[Target, Load], Awaitable[Report]],
    endpoint: str,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    checked_endpoint(endpoint)
    target = Target(
        endpoint=endpoint.strip(), topic=options["topic"], group=options.get("group", "")
    )
    load = Load(
        concurrency=options["concurrency"],
        duration_s=options["duration"] / 1000,
        count=options["count"],
        body_bytes=options.get("size", 0),
        rate=options.get("rate"),
        batch=options.get("batch", 1),
    )
    _require_room(load)
    with Connection(endpoint) as broker:
        if load.body_bytes:
            require_topic(broker, target.topic)
        else:  # nothing is sent: it must be there, and there is a route to what is not
            broker.call(broker.topics.GetTopic, topic_pb2.GetTopicRequest(name=target.topic))
    report = asyncio.run(_awaited(run(target, load)))
    if as_json:
        print_json({"bench": name, "endpoint": target.endpoint, **report.figures()})
    else:
        _print(name, target, load, report)
    if (failure := report.failure()) is not None:
        raise failure


def _require_room(load: Load) -> None:
    """Refuse what this process could not hold in memory."""
    call_bytes = load.batch * load.body_bytes
    if call_bytes > CALL_BYTES_MAX:
        raise RefusedError(
            f"--batch {load.batch} of --size {load.body_bytes}: more than {CALL_BYTES_MAX} bytes a "
            "call"
        )
    if load.concurrency * call_bytes > FLIGHT_BYTES_MAX:
        raise RefusedError(
            f"--concurrency {load.concurrency} with calls of {call_bytes} bytes: more than "
            f"{FLIGHT_BYTES_MAX} bytes at a time"
        )


async def _awaited(result: Awaitable[Report]) -> Report:
    return await result


def _print(name: str, target: Target, load: Load, report: Report) -> None:
    figures = report.figures()
    what = f"{counted(load.concurrency, 'call')} at a time"
    if load.body_bytes:
        what += f", {load.body_bytes:,} bytes a body"
        what += f", {load.batch} a send" if load.batch > 1 else ""
        what += f", {load.rate:,} messages/s wanted" if load.rate else ""
    click.echo(f"bench {name} at {target.endpoint}, topic {plain(target.topic)}: {what}")
    took = figures["seconds"]
    click.echo(f"  messages    {report.messages:,} in {took:.1f} s, {report.calls:,} calls")
    rate = f"{figures['messages_per_second']:,.0f} messages/s"
    click.echo(f"  throughput  {rate}, {figures['megabytes_per_second']:.2f} MB/s")
    shown = "   ".join(
        f"{label} {figures['latency_ms'][label]:.2f}" for label in ("p50", "p90", "p99", "max")
    )
    click.echo(f"  latency ms  {shown}")
    if report.missing is not None:
        click.echo(f"  missing     {report.missing:,}, doubled {report.doubled:,}")
    for text, times in sorted(report.errors.items(), key=lambda item: -item[1])[:5]:
        click.echo(f"  error       {counted(times, 'time')}: {plain(text)}")
