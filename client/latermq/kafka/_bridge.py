"""One listener between Kafka and LaterMQ: what becomes of a record on either side.

Kafka ─→ treat ── handler raises, or its key is on a detour ─→ the retry topic at LaterMQ
                                                                     │ when due
  ↑ written again, for this group (`republish`)                      ↓
  └───────────────────────────────────────────────────────────── again ─→ the same handler
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple

from latermq._consuming.figures import Figures
from latermq._values.failure import class_name_of, exc_info, tell, text_of
from latermq._worker.verdicts import Judge, Rules
from latermq.admin import PAGE_SIZE_MAX, AsyncAdmin
from latermq.backoff import RECONNECT_BACKOFF, WAIT_MAX
from latermq.client import Client
from latermq.delivery import Delivery, Outcome
from latermq.errors import LaterMQError
from latermq.kafka._detours import WORTH_ANOTHER_TRY, Detours
from latermq.kafka._first import FAILURE_PROPERTY, FirstFailure
from latermq.kafka._handler import Handler
from latermq.kafka._record import (
    BadRecordError,
    Record,
    message_group_of,
    message_of,
    owned_record_of,
)
from latermq.kafka._republish import Republisher
from latermq.message import Message
from latermq_proto.latermq.v1 import dead_letter_pb2, group_pb2, message_pb2

log = logging.getLogger("latermq.kafka")


class Place(NamedTuple):
    """Where a listener's records are, at Kafka and at LaterMQ."""

    topic: str
    group: str
    retry_topic: str
    ordered: bool


class KafkaFailedError(Exception):
    """What stands in `Delivery` for the failure that was told with its record."""


