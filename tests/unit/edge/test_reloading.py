"""What settings read again change, and what they cannot."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.config.config import Config, LogConfig, ServerConfig, StoreConfig
from latermq_broker.config.core_bounds import StoreBounds
from latermq_broker.config.reloading import LIVE, LIVE_STANDING_BY, Settings
from latermq_broker.config.toml_file import to_toml
from latermq_broker.errors import ConfigError
from latermq_broker.observability import log as logs
from latermq_broker.observability.service_manager import ServiceNotices
from latermq_broker.pump.event_loop import Ending
from latermq_broker.reload import Reload

HOUR_MS: Final = 3_600_000
ROOT: Final = Path(__file__).resolve().parents[3]


class File:
    """Settings as they are read next."""

    def __init__(self, config: Config) -> None:
        self.config: Config | ConfigError = config

    def load(self) -> Config:
        if isinstance(self.config, ConfigError):
            raise self.config
        return self.config


def test_what_may_change_does_and_the_rest_is_named() -> None:
    file = File(Config())
    settings = Settings(file.load, Config())
    running = Config(server=ServerConfig(listen="0.0.0.0:9"))  # as a socket of systemd says
    file.config = Config(store=StoreConfig(retention_ms=HOUR_MS, sync_interval_ms=7))
    for changed in ({"store.retention_ms": HOUR_MS}, {}):
        reread = settings.reread(running)
        running = reread.config
        assert dict(reread.changed) == changed
        assert list(reread.waiting) == ["store.sync_interval_ms"]
        assert running.store == StoreConfig(retention_ms=HOUR_MS)
        assert running.server.listen == "0.0.0.0:9"
    assert settings.over(Config()).store.retention_ms == HOUR_MS
    file.config = Config()
    assert settings.reread(running).config.store == StoreConfig()


def test_bounds_stay_as_the_broker_has_them() -> None:
    bounds = StoreBounds(index_block_entries_max=64)
    running = Config(store=StoreConfig(bounds=bounds))
    settings = Settings(lambda: Config(store=StoreConfig(retention_ms=HOUR_MS)), Config())
    reread = settings.reread(running)
    assert dict(reread.changed) == {"store.retention_ms": HOUR_MS}
    assert reread.config.store.bounds == bounds


def test_one_that_stands_by_changes_its_log_alone() -> None:
    file = File(Config(log=LogConfig(level="debug"), store=StoreConfig(retention_ms=HOUR_MS)))
    settings = Settings(file.load, Config())
    reread = settings.reread(Config(), LIVE_STANDING_BY)
    assert dict(reread.changed) == {"log.level": "debug"}
    assert list(reread.waiting) == ["store.retention_ms"]
    assert dict(settings.reread(reread.config).changed) == {"store.retention_ms": HOUR_MS}


def test_an_error_changes_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up: list[LogConfig] = []
    monkeypatch.setattr(logs, "set_up", set_up.append)
    taken_on: list[Config] = []
    file = File(Config())
    manager = ServiceNotices({})
    reload = Reload(Settings(file.load, Config()), Config(), manager, taken_on.append)
    caplog.set_level(logging.INFO, logger="latermq")

    file.config = ConfigError("store.retention_ms", "must not be negative")
    reload()
    assert not taken_on
    assert caplog.records[-1].levelno == logging.ERROR
    assert caplog.records[-1].__dict__["reason"] == "store.retention_ms: must not be negative"

    file.config = Config(log=LogConfig(level="warning"), store=StoreConfig(sync_interval_ms=7))
    reload()
    assert set_up == [LogConfig(level="warning")]
    assert taken_on == [Config(log=LogConfig(level="warning"))]
    said = caplog.records[-1]
    assert said.getMessage() == "settings reloaded"
    assert said.__dict__["log.level"] == "warning"
    assert said.__dict__["needs_restart"] == "store.sync_interval_ms"

    reload()
    assert set_up == [LogConfig(level="warning")]
    assert caplog.records[-1].getMessage() == "settings reloaded, none changed"


def test_what_does_not_go_together_changes_nothing() -> None:
    """Each is right by itself; but the other one waits for a new start."""
    file = File(Config())
    settings = Settings(file.load, Config())
    running = Config()
    broken = replace(Config().store, retention_ms=HOUR_MS)
    file.config = Config(store=broken)

    def refuse(*_: object) -> None:
        raise ConfigError("store.retention_ms", "does not go with the rest")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StoreConfig, "__post_init__", refuse)
        with pytest.raises(ConfigError):
            settings.reread(running)
    assert dict(settings.reread(running).changed) == {"store.retention_ms": HOUR_MS}


def test_all_that_may_change_exists_and_is_documented() -> None:
    known = {
        f"{section}.{line.partition(' = ')[0]}"
        for section, _, body in (part.partition("]\n") for part in to_toml(Config()).split("["))
        for line in body.splitlines()
        if " = " in line
    }
    assert known >= LIVE > LIVE_STANDING_BY
    page = (ROOT / "docs/operating/install.md").read_text("utf-8")
    assert not [name for name in sorted(LIVE) if f"`{name}`" not in page]


async def test_calls_get_the_time_that_is_set_now() -> None:
    for waited_for, before, after in ((False, 10_000, 7), (True, 2_000, 8)):
        ending = Ending(ServerConfig(), waited_for=waited_for)
        assert ending.drain_ms_max == before
        ending.reconfigure(ServerConfig(drain_ms_max=7, replace_drain_ms_max=8))
        assert ending.drain_ms_max == after
        ending.signalled()
        ending.reconfigure(ServerConfig())
        assert ending.drain_ms_max == after
