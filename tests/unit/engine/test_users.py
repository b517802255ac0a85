"""Users outlive checkpoints, replays and the segments their records stood in."""

from latermq_broker.catalog.access import Kind, Right
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles


def test_users_whose_records_are_in_dropped_segments() -> None:
    """The log carries its own beginning, users included: no checkpoint is needed."""
    files = MemoryFiles()
    rig = EngineRig(store=short_store(), files=files)
    rig.engine.users.create("shop", "a-secret", admin=False, now_ms=rig.now_ms)
    rig.engine.users.create("gone", "a-secret", admin=True, now_ms=rig.now_ms)
    rig.engine.users.grant("shop", Kind.TOPIC, "a*", frozenset({Right.PUB}), rig.now_ms)
    rig.engine.users.delete("gone", rig.now_ms)
    before = rig.engine.users.all()
    for index in range(60):
        rig.send(f"m-{index}", body=b"x" * 1_000)
    rig.advance(61_000)
    rig.retain()
    assert rig.engine.store.log.start > 0
    assert rig.crash().users.all() == before
    rig.engine.abandon()
    for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
        files.unlink(path)
    rig.engine = rig.reopened()
    assert rig.engine.users.all() == before
    assert [user.access_key for user in before] == ["shop"]


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    rig = EngineRig()
    users = rig.engine.users
    users.create("shop", "a-secret", admin=False, now_ms=rig.now_ms)
    users.grant("shop", Kind.TOPIC, "a*", frozenset({Right.PUB}), rig.now_ms)
    end, version = rig.engine.store.log.end, users.version
    users.grant("shop", Kind.TOPIC, "a*", frozenset({Right.PUB}), rig.now_ms)
    users.alter("shop", admin=False, disabled=None, now_ms=rig.now_ms)
    assert (rig.engine.store.log.end, users.version) == (end, version)
