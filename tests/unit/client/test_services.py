"""Which service an app is of, what its name begins, and the word about another service."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import latermq
from latermq.errors import ForbiddenError
from latermq.kafka import KafkaApp
from latermq.testing import HeldBroker

module_app = latermq.App()


def made_here() -> latermq.App:
    return latermq.App()


@pytest.mark.parametrize(
    ("app", "service"),
    [
        (latermq.App(name="billing"), "billing"),
        (module_app, f"module {__name__}:module_app"),
        (made_here(), f"module {__name__}:made_here"),
    ],
)
def test_the_service_of_an_app(app: latermq.App, service: str) -> None:
    assert app._service() == service


def test_an_app_of_kafka_is_of_its_own_maker() -> None:
    app = KafkaApp({"bootstrap.servers": "localhost:1"})
    assert app._service() == f"module {__name__}:test_an_app_of_kafka_is_of_its_own_maker"
    assert KafkaApp({"bootstrap.servers": "localhost:1"}, name="b")._service() == "b"


def test_a_script_has_one_name_however_it_is_run(tmp_path: Path) -> None:
    text = "import latermq\napp = latermq.App()\nif True: print(app._service())\n"
    (tmp_path / "shop.py").write_text(text)
    for words in (["shop.py"], ["-m", "shop"], ["-c", "import shop"]):
        ran = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ran.stdout == "module shop:app\n"


def test_what_is_named_after_a_function_begins_with_the_app_s_name() -> None:
    app = latermq.App(name="billing-eu")

    @app.every("1h")
    def sweep() -> None: ...

    @app.every("1h", name="report")
    def write() -> None: ...

    @app.every("1h", payload="all")
    @app.listener("orders", group="mail")
    def mail(what: str) -> None: ...

    assert (sweep.topic, sweep.group, sweep.__name__) == ("billing-eu-sweep",) * 2 + ("sweep",)
    assert (write.topic, write.group) == ("report", "report")
    assert (mail.topic, mail.group) == ("orders", "mail")
    assert list(app._declared.schedules) == ["billing-eu-sweep", "report", "billing-eu-mail"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a" * 64, "%RETRY%a"])
def test_no_name_of_an_app(name: str) -> None:
    with pytest.raises(ValueError, match="name must be 1 to 63 of a-z"):
        latermq.App(name=name)


async def test_only_an_app_with_a_name_prunes() -> None:
    with pytest.raises(ValueError, match="prune needs App"):
        await latermq.App().declare(prune=True)
    with pytest.raises(TypeError, match="prune must be"):
        await latermq.App().declare(prune="yes")  # type: ignore[arg-type]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def app_of(name: str | None, *, other: bool = False) -> latermq.App:
    app = latermq.App(name=name)
    if other:

        @app.every("1h", name="sweep")
        async def sweep() -> None: ...

        @app.listener("news", group="all", broadcast=True)
        async def read(text: str) -> None: ...
    else:

        @app.every("1h", name="sweep")
        async def sweep() -> None: ...

        @app.listener("news", group="all", broadcast=True)
        async def read(text: str) -> None: ...

    return app


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [
        (app_of("billing"), app_of("shipping"), "billing (client "),
        (app_of(None), app_of("shipping"), f"module {__name__}:app_of (client "),
        (app_of(None), app_of(None, other=True), "another App of this process (client "),
        (app_of(None), app_of(None), ""),
        (app_of("billing"), app_of("billing", other=True), ""),
    ],
)
async def test_another_service_is_named(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture, before: latermq.App,
    after: latermq.App, who: str,
) -> None:  # fmt: skip
    async with latermq_time.working(before):
        assert warnings(caplog) == []
        async with latermq_time.working(after):
            said = warnings(caplog)
            assert len(said) == bool(who)
            assert (
                not who
                or (
                    f"group sweep: messages of topic sweep are taken by another service, too, {who}"
                )
                in said[0]
            )
    caplog.clear()
    async with latermq_time.working(after):
        assert warnings(caplog) == []


async def test_who_may_not_ask_works_without_the_word(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latermq.admin import AsyncAdmin

    asked = AsyncAdmin.call

    async def call(self: AsyncAdmin, method: object, *given: object, **more: object) -> object:
        if "ListServices" in str(method) or "DeclareSchedules" in str(method):
            raise ForbiddenError(40300, "no")
        return await asked(self, method, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncAdmin, "call", call)
    async with latermq_time.working(app_of("a")), latermq_time.working(app_of("b")):
        await latermq_time.advance("1m")
    assert warnings(caplog) == []
