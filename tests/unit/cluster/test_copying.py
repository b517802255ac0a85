"""A shard goes on asking for the catalogue, whatever it was given."""

import asyncio
import json
from typing import Any

import pytest

from latermq_broker.catalog.catalog import Group, Topic, TopicType, encode_group, encode_topic
from latermq_broker.cluster import shard as shard_module
from latermq_broker.cluster.catalogue_copy import CatalogueCopy
from latermq_broker.cluster.peers import PeerError
from latermq_broker.cluster.shard import Shard
from latermq_broker.services.call.answers import ok_status
from latermq_proto.latermq.v1 import cluster_pb2
from support.engine_rig import START_MS, EngineRig
from support.fake_committer import FakeCommitter
from support.machine import patient


class Answering(Shard):
    """Is given these answers of shard 0, one after the other, and then none."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.over = asyncio.Event()
        self._copied, self._news = asyncio.Event(), asyncio.Event()

    async def _answer(
        self, request: cluster_pb2.CopyCatalogueRequest
    ) -> cluster_pb2.CopyCatalogueResponse | None:
        if not self.answers:
            self.over.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, cluster_pb2.CopyCatalogueResponse)
        return answer


def newer(body: bytes) -> bytes:
    """Add a field that this version does not know."""
    return json.dumps({**json.loads(body), "since_a_newer_version": 1}).encode()


def unknown(body: bytes, field: str) -> bytes:
    """Give a field a value that this version does not know."""
    return json.dumps({**json.loads(body), field: "of a newer version"}).encode()


def answer_of(**given: Any) -> cluster_pb2.CopyCatalogueResponse:
    return cluster_pb2.CopyCatalogueResponse(status=ok_status(), version="a.1", log="l", **given)


def topic() -> bytes:
    rig = EngineRig()
    rig.engine.topics.create("orders", TopicType.NORMAL, 2, START_MS)
    made: Topic = rig.engine.catalog.require_topic("orders")
    rig.engine.abandon()
    return encode_topic(made)


def group() -> bytes:
    rig = EngineRig()
    rig.engine.groups.create("billing", fifo=False, max_attempts=3, backoff=None, now_ms=START_MS)
    made: Group = rig.engine.catalog.require_group("billing")
    rig.engine.abandon()
    return encode_group(made)


@pytest.mark.parametrize("what", ["topic", "type", "group", "limit", "user"])
async def test_what_a_newer_version_says_does_not_end_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """The task ended without a word, and the shard kept an old catalogue for ever."""
    monkeypatch.setattr(shard_module, "ASK_AGAIN_S", 0.0)
    unreadable = answer_of(
        topics={"topic": [newer(topic())], "type": [unknown(topic(), "type")]}.get(what, []),
        groups=[newer(group())] if what == "group" else [],
        limits=[b'{"scope": "of a newer version", "name": "x"}'] if what == "limit" else [],
        users=[b'{"access_key": "x"}'] if what == "user" else [],
    )
    rig = EngineRig()
    copy = CatalogueCopy(
        rig.engine, FakeCommitter(START_MS), tmp_path, 1, lambda pins: None,
        lambda name, group: None, has_users=True,
    )  # fmt: skip
    away = PeerError("shard 0 is away")
    shard = Answering([away, unreadable, unreadable, answer_of(topics=[topic()])])
    copying = asyncio.create_task(shard._keep_copying(copy))
    async with asyncio.timeout(patient(30)):
        over = asyncio.create_task(shard.over.wait())
        await asyncio.wait((copying, over), return_when=asyncio.FIRST_COMPLETED)
    assert not copying.done()
    assert rig.engine.catalog.topic("orders") is not None
    assert shard._copied.is_set()
    said = [each for each in caplog.records if "not copied" in each.message]
    assert len(said) == 2, "once each: away, and not to be read"
    copying.cancel()
    rig.engine.abandon()
