"""A log, and copies of it that go on by themselves: whose receipts does each of them take?

A receipt is good in the log that gave it and in copies that were made later, for the lease that it
was given for, over any restart. No other log takes it, nor ends, extends or buries anything by it.
"""

from copy import copy
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.engine.state.model import Delivered
from latermq_broker.errors import InvalidReceiptHandleError
from support.engine_rig import EngineRig
from support.memory_files import MemoryFiles, lose_checkpoints

LOGS_MAX: Final = 4
LEASE_MS: Final = 600_000


class Branch:
    """One log, the receipts that it knows, and those of them that are good."""

    def __init__(self, rig: EngineRig) -> None:
        self.rig = rig
        self.given: set[str] = set()
        self.held: dict[str, str] = {}  # message: receipt

    def gave(self, name: str, handle: str) -> None:
        assert handle not in self.given, "a receipt of this log's past"
        self.given.add(handle)
        self.held[name] = handle


class Copies(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.branches = [Branch(EngineRig())]
        self.owners: dict[str, int] = {}  # receipt: in how many logs it was given out
        self.count = 0

    def pick(self, data: st.DataObject) -> Branch:
        return data.draw(st.sampled_from(self.branches))

    def take(self, branch: Branch, name: str, handle: str) -> None:
        branch.gave(name, handle)
        self.owners[handle] = self.owners.get(handle, 0) + 1
        assert self.owners[handle] == 1, "two logs gave one receipt"

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self.count += 1
        self.pick(data).rig.send(f"m{self.count}")

    @rule(data=st.data(), count=st.integers(1, 9))
    def receive(self, data: st.DataObject, count: int) -> None:
        branch = self.pick(data)
        for one in branch.rig.receive(count=count, lease_ms=LEASE_MS):
            self.take(branch, name_of(one), one.handle)

    @precondition(lambda self: any(branch.held for branch in self.branches))
    @rule(data=st.data(), verb=st.sampled_from(["ack", "nack", "suspend", "extend", "move"]))
    def answer(self, data: st.DataObject, verb: str) -> None:
        branch = data.draw(st.sampled_from([each for each in self.branches if each.held]))
        name = data.draw(st.sampled_from(sorted(branch.held)))
        handle, engine, now_ms = branch.held[name], branch.rig.engine, branch.rig.now_ms
        if verb == "ack":
            assert engine.ack("billing", [handle], now_ms) == [None]
            del branch.held[name]
        else:
            again = engine.change_invisible(
                "billing", handle, LEASE_MS if verb in ("extend", "move") else 1, now_ms,
                suspend=verb == "suspend", extends=verb == "extend",
                repeatable=verb in ("nack", "suspend"),
            )  # fmt: skip
            if verb == "extend":
                assert again == handle
            elif verb == "move":
                self.take(branch, name, again)
            else:
                self.take(branch, name, again)
                del branch.held[name]
                branch.rig.advance(1)
        engine.write()

    @rule(data=st.data())
    def leases_end(self, data: st.DataObject) -> None:
        branch = self.pick(data)
        branch.rig.advance(LEASE_MS)
        branch.held.clear()

    @rule(data=st.data(), how=st.sampled_from(["crash", "stop", "checkpoint"]))
    def start_again(self, data: st.DataObject, how: str) -> None:
        rig = self.pick(data).rig
        if how == "checkpoint":
            rig.checkpoint()
        elif how == "stop":
            rig.restart()
        else:
            rig.crash()

    @precondition(lambda self: len(self.branches) < LOGS_MAX)
    @rule(data=st.data(), checkpoint=st.booleans())
    def copy(self, data: st.DataObject, checkpoint: bool) -> None:
        """Take a backup of the running broker, and start one on it."""
        branch = self.pick(data)
        branch.rig.engine.write()
        rig = copy(branch.rig)
        assert isinstance(branch.rig.files, MemoryFiles)
        rig.files = MemoryFiles(branch.rig.files.disk.clone())
        if not checkpoint:
            lose_checkpoints(rig.files)
        rig.engine = rig.reopened()
        other = Branch(rig)
        other.given, other.held = set(branch.given), dict(branch.held)
        self.branches.append(other)

    @invariant()
    def each_takes_its_own(self) -> None:
        handles = sorted(self.owners)
        for branch in self.branches:
            engine, now_ms = branch.rig.engine, branch.rig.now_ms
            for handle in branch.held.values():
                assert (
                    engine.change_invisible("billing", handle, LEASE_MS, now_ms, extends=True)
                    == handle
                )
            for handle in handles:
                if handle not in branch.given:
                    [answer] = engine.ack("billing", [handle], now_ms)
                    assert isinstance(answer, InvalidReceiptHandleError)
            engine.write()


def name_of(one: Delivered) -> str:
    return bytes(one.sys).decode()


TestCopies = Copies.TestCase
TestCopies.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
