"""`latermq schedule`: create, list, show, pause, resume, run-now, remove, prune."""

from collections.abc import Iterator

import pytest

from latermq_broker.catalog.schedules import Schedule
from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


SWEEP = ("schedule", "create", "sweep", "--topic", "sweeps", "--every", "15m")


def test_the_life_of_a_schedule(rig: CliRig) -> None:
    assert "no schedules; `latermq schedule create" in rig.ok("schedule", "list")
    made = rig.ok(*SWEEP)
    assert made.startswith("schedule sweep: every 15m, next at 20")
    assert rig.ok(*SWEEP) == made
    rig.ok(
        "schedule", "create", "report", "--topic", "reports", "--cron", "0 6 * * 1-5",
        "--tz", "Europe/Berlin", "--missed", "skip", "--body", "routine", "--property", "a=b",
        "--tag", "daily", "--key", "k",
    )  # fmt: skip
    rig.advance(15 * 60_000)
    lines = rig.ok("schedule", "list").splitlines()
    assert lines[0].split() == ["SCHEDULE", "WHEN", "TOPIC", "NEXT", "LAST", "TICKS"]
    assert "0 6 * * 1-5 Europe/Berlin" in lines[1]
    assert lines[2].endswith(" 1")
    listed = rig.json("schedule", "list")
    assert [each["name"] for each in listed["schedules"]] == ["report", "sweep"]
    assert "body" not in listed["schedules"][0]
    shown = rig.ok("schedule", "show", "report")
    for words in (
        "missed      skip",
        "body        routine",
        "properties  a=b",
        "tag         daily",
    ):
        assert words in shown
    shown_json = rig.json("schedule", "show", "report")
    assert (shown_json["body"], shown_json["zone"]) == ("routine", "Europe/Berlin")
    assert rig.ok("schedule", "pause", "sweep") == "schedule sweep: every 15m, paused\n"
    assert " paused " in rig.ok("schedule", "list")
    assert "next        paused" in rig.ok("schedule", "show", "sweep")
    assert rig.ok("schedule", "run-now", "sweep").startswith("schedule sweep sent 01")
    assert "next at" in rig.ok("schedule", "resume", "sweep")
    assert rig.ok("schedule", "remove", "sweep", "--yes") == "schedule sweep removed\n"
    assert "schedule not found: sweep" in rig.missing("schedule", "show", "sweep")
    assert "pass --yes" in rig.refused("schedule", "remove", "report")


def test_another_one_of_that_name(rig: CliRig) -> None:
    rig.ok(*SWEEP)
    refused = rig.refused(*SWEEP[:-1], "30m")
    assert "is there already, with another every_ms; --replace alters it" in refused
    altered = rig.ok(*SWEEP[:-1], "30m", "--replace")
    assert "every 30m" in altered


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--every", "soon"), "'soon' is not a duration"),
        (("--every", "500ms"), "every 500 ms is not within 1000 ms"),
        ((), "needs either every_ms or cron"),
        (("--cron", "61 * * * *"), "cron '61 * * * *': bad minute (code 40000)"),
        (("--cron", "@daily", "--tz", "Mars/Base"), "time zone 'Mars/Base' is not known"),
        (("--every", "1m", "--missed", "some"), "'some' is not one of"),
        (("--every", "1m", "--body", "@/nowhere"), "/nowhere: No such file"),
    ],
)
def test_what_is_refused(rig: CliRig, words: tuple[str, ...], text: str) -> None:
    assert text in rig.refused("schedule", "create", "x", "--topic", "t", *words)


def test_one_that_failed(rig: CliRig) -> None:
    rig.ok(*SWEEP)
    rig.engine.topics.delete("sweeps", rig.now_ms)
    rig.advance(15 * 60_000)
    assert " failed " in rig.ok("schedule", "list")
    shown = rig.ok("schedule", "show", "sweep")
    assert "paused by the broker: topic not found: sweeps" in shown


def by(rig: CliRig, app: str, *names: str) -> None:
    """Have an app declare schedules, and its worker run and end."""
    for name in names:
        wanted = Schedule(name=name, topic="sweeps", every_ms=60_000)
        rig.engine.schedules.put(wanted, rig.now_ms, app=app)
    rig.engine.declarers.declare(app, "worker", names, rig.now_ms)


def test_those_that_no_code_has_any_more(rig: CliRig) -> None:
    rig.ok(*SWEEP)
    by(rig, "billing", "old", "older")
    by(rig, "module shop", "theirs")
    assert "declared" not in rig.ok("schedule", "list")
    assert "declared    by hand\n" in rig.ok("schedule", "show", "sweep")
    assert "declared    by billing, of which a worker runs\n" in rig.ok("schedule", "show", "old")
    assert "nothing to prune" in rig.ok("schedule", "prune", "--yes")
    for app in ("billing", "module shop"):
        rig.engine.declarers.end(app, "worker", rig.now_ms)
    listed = rig.ok("schedule", "list")
    assert "\nold: declared by no running worker since 20" in listed
    assert "`latermq schedule prune` removes" in listed
    assert "sweep: declared" not in listed
    entries = {each["name"]: each for each in rig.json("schedule", "list")["schedules"]}
    assert entries["old"]["undeclared_since_ms"]
    assert entries["old"]["declarers"][0]["app"] == "billing"
    assert not entries["sweep"]["undeclared_since_ms"]
    shown = rig.ok("schedule", "show", "theirs")
    assert "declared    by module shop, of which no worker runs since 20" in shown
    dry = rig.ok("schedule", "prune", "--app", "billing", "--dry-run")
    assert [line.partition(":")[0] for line in dry.splitlines()] == [
        "schedule old", "schedule older",
    ]  # fmt: skip
    assert "(of billing)" in dry
    assert "pass --yes" in rig.refused("schedule", "prune")
    assert "nothing to prune" in rig.ok("schedule", "prune", "--idle", "1h", "--yes")
    pruned = rig.ok("schedule", "prune", "--app", "billing", "--yes")
    assert pruned == "schedule old removed\nschedule older removed\n"
    pruned_json = rig.json("schedule", "prune", "--yes")
    assert pruned_json["removed"] is True
    assert [each["name"] for each in pruned_json["schedules"]] == ["theirs"]
    assert [each["name"] for each in rig.json("schedule", "list")["schedules"]] == ["sweep"]
    assert "'soon' is not a duration" in rig.refused("schedule", "prune", "--idle", "soon")
