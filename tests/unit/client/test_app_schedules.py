"""`App.every`, `App.cron`, `App.schedule`: what they may decorate, and what they ask the broker."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import latermq
from latermq._worker.schedules import Schedule


@dataclass
class Report:
    kind: str


@pytest.fixture
def app() -> latermq.App:
    return latermq.App()


def declared(app: latermq.App) -> dict[str, Schedule]:
    return app._declared.schedules


def test_a_function_of_ticks_has_a_topic_and_a_group_of_its_own(app: latermq.App) -> None:
    @app.every("15m")
    def sweep() -> str:
        """Sweeps."""
        return "swept"

    @app.cron("0 6 * * 1-5", tz="Europe/Berlin", name="report", missed="skip", tag="daily")
    async def write(tick: datetime) -> None: ...

    assert (sweep.topic, sweep.group, sweep.__name__, sweep.__doc__) == (
        "sweep", "sweep", "sweep", "Sweeps.",
    )  # fmt: skip
    assert sweep() == "swept"
    assert (write.topic, write.group) == ("report", "report")
    assert list(declared(app)) == ["sweep", "report"]
    asked = declared(app)["sweep"].wanted()
    assert (asked.every_ms, asked.body) == (900_000, b"")
    asked = declared(app)["report"].wanted()
    assert (asked.cron, asked.zone, asked.missed, asked.tag) == (
        "0 6 * * 1-5", "Europe/Berlin", asked.SKIP, "daily",
    )  # fmt: skip


def test_a_listener_is_sent_its_payload(app: latermq.App) -> None:
    @app.cron("@daily", name="morning", payload=Report("all"), keys=["k"])
    @app.every(timedelta(hours=1), payload=Report("short"))
    @app.listener("reports", group="reporters")
    async def report(what: Report) -> None: ...

    assert report.topic == "reports"
    assert app.listeners == (report,)
    assert {name: each.wanted().body for name, each in declared(app).items()} == {
        "report": b'{"kind":"short"}',
        "morning": b'{"kind":"all"}',
    }
    asked = declared(app)["morning"].wanted()
    assert asked.topic == "reports"
    assert dict(asked.properties) == {"content-type": "application/json"}
    assert list(asked.keys) == ["k"]


def test_one_for_others_to_listen_to(app: latermq.App) -> None:
    message = latermq.Message(b"x", properties={"a": "b"}, message_group="g")
    app.schedule("nightly", "orders", cron="0 3 * * *", message=message)
    asked = declared(app)["nightly"].wanted()
    assert (asked.topic, asked.body, asked.message_group) == ("orders", b"x", "g")


async def taking(delivery: latermq.Delivery) -> None: ...


async def reporting(what: Report) -> None: ...


async def ticking(tick: datetime) -> None: ...


async def two(first: int, second: int) -> None: ...


def later() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    ("function", "interval", "fields", "error", "said"),
    [
        (reporting, "15m", {}, ValueError, "reporting takes a payload: say payload="),
        (ticking, "15m", {"payload": Report("x")}, ValueError, "ticking takes no payload"),
        (two, "15m", {}, TypeError, "must take a payload"),
        (taking, "soon", {}, ValueError, "'soon' is not a duration"),
        (taking, "500ms", {}, ValueError, "at least a second"),
        (taking, 5, {}, TypeError, "every must be a timedelta"),
        (taking, "15m", {"missed": "some"}, ValueError, "missed must be one of skip, one, all"),
        (taking, "15m", {"delay": timedelta(seconds=1)}, ValueError, "has no delay"),
        (taking, "15m", {"deliver_at": later()}, ValueError, "has no deliver_at"),
        (taking, "15m", {"dedup_id": "x"}, ValueError, "has no dedup_id"),
        (taking, "15m", {"payload": 5}, TypeError, "body must be bytes"),
        (3, "15m", {}, TypeError, "function"),
    ],
)
def test_what_is_refused(
    app: latermq.App, function: Any, interval: Any, fields: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        app.every(interval, **fields)(function)


def test_a_name_is_given_once(app: latermq.App) -> None:
    app.every("1m")(taking)
    with pytest.raises(ValueError, match="schedule taking is declared twice"):
        app.every("2m")(taking)
    with pytest.raises(ValueError, match="needs either every or cron"):
        app.schedule("both", "orders", every="1m", cron="@daily")
