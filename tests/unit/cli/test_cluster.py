"""`latermq cluster`: a broker that is alone; directories with nothing to compare."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.observability.replication_figures import (
    OWNER,
    STANDBY,
    Member,
    MemberSeen,
    Others,
    ReplicationFigures,
)
from latermq_broker.replication.note import Note, write_note
from latermq_broker.store.files import RealFiles
from latermq_text.version import own_version
from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_a_broker_that_is_alone(rig: CliRig) -> None:
    rig.send_message("m-1")
    head, row = rig.ok("cluster", "show").splitlines()
    assert head.split()[:4] == ["SHARD", "ROLE", "BROKER", "EPOCH"]
    assert row.split()[:2] == ["0", "alone"]
    assert row.split()[-2:] == ["-", "-"]
    (shard,) = rig.json("cluster", "show")["shards"]
    assert (shard["role"], shard["position"] > 0, "epoch" in shard) == ("alone", True, False)


def test_who_stands_by_is_shown_with_the_owner(rig: CliRig) -> None:
    member = Member("10.0.0.2:8081", 0, STANDBY, 4, 4_096, 3, "1.4.0")
    seen = (
        MemberSeen("b:/data", member, 2_000, silent=False),
        MemberSeen("c:/data", member._replace(address="\x1b[2J"), 60_000, silent=True),
    )
    figures = ReplicationFigures(
        OWNER,
        "shop",
        4,
        8_192,
        20,
        Histogram(DURATION_MS),
        others=Others(seen, address="10.0.0.1:8081"),
    )
    rig.transport_view.replication = lambda: figures
    _, owner, standby, silent = rig.ok("cluster", "show").splitlines()
    assert owner.split()[:3] == ["0", "owner", "10.0.0.1:8081"]
    assert owner.split()[-4:] == ["-", "20", "ms", "ago"]
    said = "0 standby 10.0.0.2:8081 4 4096 3 entries 1.4.0 2 s ago -"
    assert " ".join(standby.split()) == said
    assert silent.split()[1:3] == ["silent", "\\x1b[2J"]
    (shard,) = rig.json("cluster", "show")["shards"]
    assert (shard["version"], shard["epoch"]) == (own_version(), 4)
    assert shard["members"][0] == {
        "name": "b:/data", "address": "10.0.0.2:8081", "role": "standby", "epoch": 4,
        "position": 4_096, "lag_entries": 3, "version": "1.4.0", "heard_ms_ago": 2_000,
        "silent": False, "ready": None, "checkpoint": None, "behind_bytes": None,
        "behind_ms": None,
    }  # fmt: skip
    assert [each["silent"] for each in shard["members"]] == [False, True]


def test_standbys_are_shown_with_how_far_they_are(rig: CliRig) -> None:
    (alone,) = rig.ok("cluster", "standby").splitlines()[1:]
    assert " ".join(alone.split())[:22] == "0 no replicated log - "
    (shard,) = rig.json("cluster", "standby")["shards"]
    assert (shard["role"], shard["standbys"]) == ("alone", [])
    said = Member("10.0.0.2:8081", 0, STANDBY, 4, 4_096, 3, "1.4.0", ready=True, checkpoint=1_024)
    owner = said._replace(role=OWNER, ready=None, checkpoint=None)
    seen = (
        MemberSeen("a:/data", owner, 900, silent=False),  # that it was, before this one
        MemberSeen("b:/data", said, 2_000, silent=False, behind_bytes=4_096, behind_ms=3_000),
        MemberSeen("c:/data", said._replace(ready=False), 0, silent=False, behind_bytes=1 << 20),
        MemberSeen("d:/data", owner._replace(role=STANDBY), 0, silent=False),  # an older version
        MemberSeen("e:/data", said, 60_000, silent=True),
    )
    figures = ReplicationFigures(
        OWNER, "shop", 4, 8_192, 20, Histogram(DURATION_MS), others=Others(seen)
    )
    rig.transport_view.replication = lambda: figures
    _, *lines = rig.ok("cluster", "standby").splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert rows[0] == "0 10.0.0.2:8081 yes 4 KiB 3 s 3 entries 4096 1024 2 s ago 1.4.0"
    assert rows[1] == "0 10.0.0.2:8081 no 1 MiB - 3 entries 4096 1024 0 ms ago 1.4.0"
    assert rows[2] == "0 10.0.0.2:8081 - - - 3 entries 4096 - 0 ms ago 1.4.0"
    assert rows[3].startswith("0 10.0.0.2:8081 silent ")
    (shard,) = rig.json("cluster", "standby")["shards"]
    assert (shard["cluster"], shard["position"]) == ("shop", 8_192)
    first, *_ = shard["standbys"]
    assert (first["ready"], first["checkpoint"]) == (True, 1_024)
    assert (first["behind_bytes"], first["behind_ms"]) == (4_096, 3_000)
    rig.transport_view.replication = lambda: figures._replace(others=Others())
    assert "nobody stands by" in rig.ok("cluster", "standby")


def test_a_log_that_nobody_else_keeps_is_not_handed_over(rig: CliRig) -> None:
    line = rig.refused("cluster", "hand-over")
    assert line.startswith("latermq: this broker is alone with its log")


def test_a_log_is_handed_over_to_somebody(rig: CliRig) -> None:
    """Refuse it only where nobody stands by: who hears itself in the members topic knows that."""
    asked: list[str] = []
    rig.transport_view.hand_over = lambda: asked.append("hand over")
    there = MemberSeen("b:/d", Member("b:1", 0, STANDBY, 4, 0, 0, "1"), 0, silent=False)
    for others, refused in (
        (Others(heard=True), True),
        (Others((there._replace(silent=True),), heard=True), True),
        (Others((there,), heard=True), False),
        (Others(), False),
    ):
        figures = ReplicationFigures(OWNER, "shop", 4, 0, 0, Histogram(DURATION_MS), others=others)
        rig.transport_view.replication = partial(ReplicationFigures._replace, figures)
        if refused:
            assert "nobody stands by for this log" in rig.refused("cluster", "hand-over")
            assert not asked
        else:
            assert "hands over the log of shop, epoch 4" in rig.ok("cluster", "hand-over")
    assert len(asked) == 2


def test_there_must_be_a_copy_and_its_log(rig: CliRig, tmp_path: Path) -> None:
    words = ("cluster", "verify", str(tmp_path))
    assert "is no copy of a replicated log" in rig.run(*words).stderr
    write_note(RealFiles(), tmp_path, Note("shop", 0))
    assert "no replicated log is named" in rig.run(*words).stderr
    file = tmp_path / "latermq.toml"
    file.write_text('[replication]\nkafka = "127.0.0.1:1"\ncluster = "other"\n')
    refused = rig.run(*words, "--config", str(file))
    assert (refused.exit_code, "is of the cluster 'shop', not of 'other'" in refused.stderr) == (
        2, True,
    )  # fmt: skip
