"""Whether the topics of a worker are still there: a receive on a deleted one waits as ever.

A topic that was there once and is not any more is told like a call that the broker refuses, and
makes the worker not ready, until somebody makes it again. One that was never there is no fault. (Of
a deleted group the broker tells each receive.)
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from latermq._connection.tasks import Tasks
from latermq._worker.declaring import SOON_S
from latermq.client import Client
from latermq.errors import LaterMQError, TopicNotFoundError, UnsupportedError
from latermq.push_consumer import PushConsumer
from latermq_proto.latermq.v1 import topic_pb2

LOOK_S: Final = 10.0


class TopicsThere:
    """Looks at the topics of listeners, from `begin` to `end`."""

    def __init__(
        self, client: Client, topics: Sequence[str], consumers: Sequence[PushConsumer]
    ) -> None:
        self._client = client
        self._consumers: dict[str, list[PushConsumer]] = {}  # by topic
        for topic, consumer in zip(topics, consumers, strict=True):
            self._consumers.setdefault(topic, []).append(consumer)
        self._seen: set[str] = set()
        self._tasks = Tasks()

    def begin(self) -> None:
        self._tasks.start(self._look_on(), "latermq topics are there")

    async def end(self) -> None:
        await self._tasks.cancel()

    async def _look_on(self) -> None:
        while True:
            for topic in self._consumers:
                try:
                    await self._look(topic)
                except UnsupportedError:
                    return
                except LaterMQError:  # it is away, or the user may not know: other calls tell
                    continue
            await asyncio.sleep(LOOK_S)

    async def _look(self, topic: str) -> None:
        """Look once. Raises what a call does, but TopicNotFoundError."""
        admin, missing = self._client.admin, None
        try:
            request = topic_pb2.GetTopicRequest(name=topic)
            await admin.call(admin.topics.GetTopic, request, timeout_s=SOON_S)
            self._seen.add(topic)
        except TopicNotFoundError as error:
            missing = error if topic in self._seen else None
        for consumer in self._consumers[topic]:
            refusals, key = consumer._session.refusals, ("there", topic)
            if missing is None:
                refusals.taken(key)
            else:
                refusals.failed(key, "look-up", missing, topic=topic)
