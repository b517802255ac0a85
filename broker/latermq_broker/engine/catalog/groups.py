"""Consumer groups: make, alter, delete, describe, reset."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import WEIGHT_MAX, BackoffKind, encode_group
from latermq_broker.catalog.shares import Shares, key_of, maker
from latermq_broker.delivery.leases.lease import State
from latermq_broker.delivery.order.fifo import FifoGate
from latermq_broker.engine.catalog.fresh_shares import FreshShares
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.lag import entering_per_s, lag_of
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.model import (
    Backoff,
    Group,
    GroupInfo,
    OnDead,
    Topic,
    TopicProgress,
)
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.errors import (
    BadRequestError,
    GroupNotFoundError,
    TooManyRequestsError,
)
from latermq_broker.store.records.catalog_records import (
    CONFIG_DELETE,
    CONFIG_GROUP,
    CONFIG_PUT,
    ConfigPayload,
    ResetPayload,
)
from latermq_broker.store.records.record import RecordType
from latermq_text.attempts import UNLIMITED
from latermq_text.backoffs import refusal_of_growth, refusal_of_jitter, refusal_of_ladder

FORGOTTEN_MAX: Final = 256  # deleted subscriptions that a group remembers
PAIRS_AT_ONCE: Final = 200  # groups on topics that are looked at in one turn of the loop


class GroupAdmin:
    """Names are checked by the edge; here only what the catalogue knows."""

    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self._shares = Shares(state.config.auth)
        self.fresh = FreshShares(state.limits)
        self.deleted: list[Callable[[str], None]] = []
        """Called with the name of a group that was deleted in this life, by whoever did it."""

    def ensure(self, name: str, now_ms: int, user: User | None = None) -> Group:
        """Find the group, or make it on first use where the configuration allows.

        Args:
            user: who uses it; has a share of all groups there may be.

        Raises GroupNotFoundError, TooManyRequestsError (group_count_max).
        """
        group = self._state.catalog.group(name)
        if group is not None:
            return group
        self.check_use(name, user, now_ms)
        group = self.create(
            name, fifo=False, max_attempts=0, backoff=None, now_ms=now_ms, made_by=maker(user)
        )
        self.fresh.note(group.made_by, now_ms)
        return group

    def check_use(self, name: str, user: User | None, now_ms: int) -> None:
        """Check that first use may make it, if it is not there. Raises as `ensure`."""
        if self._state.catalog.group(name) is not None:
            return
        if not self._state.config.catalog.auto_create_groups:
            raise GroupNotFoundError(name)
        catalog = self._state.catalog
        self._shares.check(
            user, "consumer groups", "catalog.group_count_max",
            self._state.config.catalog.group_count_max, catalog.group_count(),
            catalog.groups_made.get(key_of(user), 0) + self.fresh.unseen(key_of(user), now_ms),
        )  # fmt: skip

    def forget(self, name: str, topic_name: str, now_ms: int) -> None:
        """Leave the group's subscription to the topic out of lists until it receives of it again.

        Its progress stays. Of a group the FORGOTTEN_MAX newest are kept.
        Raises GroupNotFoundError, TopicNotFoundError.
        """
        catalog = self._state.catalog
        group, topic = catalog.require_group(name), catalog.require_topic(topic_name)
        known = {
            topic_id: at_ms
            for topic_id, at_ms in group.forgotten
            if topic_id != topic.id and catalog.topic_by_id(topic_id) is not None
        }
        forgotten = (*known.items(), (topic.id, now_ms))[-FORGOTTEN_MAX:]
        self._put(replace(group, forgotten=forgotten), now_ms)

    def create(
        self,
        name: str,
        *,
        fifo: bool,
        max_attempts: int,
        backoff: Backoff | None,
        now_ms: int,
        on_dead: OnDead = OnDead.SKIP,
        lite_parent: str = "",
        lite_exclusive: bool = False,
        made_by: str = "",
        weight: int = 0,
    ) -> Group:
        """Make the group; the same again is OK. max_attempts 0: the default, UNLIMITED: no last.
        weight 0: 1, or what the group has.

        Raises BadRequestError when it exists otherwise, or a value is out of bounds.
        """
        self._check(max_attempts, backoff)
        _check_on_dead(name, on_dead, fifo=fifo)
        _check_weight(weight)
        catalog, config = self._state.catalog, self._state.config
        existing = catalog.group(name)
        wanted = Group(
            id=catalog.next_group_id,
            name=name,
            fifo=fifo,
            max_attempts=max_attempts or config.delivery.max_attempts,
            backoff=backoff,
            created_ms=self._state.wall.at(now_ms),
            on_dead=on_dead,
            lite_parent=lite_parent,
            lite_exclusive=lite_exclusive,
            made_by=made_by,
            weight=weight or 1,
        )
        if existing is None:
            limit = config.catalog.group_count_max
            if catalog.group_count() >= limit:
                raise TooManyRequestsError(f"group {name} not created: {limit} groups is the limit")
            self._put(wanted, now_ms)
            self._state.announced.groups.add(name)
            return wanted
        known = replace(
            wanted,
            id=existing.id,
            created_ms=existing.created_ms,
            forgotten=existing.forgotten,
            made_by=existing.made_by,
            weight=weight or existing.weight,
        )
        if known != existing:
            raise BadRequestError(f"group {name} exists with another policy; alter it instead")
        return existing

    def alter(
        self,
        name: str,
        *,
        max_attempts: int,
        backoff: Backoff | None,
        clear_backoff: bool,
        now_ms: int,
        on_dead: OnDead | None = None,
        weight: int = 0,
    ) -> Group:
        """Alter the group: 0 and None leave as it is; clear_backoff: back to the default ladder.

        What is parked already stays so.
        """
        self._check(max_attempts, backoff)
        _check_weight(weight)
        group = self._state.catalog.require_group(name)
        if on_dead is not None:
            _check_on_dead(name, on_dead, fifo=group.fifo)
        changed = replace(
            group,
            max_attempts=max_attempts or group.max_attempts,
            backoff=None if clear_backoff else backoff or group.backoff,
            on_dead=on_dead or group.on_dead,
            weight=weight or group.weight,
        )
        if changed != group:
            self._put(changed, now_ms)
        return changed

    def delete(self, name: str, now_ms: int) -> None:
        """Delete the group, its progress, leases and retries; its dead letters stay readable."""
        group = self._state.catalog.require_group(name)
        payload = ConfigPayload(CONFIG_GROUP, CONFIG_DELETE, group.id, b"")
        self._journal.write(RecordType.CONFIG, payload, now_ms)
        for listener in self.deleted:
            listener(name)

    def describe(self, name: str, now_ms: int = 0) -> GroupInfo:
        """Describe the group; `now_ms` 0: without rates. Raises GroupNotFoundError."""
        group = self._state.catalog.require_group(name)
        topics: list[TopicProgress] = []
        for part in self.progress([group], now_ms):
            topics += [progress for _, progress in part]
        return GroupInfo(
            group=group,
            topics=tuple(sorted(topics)),
            dead_letter_count=self.dead_letter_count(group),
        )

    def progress(
        self, groups: Sequence[Group], now_ms: int
    ) -> Iterator[list[tuple[int, TopicProgress]]]:
        """Tell by group id how far each is with each of its topics, PAIRS_AT_ONCE at a time.

        Others may be made and deleted between two parts.
        """
        state = self._state
        pairs = self._pairs({group.id for group in groups})
        entering: dict[int, float] = {}
        for at in range(0, len(pairs), PAIRS_AT_ONCE):
            part: list[tuple[int, TopicProgress]] = []
            for key in pairs[at : at + PAIRS_AT_ONCE]:
                subscription = state.subscriptions.get(key)
                topic = state.catalog.topic_by_id(key[1])
                if subscription is None or topic is None:
                    continue
                if topic.id not in entering:
                    entering[topic.id] = entering_per_s(state, topic, now_ms) if now_ms else 0.0
                progress = self._progress(subscription, topic, entering[topic.id], now_ms)
                part.append((key[0], progress))
            yield part

    def _pairs(self, groups: set[int]) -> list[tuple[int, int]]:
        """Return the keys of these groups' subscriptions; those of a topic one after the other."""
        known, catalog = self._state.subscriptions, self._state.catalog
        if len(groups) * catalog.topic_count() < len(known):
            keys = ((group, topic.id) for topic in catalog.topics() for group in groups)
            return [key for key in keys if key in known]
        return sorted((key for key in known if key[0] in groups), key=itemgetter(1))

    def dead_letter_count(self, group: Group) -> int:
        """Count the letters neither redriven nor dropped."""
        topic = self._state.catalog.topic(group.dead_letter_topic)
        if topic is None:
            return 0
        queue = self._state.queue(topic.id, 0)
        return queue.next - queue.first - len(letters_of(self._state.dead, topic.id))

    def reset(self, name: str, topic_name: str, to_ms: int, now_ms: int) -> list[int]:
        """Set each queue's offset to the first message stored at or after `to_ms` (0: earliest),
        a time of day.

        Running leases and retries of the group on the topic are void. Returns the next offset per
        queue id. Raises GroupNotFoundError, TopicNotFoundError.
        """
        state = self._state
        group = self._state.catalog.require_group(name)
        topic = state.catalog.require_topic(topic_name)
        queues = [state.queue(topic.id, queue_id) for queue_id in range(topic.queue_count)]
        own_ms = state.wall.first_at(to_ms)
        offsets = tuple(q.offset_at(own_ms) if own_ms > 0 else q.first for q in queues)
        self._journal.write(RecordType.RESET, ResetPayload(group.id, topic.id, offsets), now_ms)
        return list(offsets)

    def _progress(
        self, subscription: Subscription, topic: Topic, in_per_s: float, now_ms: int
    ) -> TopicProgress:
        lag = lag_of(self._state, subscription, topic)
        flow = subscription.flow
        counts = subscription.counts
        gate = subscription.gate or FifoGate()
        return TopicProgress(
            topic=topic.name,
            ready_count=lag.ready_count + lag.held_count,
            in_flight_count=counts[State.LEASED],
            backoff_count=counts[State.BACKOFF],
            last_consumed_ms=self._state.wall.time_of_day(subscription.last_consumed_ms),
            held_count=lag.held_count,
            blocked_count=sum(group.blocked for group in gate.groups.values()),
            parked_count=sum(bool(group.parked) for group in gate.groups.values()),
            oldest_unread_ms=self._state.wall.time_of_day(lag.oldest_ms),
            in_per_s=in_per_s,
            out_per_s=flow.acked_lately.per_s(now_ms) if flow is not None and now_ms else 0.0,
            failed_per_s=flow.failed_lately.per_s(now_ms) if flow is not None and now_ms else 0.0,
        )

    def _put(self, group: Group, now_ms: int) -> None:
        payload = ConfigPayload(CONFIG_GROUP, CONFIG_PUT, group.id, encode_group(group))
        self._journal.write(RecordType.CONFIG, payload, now_ms)

    def _check(self, max_attempts: int, backoff: Backoff | None) -> None:
        limit = self._state.config.delivery.max_attempts_max
        if not 0 <= max_attempts <= limit and max_attempts != UNLIMITED:
            raise BadRequestError(
                f"max attempts {max_attempts} is not within 1 to {limit}, nor {UNLIMITED}: no last"
            )
        if backoff is not None:
            _check_backoff(backoff)


def _check_on_dead(name: str, on_dead: OnDead, *, fifo: bool) -> None:
    if on_dead is OnDead.PARK and not fifo:
        raise BadRequestError(f"group {name} keeps no order: only a fifo group can park")


def _check_weight(weight: int) -> None:
    if not 0 <= weight <= WEIGHT_MAX:
        raise BadRequestError(f"weight {weight} is not within 1 to {WEIGHT_MAX}")


def _check_backoff(backoff: Backoff) -> None:
    if backoff.kind is BackoffKind.EXPONENTIAL:
        wrong = refusal_of_growth(backoff.initial_ms, backoff.max_ms, backoff.multiplier)
    else:
        wrong = refusal_of_ladder(backoff.delays_ms)
    if refusal := refusal_of_jitter(backoff.jitter) or wrong:
        raise BadRequestError(f"backoff: {refusal}")
