"""Whose instructions they are, in a dump of callgrind's made by hand."""

from pathlib import Path

import pytest

from bench import callgrind

DUMP = """\
version: 1
positions: line
events: Ir

ob=(1) /site/latermq_native__mypyc.so
fl=(1) ???
fn=(1) CPyDef_leases___Leases___take
0 100
cob=(2) /lib/libpython3.11.so
cfi=(2) ???
cfn=(2) _PyObject_Malloc
calls=3 0
0 30
cfn=(3) _PyDict_Find
calls=1 0
0 60

ob=(1)
fn=(4) CPyDef_ack___Acks___ack'2
+1 50
cfn=(3)
calls=1 0
0 20
cob=(3) /site/google/_upb/_message.so
cfn=(5) parse
calls=2 0
* 7

ob=(2)
fn=(2)
0 30

fn=(3)
0 40
cfn=(6) memcmp
calls=8 0
0 40

fn=(6)
0 40

ob=(3)
fn=(5)
0 7

totals: 267
"""
MODULES = callgrind.rooms_of_modules(
    {
        "latermq_broker.delivery.leases.leases": "delivery/leases",
        "latermq_broker.services.messaging.ack": "services/messaging",
    }
)


@pytest.fixture
def profile(tmp_path: Path) -> callgrind.Profile:
    dump = tmp_path / "callgrind.out.1"
    dump.write_text(DUMP, encoding="utf-8")
    return callgrind.read(dump)


def test_every_instruction_and_allocation_is_read(profile: callgrind.Profile) -> None:
    assert profile.instructions == 267
    assert profile.allocations == 3


def test_a_helper_s_cost_goes_to_its_callers_by_what_they_spent_in_it(
    profile: callgrind.Profile,
) -> None:
    rooms = callgrind.by_room(profile, MODULES)
    # 80 of the dictionary and of what it calls: three quarters for leases, a quarter for acks.
    assert rooms["delivery/leases"] == pytest.approx(100 + 30 + 60, abs=2)
    assert rooms["services/messaging"] == pytest.approx(50 + 20, abs=2)
    assert rooms["protobuf"] == 7
    assert sum(rooms.values()) == pytest.approx(267, abs=3)


CALLING_BACK = """\
events: Ir

ob=(1) /site/latermq_native__mypyc.so
fn=(1) CPyDef_ack___Acks___ack
0 10
cob=(2) /lib/libpython3.11.so
cfn=(2) PyObject_Call
calls=1 0
0 1040
fn=(3) CPyDef_leases___Leases___take
0 500
cob=(2)
cfn=(2)
calls=3 0
0 60

ob=(2)
fn=(2)
0 100
cob=(1)
cfn=(3)
calls=1 0
0 1000

totals: 610
"""


def test_a_helper_that_calls_a_room_costs_its_callers_by_how_often_they_call(
    tmp_path: Path,
) -> None:
    dump = tmp_path / "callgrind.out.2"
    dump.write_text(CALLING_BACK, encoding="utf-8")
    rooms = callgrind.by_room(callgrind.read(dump), MODULES)
    assert rooms["services/messaging"] == 10 + 25
    assert rooms["delivery/leases"] == 500 + 75
