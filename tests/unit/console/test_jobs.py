"""Redrives and drops that a page began, when the broker does not bring them to their end."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import EVERY, Jobs, Plan
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2


@pytest.mark.parametrize(("done", "state"), [(True, "done"), (False, "failed")])
async def test_a_job_is_done_when_the_broker_says_so(
    monkeypatch: pytest.MonkeyPatch, done: bool, state: str
) -> None:
    async def stream(*_: Any) -> AsyncGenerator[dead_letter_pb2.DeadLetterProgress, None]:
        progress = dead_letter_pb2.DeadLetterProgress(changed_count=7, done=done)
        progress.status.code = definition_pb2.OK
        yield progress

    monkeypatch.setattr(Desk, "stream", stream)
    jobs, desk = Jobs(), Desk("127.0.0.1:1", False)
    plan = Plan(group="billing", verb="redrive", filter=EVERY)
    job = jobs.begin(desk, "billing", plan, "", {}, expected=1_000)
    assert job.task is not None
    await asyncio.wait((job.task,))
    assert (job.state, job.changed) == (state, 7)
    assert done or "before it was done" in job.last_error
    await desk.close()
