"""The soak's result on one screen, and what of it breaks a promise."""

from collections import Counter
from datetime import UTC, datetime

from soak.honest import Ledger
from soak.watch import Slope, Watch
from support.retention_story import Story

Outcomes = dict[str, Counter[str]]


def table(
    minutes: float, seed: int, watch: Watch, flat: Slope, ledger: Ledger, story: Story,
    calm: Outcomes, rough: Outcomes, left: list[str], left_over: list[str], codes: list[int],
) -> tuple[str, list[str]]:  # fmt: skip
    """Markdown, and what is broken."""
    broken = [*ledger.broken[:5], *promises(flat, ledger, story, left, left_over, codes)]
    broken += [f"nothing happened in {name!r}" for name, told in calm.items() if not told]
    transport, totals = watch.last.transport, watch.last.totals
    most = [max(values) for values in zip(*watch.samples, strict=True)]
    rows = [
        ("when", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {minutes:.1f} minutes, seed {seed}"),
        ("memory", f"{flat.mib:.1f} MiB; {flat.growth_mib:+.2f} MiB from the third quarter to the "
                   f"last, allowed {flat.allowed_mib:.2f}"),
        ("most at once", f"{most[5]:,} calls, {most[6]:,} connections, {most[3]:,} tasks, "
                         f"{most[4]:,} deadline timers, {most[7]:,} waiting receives, "
                         f"{most[2]:,} files"),
        ("left at the end", "; ".join(left) or "nothing"),
        ("left after restarts", "; ".join(left_over) or "nothing"),
        ("calls, connections", f"{transport.calls:,}, {transport.connections:,}"),
        ("honest messages", ", ".join(f"{n:,} {what}" for what, n in ledger.counts.items())
                            + f", {len(ledger.owed):,} owed"),
        ("with restarts", f"{len(story.expected):,} waited or were given back, "
                          f"{len(story.missing):,} missing, "
            f"{story.expired_unread:,} expired before they were read",
        ),
        ("retention", f"{watch.last.retention.segments_dropped:,} segments dropped, "
                      f"{watch.last.retention.messages_moved:,} messages rolled forward"),
        ("p99 at the end", f"lateness {totals.lateness_p99_ms:.3g} ms, "
                           f"loop {totals.loop_lag_p99_ms:.3g} ms"),
        *((f"{each.kind}", f"{each.count:,} {each.reason}") for each in transport.others),
        *((name, told(outcomes, rough.get(name))) for name, outcomes in calm.items()),
    ]  # fmt: skip
    lines = ["| soak | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    return "\n".join(lines), broken


def promises(
    flat: Slope, ledger: Ledger, story: Story, left: list[str], left_over: list[str],
    codes: list[int],
) -> list[str]:  # fmt: skip
    broken = [f"left open: {one}" for one in (*left, *left_over)]
    if not flat.flat:
        broken.append(f"memory grew by {flat.growth_mib:.2f} MiB in {flat.minutes:.1f} minutes")
    if ledger.owed:
        broken.append(f"{len(ledger.owed)} messages are owed: {list(ledger.owed)[:3]}")
    if any(codes):
        broken.append(f"brokers ended with {codes}")
    try:
        story.check()
    except AssertionError as error:
        broken.append(f"with restarts: {error}")
    return broken


def told(calm: Counter[str], rough: Counter[str] | None) -> str:
    text = ", ".join(f"{count:,} {outcome}" for outcome, count in calm.most_common(4))
    return f"{text}; with restarts {rough.total():,}" if rough else text
