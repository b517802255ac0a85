"""Watches the leases of what a push consumer has in hand.

The broker renews a lease for `RENEWED_FOR` since the message was received, as long as its consumer
lives; then the message comes again though a call still works on it. A consumer's `lease_max` counts
from the beginning of the call instead, and may be shorter or longer: of a call that lasts, the
broker is told when its lease ends. Shortly before the end of a lease there is one WARNING.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from latermq._connection.outages import log_failure
from latermq._consuming.settle import tell_lost
from latermq._values import arguments
from latermq.delivery import Delivery, Outcome, Until
from latermq.errors import InvalidReceiptHandleError, LaterMQError

log = logging.getLogger("latermq.client")

RENEWED_FOR: Final = timedelta(hours=3)  # by a broker whose `auto_renew_total_ms_max` is as it was
LEASE_MAX: Final = timedelta(hours=12)  # that a broker grants
LEASE_MIN: Final = timedelta(seconds=1)
WARNED_S_MAX: Final = 600.0  # before the end of a lease; of a short one its tenth
LOOK_S: Final = 10.0  # between two looks
BOUND_AFTER_S: Final = 30.0  # a call that is over before needs no word to the broker


def check_lease_max(lease_max: timedelta | None, *, broadcast: bool) -> None:
    """Raises TypeError, ValueError: no duration that a lease may last, or there is none."""
    if broadcast and lease_max is not None:
        raise ValueError("a broadcast has no lease: leave out lease_max")
    arguments.optional_duration("lease_max", lease_max)
    if lease_max is not None and not LEASE_MIN <= lease_max <= LEASE_MAX:
        raise ValueError(f"lease_max must be from 1 s to 12 h, not {lease_max}")


class Keeping:
    """The leases of what is in hand.

    Args:
        in_hand: the deliveries, as they come and go.
        lease_max: how long a call may keep its message; None: as long as the broker renews.
    """

    def __init__(self, in_hand: Mapping[Delivery, object], lease_max: timedelta | None) -> None:
        self._in_hand = in_hand
        self._lease_s = None if lease_max is None else lease_max.total_seconds()
        self._warned: set[Delivery] = set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        pause_s = LOOK_S if self._lease_s is None else min(LOOK_S, self._lease_s / 8)
        while True:
            await asyncio.sleep(pause_s)
            await asyncio.gather(*map(self._look, list(self._in_hand)))
            self._warned &= self._in_hand.keys()

    async def _look(self, delivery: Delivery) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._lease_s is not None and delivery._until is None:
            end_s = delivery._taken_s + self._lease_s
            if now_s - delivery._taken_s >= min(BOUND_AFTER_S, self._lease_s / 2):
                await self._bound(delivery, end_s, end_s - now_s)
        until = delivery._until
        if until is None:
            self._warn(delivery, delivery._since_s, RENEWED_FOR.total_seconds(), now_s)
        elif not until.by_hand and self._lease_s is not None:
            self._warn(delivery, delivery._taken_s, self._lease_s, now_s)

    async def _bound(self, delivery: Delivery, end_s: float, left_s: float) -> None:
        """Tell the broker when the lease ends."""
        try:
            await delivery._settler.extend(delivery, timedelta(seconds=max(left_s, 0)))
        except InvalidReceiptHandleError:
            if delivery._outcome is Outcome.LOST:
                tell_lost(delivery)
        except LaterMQError as error:
            log_failure(
                log, "lease not bounded yet", error,
                topic=delivery.topic, message_id=delivery.message_id,
            )  # fmt: skip
        else:
            delivery._until = Until(end_s, by_hand=False)

    def _warn(self, delivery: Delivery, since_s: float, lasting_s: float, now_s: float) -> None:
        left_s = since_s + lasting_s - now_s
        if left_s > min(WARNED_S_MAX, lasting_s / 10) or delivery in self._warned:
            return
        self._warned.add(delivery)
        log.warning(
            "message %s of topic %s is in hand for %d s: its lease ends in %d s, and then it comes "
            "again though its call goes on: call `extend`, or say a longer lease_max=",
            delivery.message_id, delivery.topic, now_s - since_s, max(left_s, 0),
            extra={"topic": delivery.topic, "message_id": delivery.message_id},
        )  # fmt: skip
