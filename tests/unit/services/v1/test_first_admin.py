"""What a start says of secrets: short ones, and those that others can overhear."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.config import Config
from latermq_broker.services.v1.first_admin import look_at_the_door
from support.engine_rig import EngineRig

LONG, SHORT = "sixteen-letters-", "fifteen-letters"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    with caplog.at_level(logging.WARNING):
        yield caplog.messages


def started(rig: EngineRig, tmp_path: Path, auth: AuthConfig, *shards: str) -> None:
    (tmp_path / "log").mkdir(mode=0o700)
    config = Config(auth=auth, cluster=ClusterConfig(shards=shards))
    config = replace(config, server=replace(config.server, data_dir=str(tmp_path)))
    look_at_the_door(rig.engine, config, "log", rig.now_ms)


@pytest.mark.parametrize(("root", "count"), [(LONG, 1), (SHORT, 2)])
def test_short_secrets_go_on_and_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, root: str, count: int
) -> None:
    rig = EngineRig()
    for name, secret in (("ann", LONG), ("bob", SHORT), ("gone", SHORT)):
        rig.engine.users.create(name, secret, admin=False, now_ms=rig.now_ms)
    rig.engine.users.alter("gone", admin=None, disabled=True, now_ms=rig.now_ms)
    started(rig, tmp_path, AuthConfig(enabled=True, root_access_key="root", root_secret_key=root))
    (line,) = caplog.records
    users = "root, bob" if root is SHORT else "bob"
    assert (vars(line)["users"], vars(line)["count"]) == (users, count)
    assert SHORT not in str(vars(line))


@pytest.mark.parametrize(
    ("shards", "warns"),
    [
        ((), False),
        (("127.0.0.1:81", "127.0.0.2:82"), False),
        (("127.0.0.1:81", "10.0.0.2:82"), True),
        (("shard-0:81", "shard-1:82"), True),
    ],
)
def test_shards_that_can_be_overheard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shards: tuple[str, ...], warns: bool
) -> None:
    auth = AuthConfig(enabled=True, root_access_key="root", root_secret_key=LONG)
    started(EngineRig(), tmp_path, auth, *shards)
    assert ["between shards in clear text" in each for each in caplog.messages] == [True] * warns
