"""Every list on a terminal of 80 columns, with names as long as people give them."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from latermq_broker.delivery.failure import Failure
from latermq_broker.services.clients.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.cli_rig import CliRig

TOPIC: Final = "orders-of-the-whole-of-europe-and-asia"
GROUP: Final = "billing-of-the-whole-of-europe-and-asia"
CLIENT: Final = "worker-7f9c6d5b4-x2x9q@4711@0@2k3j4h5g6f"
MESSAGE_ID: Final = "01AABBCCDDEEFF00112233445566{:06X}"
FAILURE: Final = Failure("TimeoutError", "the bank did not answer within thirty seconds")
LISTS: Final = (
    "acl list", "client list", f"client list --group {GROUP}", f"client show {CLIENT}",
    "client show client-1", f"dead list {GROUP}", f"dead list {GROUP} --by signature", "group list",
    "limit list", f"pending blocked {GROUP}-fifo", "pending count", "pending list",
    f"pending list --group {GROUP}", "pending list --kind delayed", "pending list --kind in-flight",
    "schedule list", "topic list", "top --once", "user list",
)  # fmt: skip


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch, columns=80)
    try:
        fill(rig)
        yield rig
    finally:
        rig.close()


def fill(rig: CliRig) -> None:
    """Have some of everything that is listed."""
    rig.make_group(GROUP, attempts=1)
    rig.send_message(MESSAGE_ID.format(1), topic=TOPIC)
    (given,) = rig.receive(GROUP, topic=TOPIC, count=1)
    rig.engine.change_invisible(GROUP, given.handle, 0, rig.now_ms, failure=FAILURE)
    rig.ok("group", "alter", GROUP, "--max-attempts", "16", "--backoff", "10m")
    for number in (2, 3):
        rig.send_message(MESSAGE_ID.format(number), topic=TOPIC)
    given, _ = rig.receive(GROUP, topic=TOPIC, count=2, lease_ms=3_600_000)
    rig.engine.change_invisible(GROUP, given.handle, 0, rig.now_ms, failure=FAILURE)
    rig.send_message(MESSAGE_ID.format(4), topic=TOPIC, wait_ms=86_400_000)
    rig.ok("group", "create", f"{GROUP}-fifo", "--fifo")
    for scope, name in (("client", CLIENT), ("user", "*")):
        rig.ok("limit", "set", scope, name, "--sends", "1000000", "--bytes", "1G")
    rig.ok("user", "create", "shop-of-the-whole-of-europe-and-asia")
    rig.ok(
        "acl", "grant", "shop-of-the-whole-of-europe-and-asia", "--topic", TOPIC, "--right", "pub"
    )
    rig.ok("schedule", "create", "sweep-of-europe", "--topic", TOPIC, "--every", "15m")
    rig.sessions.put(
        Session(
            client_id=CLIENT,
            kind=ClientKind.PUSH_CONSUMER,
            group=GROUP,
            topics=frozenset({TOPIC}),
            settings=v2.Settings(),
            language="JAVA",
            version="5.2.0",
            seen_ms=rig.now_ms,
            peer="192.0.2.111:47110",
        )
    )


@pytest.mark.parametrize("words", LISTS)
def test_a_list_suits_80_columns(rig: CliRig, words: str) -> None:
    lines = rig.ok(*words.split()).splitlines()
    table = [line for line in lines if "`" not in line]  # no advice below it: a terminal wraps it
    assert max(map(len, table)) <= 80, "\n".join(lines)


@pytest.mark.parametrize("more", [(), ("--group", GROUP), ("--kind", "in-flight")])
def test_what_waits_has_its_client_its_id_and_its_time(rig: CliRig, more: tuple[str, ...]) -> None:
    header, *rows = rig.ok("pending", "list", *more).splitlines()
    for column in ("DUE IN", "KIND", "CLIENT", "MESSAGE…", "ID"):
        assert column in header.replace("MESSAGE ID", "MESSAGE…"), header
    (held,) = [row for row in rows if "in-flight" in row]
    assert "client-1" in held
    assert "00003" in held
    assert re.search(r"\b(59m|1h)\b", held)


def test_columns_that_say_nothing_make_room(rig: CliRig) -> None:
    header, row = rig.ok("pending", "list", "--kind", "delayed").splitlines()
    assert "CLIENT" not in header
    assert "FAILURE" not in header
    assert "000004" in row
