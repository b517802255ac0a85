"""The identities a push consumer receives under, one after the other.

The broker keeps a push consumer's leases alive for as long as the client behind them lives. When a
receive breaks off, its reply may have been lost with messages in it: nobody would ever settle
those, and they would stay leased while we live. So from then on the consumer receives under a new
client id; the old one lives until what it holds is settled and then says farewell, which frees
what it never got.

    present ──receive broke──→ stopped ──successor receives──→ retired ──nothing held──→ farewell

So it is with what was let go and the broker did not hear of.

A broker that has answered nothing for `SILENT_S` may have ended our leases: what nobody has begun
is handed to nobody then, and given back when it answers; the identity counts as broken, too. So it
is given back where we stood still ourselves, for longer than heartbeats are apart, and where the
broker says of one lease that it is over, for the others may be.

Work that outlasts one lost connection after the other would leave an old identity for each, with
its streams, heartbeats and messages. So when RETIRED_MAX of them hold something and the present
one breaks too, nothing new is received until everything of one is settled; the log says so.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from latermq._connection.session import FAREWELL_S_MAX, Session
from latermq._connection.silence import STANDSTILL_S
from latermq._connection.tasks import Tasks
from latermq._consuming.assignment import Assignment
from latermq._consuming.inbox import Window
from latermq._consuming.receiver import Receiver
from latermq._consuming.settle import LeaseSettler, give_all_back
from latermq._values.endpoints import Endpoints
from latermq._wire.messages import Arrival
from latermq.backoff import RECONNECT_BACKOFF
from latermq.delivery import Delivery, Outcome
from latermq.errors import ClosedError, LaterMQError

log = logging.getLogger("latermq.client")

RETIRED_MAX: Final = 16  # that hold something
# A retired identity tries to say farewell for so long; after that its silence says it. While more
# than RETIRED_MAX live, each is given FAREWELL_S_MAX.
RETIRED_FAREWELL_S_MAX: Final = 30.0

Arrived = Callable[["Identity", Delivery, str], None]
Left = Callable[[Delivery, Outcome], None]
Withdraw = Callable[[Callable[[Delivery], bool]], list[Delivery]]


class Identity:
    """One identity: its session, its receive loops, and every lease it holds."""

    def __init__(
        self,
        session: Session,
        window: Callable[[], Window],
        arrived: Arrived,
        left: Left,
        broken: Callable[[], None],
        withdraw: Withdraw,
    ) -> None:
        self.session = session
        session.silence.tell = self._silent
        session.silence.tell_gap = self._heard_again
        self.settler = LeaseSettler(
            session, self._left, unheard=self._mark_broken, lost=self._doubt
        )
        self.broke = False  # it may hold what nobody settles: not to receive under this one again
        self._assignment = Assignment(session, window, self._arrived, self._mark_broken)
        self._tell_arrived = arrived
        self._tell_left = left
        self._tell_broken = broken
        self._withdraw = withdraw
        self._tasks = Tasks()
        self._stale: set[Endpoints] = set()  # not heard for too long
        self._heard_again_s: dict[Endpoints, float] = {}  # after that, by the loop's clock
        self._held: dict[Delivery, Window] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def held_count(self) -> int:
        """Count the deliveries received and not settled."""
        return len(self._held)

    def held(self) -> list[Delivery]:
        """List the deliveries received and not settled."""
        return list(self._held)

    async def start(self) -> None:
        """Begin to receive. Raises what `Assignment.start` does."""
        await self._assignment.start()

    async def stop(self) -> None:
        """Receive no more; what is held can still be settled."""
        await self._assignment.cancel()

    async def idle(self) -> None:
        """Wait until nothing is held."""
        await self._idle.wait()

    async def leave(self, farewell_s_max: float = FAREWELL_S_MAX) -> None:
        """Stop and say farewell; nothing held can be settled after it."""
        await self.stop()
        await self._tasks.cancel()
        await self.session.close(farewell_s_max)

    def _arrived(self, arrival: Arrival, receiver: Receiver) -> None:
        delivery = Delivery(arrival, receiver.queue.endpoints, self.settler)
        delivery._since_s = asyncio.get_running_loop().time()
        receiver.window.enter(len(delivery.body))
        self._held[delivery] = receiver.window
        self._idle.clear()
        self._tell_arrived(self, delivery, arrival.damage)
        if self._is_old(delivery._endpoints, receiver.began_s):
            self._doubt(delivery._endpoints)

    def _left(self, delivery: Delivery, outcome: Outcome) -> None:
        self._held.pop(delivery).leave(len(delivery.body))
        if not self._held:
            self._idle.set()
        self._tell_left(delivery, outcome)

    def _mark_broken(self) -> None:
        self.broke = True
        self._tell_broken()

    def look(self) -> None:
        """Doubt what is held of brokers that were not heard for too long."""
        for endpoints in self.session.silence.stale():
            if endpoints not in self._stale:
                self._stand_still(endpoints)

    def _stand_still(self, endpoints: Endpoints) -> None:
        """Doubt what is held of a broker that was not heard for too long."""
        self._stale.add(endpoints)
        if self._doubt(endpoints) and not self.session.silence.is_known(endpoints):
            log.warning(
                "broker %s was not heard for more than %d s, for this process stood still: "
                "messages that it has not begun are given back", endpoints, STANDSTILL_S,
            )  # fmt: skip

    def _heard_again(self, endpoints: Endpoints) -> None:
        self._stand_still(endpoints)
        self._stale.discard(endpoints)
        self._heard_again_s[endpoints] = asyncio.get_running_loop().time()

    def _is_old(self, endpoints: Endpoints, began_s: float) -> bool:
        """Tell whether a reply may have been on its way while this process stood still.

        Args:
            began_s: when its receive began.
        """
        if began_s < self._heard_again_s.get(endpoints, 0.0):
            return True
        return self.session.silence.is_stale(endpoints)

    def _silent(self, endpoints: Endpoints) -> None:
        self._doubt(endpoints)
        self._mark_broken()

    def _doubt(self, endpoints: Endpoints) -> int:
        """Have nobody begin what is held of a broker, for its leases may be over: who began it
        would do what comes again. Returns: how much that was."""
        waiting = self._withdraw(
            lambda each: each._settler is self.settler and each._endpoints == endpoints
        )
        if waiting:
            self._tasks.start(self._return(endpoints, waiting), "latermq return of doubtful leases")
        return len(waiting)

    async def _return(self, endpoints: Endpoints, waiting: Sequence[Delivery]) -> None:
        await self.session.silence.over(endpoints)
        await give_all_back(waiting, insist=True)


class Identities:
    """The present identity, and those before it that still hold something.

    Args:
        withdraw: takes what waits and is chosen away from those who would begin it.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        window: Callable[[], Window],
        arrived: Arrived,
        left: Left,
        withdraw: Withdraw,
    ) -> None:
        self._open_session = open_session
        self._window = window
        self._arrived = arrived
        self._tell_left = left
        self._withdraw = withdraw
        self._settled = asyncio.Event()  # something, since it was cleared
        self._tasks = Tasks()
        self._identities: set[Identity] = set()
        self._renewing = False
        self.stands_still = False  # so many hold something that nothing new is received
        self.present = self._new_identity()

    async def start(self) -> None:
        """Begin to receive. Raises what `Assignment.start` does."""
        identity = self.present
        try:
            await identity.start()
        except ClosedError:
            if identity is self.present:
                raise
            # Its connection broke meanwhile, and its successor receives.

    def held(self) -> list[Delivery]:
        """List what is received and not settled, under any identity."""
        return [each for identity in self._identities for each in identity.held()]

    def look(self) -> None:
        """Withdraw what may be leased no more, because this process stood still."""
        for identity in self._identities:
            identity.look()

    async def stop(self) -> None:
        """Receive no more, under any identity."""
        self._renewing = True  # there will be no other one
        await self._tasks.cancel()
        await asyncio.gather(*(identity.stop() for identity in self._identities))

    async def leave(self) -> None:
        """Say farewell under every identity; `stop` comes before."""
        await asyncio.gather(*(identity.leave() for identity in self._identities))

    def _new_identity(self) -> Identity:
        identity = Identity(
            self._open_session(),
            self._window,
            self._arrived,
            self._left,
            self._broken,
            self._withdraw,
        )
        self._identities.add(identity)
        return identity

    def _left(self, delivery: Delivery, outcome: Outcome) -> None:
        self._settled.set()
        self._tell_left(delivery, outcome)

    def _broken(self) -> None:
        if self.present.broke and not self._renewing:
            self._renewing = True
            self._tasks.start(self._renew(), "latermq new identity")

    async def _renew(self) -> None:
        while self.present.broke:
            old = self.present
            await old.stop()
            await self._few_hold()
            self.present = await self._successor()
            self._tasks.start(self._retire(old), "latermq retired identity")
        self._renewing = False

    async def _few_hold(self) -> None:
        """Wait until at most RETIRED_MAX identities hold something."""
        while (count := sum(each.held_count > 0 for each in self._identities)) > RETIRED_MAX:
            if not self.stands_still:
                self.stands_still = True
                log.warning(
                    "receiving nothing new: connections broke while messages were in hand, now "
                    "under %d client ids; going on when all of one are settled", count,
                    extra={"count": count},
                )  # fmt: skip
            self._settled.clear()
            await self._settled.wait()
        self.stands_still = False

    async def _successor(self) -> Identity:
        """Return an identity that receives, as soon as the broker is there again."""
        retry = 0
        while True:
            retry += 1
            wait = RECONNECT_BACKOFF.wait(retry, random.random())
            await asyncio.sleep(wait.total_seconds())
            identity = self._new_identity()
            try:
                await identity.start()
            except LaterMQError as error:
                self.present.session.refusals.failed("start", "start", error)
                await identity.leave()
                self._identities.discard(identity)
            else:
                return identity

    async def _retire(self, old: Identity) -> None:
        await old.idle()
        crowded = len(self._identities) > RETIRED_MAX
        await old.leave(FAREWELL_S_MAX if crowded else RETIRED_FAREWELL_S_MAX)
        self._identities.discard(old)
