"""Consumers of lite topics: the small queues inside a topic of type lite, each in order.

A group reads the lite topics of one parent, for good; each of its clients those it subscribes to.
Of a lite topic nothing more comes until what came is settled; one that fails comes again before
the rest. In an exclusive group a lite topic is its last subscriber's.
"""

from collections.abc import Callable

from latermq._connection.session import Session
from latermq._consuming.lite_topics import LiteTopics
from latermq.message import Begin
from latermq.middleware import Around
from latermq.push_consumer import PushConsumer
from latermq.simple_consumer import AskingConsumer


class LitePushConsumer(PushConsumer):
    """Made by `Client.lite_push_consumer`. Used as a `PushConsumer`; nothing comes before the first
    `subscribe`."""

    def __init__(
        self,
        open_session: Callable[[], Session],
        topics: LiteTopics,
        around: Around,
        *,
        concurrency: int | None,
        cached_count_max: int,
        cached_bytes_max: int,
    ) -> None:
        super().__init__(
            lambda: topics.attach(open_session()),
            around,
            concurrency=concurrency,
            cached_count_max=cached_count_max,
            cached_bytes_max=cached_bytes_max,
        )
        self._topics = topics

    @property
    def lite_topics(self) -> frozenset[str]:
        """Return what is subscribed to, as `LitePushConsumer.lite_topics`."""
        return self._topics.names

    async def subscribe(self, *lite_topics: str, begin: Begin | None = None) -> None:
        """Subscribe to lite topics, as `LitePushConsumer.subscribe`.

        Args:
            begin: where those that are new to this client begin, for the whole group. None: where
                the group is, at its oldest message if it never read of it.
        Raises:
            LiteQuotaError: they would be too many for one client.
            IllegalMessageError: against the rules of names.
            IllegalTopicError: no parent of lite topics, or not the group's.
            IllegalGroupError: the group reads whole topics.
            BadRequestError: either of it, when it is our settings that are refused for it.
            UnavailableError: no broker answers.
        """
        await self._topics.add(lite_topics, begin)

    async def unsubscribe(self, *lite_topics: str) -> None:
        """Unsubscribe from lite topics, as `LitePushConsumer.unsubscribe`."""
        await self._topics.remove(lite_topics)


class LiteSimpleConsumer(AskingConsumer):
    """Made by `Client.lite_simple_consumer`. A receive may bring several lite topics' messages."""

    def __init__(self, session: Session, topics: LiteTopics, around: Around) -> None:
        super().__init__(topics.attach(session), around)
        self._topics = topics

    @property
    def lite_topics(self) -> frozenset[str]:
        """Return what is subscribed to, as `LitePushConsumer.lite_topics`."""
        return self._topics.names

    async def subscribe(self, *lite_topics: str, begin: Begin | None = None) -> None:
        """Subscribe to lite topics, as `LitePushConsumer.subscribe`."""
        await self._topics.add(lite_topics, begin)

    async def unsubscribe(self, *lite_topics: str) -> None:
        """Unsubscribe from lite topics, as `LitePushConsumer.unsubscribe`."""
        await self._topics.remove(lite_topics)