class Bridge:
    """What a listener does while its app serves.

    Args:
        republisher: writes records that are due to their topic again; None: the handler gets them.
    """

    def __init__(
        self,
        place: Place,
        handler: Handler,
        rules: Rules,
        client: Callable[[], Client],
        republisher: Republisher | None,
    ) -> None:
        self.place = place
        self.handler = handler
        self.detours = Detours(BrokersLane(place, client)) if place.ordered else None
        self.figures = Figures(monotonic)  # of attempts at Kafka
        self.behind = 0  # handed over without one: their key waits at LaterMQ
        self._strangers: set[tuple[str, str]] = set()  # topics and groups of records not its own
        self._judge = Judge(rules)
        self._client = client
        self._republisher = republisher

    async def treat(self, record: Record, is_lost: Callable[[], bool]) -> None:
        """Do with a record of Kafka what is to be done; its offset is committed afterwards.

        Raises:
            RequestError: LaterMQ refuses it.
        """
        if self.detours is not None and message_group_of(record) in self.detours:
            await self._hand_over(record, None)
            self.behind += 1
            return
        try:
            await self.handler(record)
        except Exception as error:  # noqa: BLE001  its messages have to end
            if is_lost():
                return  # whoever has the partition now treats it
            verdict = self._judge.verdict(error)
            first = FirstFailure.now(error, verdict, record.attempt)
            tell(
                log, logging.WARNING, "%s: attempt %d by %s failed, to LaterMQ: %s: %s",
                record.place, record.attempt, self.place.group, class_name_of(error),
                text_of(error),
                exc_info=exc_info(error) if verdict.outcome is not Outcome.RETURNED else None,
            )  # fmt: skip
            await self._hand_over(record, first)
            self.figures.left(self.place.topic, verdict.outcome)
        else:
            if is_lost():
                return
            self._judge.succeeded()
            self.figures.left(self.place.topic, Outcome.ACKNOWLEDGED)

    async def again(self, delivery: Delivery) -> None:
        """Do with a record that LaterMQ brings what is to be done. Raises what the handler does."""
        try:
            record, group = owned_record_of(delivery.body, delivery.properties)
        except BadRecordError as error:
            await delivery.dead_letter(str(error), error)
            return
        if record.topic != self.place.topic or group not in ("", self.place.group):
            self._pass_over(record, group)
            return
        record = replace(record, attempt=delivery.attempt)
        first = FirstFailure.of(delivery.properties)
        if first is not None and delivery.attempt == 1 and await self._only_told(delivery, first):
            return
        if self._republisher is None:
            await self.handler(record)
            return
        made = 1 if first is None else first.counted
        attempt = 1 if made >= delivery._settler.retry.max_attempts else made + 1  # 1: redriven
        await self._republisher.write(record, self.place.group, attempt)

    def _pass_over(self, record: Record, group: str) -> None:
        """Acknowledge another group's record for this group alone: its own group has it, too."""
        if (record.topic, group) not in self._strangers:
            self._strangers.add((record.topic, group))
            log.warning(
                "%s has records of topic %s for group %s: passed over by %s, for they are not its "
                "own. Give each group and topic a retry_topic of its own",
                self.place.retry_topic, record.topic, group, self.place.group,
                extra={"topic": record.topic, "group": group},
            )  # fmt: skip

    async def _only_told(self, delivery: Delivery, first: FirstFailure) -> bool:
        """Tell the broker of the attempt at Kafka; False: it knows, and the next one begins.

        One that was given back is told again and again, as it is uncounted, until its wait is over.
        """
        policy = delivery._settler.retry
        verdict = first.verdict._replace(failure=first.failure)
        over = verdict.outcome is Outcome.FAILED and first.attempts >= policy.max_attempts
        wait = policy.wait(first.attempts) if verdict.after is None else verdict.after
        left = first.left_of(wait)
        if verdict.outcome is Outcome.RETURNED and not left:
            return False
        if over or verdict.outcome is Outcome.DEAD_LETTERED or not left:
            if await self._was_dead(delivery):
                return False
            if over:
                verdict = verdict._replace(outcome=Outcome.DEAD_LETTERED)
        if verdict.after is not None or first.attempts > 1 or not left:
            verdict = verdict._replace(after=min(left, WAIT_MAX))  # else: as the group's policy is
        delivery._verdict = verdict
        await delivery._settler.end(delivery, KafkaFailedError())
        return True

    async def _was_dead(self, delivery: Delivery) -> bool:
        """Tell whether the message was a letter before, so that somebody redrove it."""
        request = message_pb2.DescribeMessageRequest(
            message_id=delivery.message_id, topic=delivery.topic
        )
        admin = self._client()._admin_at(delivery._endpoints)
        try:
            answer = await admin.call(admin.messages.DescribeMessage, request)
        except LaterMQError as error:
            log.warning("not known whether %s was redriven: %s", delivery.message_id, error)
            return False
        return any(
            life.group == self.place.group and life.dead_state == dead_letter_pb2.REDRIVEN
            for each in answer.lives
            for life in each.groups
        )

    async def _hand_over(self, record: Record, first: FirstFailure | None) -> None:
        """Store a record at LaterMQ, however long that takes."""
        properties = {} if first is None else {FAILURE_PROPERTY: first.line()}
        message_group = message_group_of(record) if self.place.ordered else None
        message = message_of(record, self.place.group, properties, message_group)
        if self.detours is None or message_group is None:
            await self._store(message)
        else:
            await self.detours.send(message_group, lambda: self._store(message))

    async def _store(self, message: Message) -> None:
        retry = 0
        while True:
            try:
                await self._client()._sender().send_one(self.place.retry_topic, message)
            except WORTH_ANOTHER_TRY as error:
                retry += 1
                if retry == 1:
                    log.warning("a record waits for LaterMQ: %s", error)
                wait: timedelta = RECONNECT_BACKOFF.wait(retry, random.random())
                await asyncio.sleep(wait.total_seconds())
            else:
                return


class BrokersLane:
    """The FIFO group of an ordered listener, asked where its topic is."""

    def __init__(self, place: Place, client: Callable[[], Client]) -> None:
        self._place = place
        self._client = client

    async def unread(self) -> int:
        """Count messages that the group was never given, and that wait behind nothing."""
        admin = await self._admin()
        request = group_pb2.GetGroupRequest(name=self._place.group)
        answer = await admin.call(admin.groups.GetGroup, request)
        for each in answer.group.topics:
            if each.topic == self._place.retry_topic:
                return int(each.ready_count - each.held_count)
        return 0  # it has no message: a group that reads a topic knows it

    async def busy(self) -> set[str]:
        """Name the message groups of which something is neither done nor dead."""
        admin = await self._admin()
        names: set[str] = set()
        token = ""
        while True:
            request = group_pb2.ListMessageGroupsRequest(
                group=self._place.group,
                topic=self._place.retry_topic,
                page_size=PAGE_SIZE_MAX,
                page_token=token,
            )
            answer = await admin.call(admin.groups.ListMessageGroups, request)
            names.update(each.name for each in answer.message_groups)
            token = answer.next_page_token
            if not token:
                return names

    async def _admin(self) -> AsyncAdmin:
        client = self._client()
        route: Any = await client._sender()._session.route(self._place.retry_topic)
        return client._admin_at(route.writable[0].endpoints)
