"""Receives of a group that reads lite topics: what the lite topics of one client may give.

A client is given messages of any lite topic it subscribes to, several in a reply, and of each lite
topic the next ones in order; nothing more of it until they are done. Retries keep their place. The
rules within a lite topic are those of message groups (`ordered_lane.py`); different is where fresh
messages are found: by lite topic, so that nothing is looked at that is not wanted.
"""

from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.delivery.order.lite import LiteParent, LiteReader
from latermq_broker.engine.receive.ordered_lane import OrderedLane, Receive
from latermq_broker.engine.state.state import lite_reader
from latermq_broker.errors import StoreFullError
from latermq_broker.store.records.lease_records import NO_QUEUE, ORDERED_TAKE, OrderedRow


class LiteLane(OrderedLane):
    def receive(self, receive: Receive, keys: frozenset[int]) -> list[Delivery]:
        """Lease as many as there is room for, of lite topics among `keys`.

        Raises StoreFullError, with nothing leased.
        """
        state, subscription = self._state, receive.subscription
        reader = lite_reader(state, subscription)
        if reader is None:
            return []
        gate = subscription.ordered()
        again: list[int] = []
        rows: list[OrderedRow] = []
        looked: list[int] = []
        for key in reader.candidates(keys, subscription.turn):
            if not receive.reply_budget.count:
                break
            self._end_unwanted(receive, gate, key)
            looked.append(key)
            group = gate.groups.get(key)
            if group is not None and group.blocked:
                continue
            retried = self._again(receive, group, again) if group is not None else 0
            waiting = len(group.live) if group is not None else 0
            if retried == waiting and not self._was_alone(receive, again, retried):
                self._unread(
                    receive, state.lites[subscription.topic_id], reader, key, rows, retried
                )
        taken = []
        try:
            taken = self._lease_again(receive, again)
            if rows:
                taken += self.write(receive, NO_QUEUE, 0, rows)
        except StoreFullError:
            if not taken:
                raise
        finally:
            self._settle(receive, reader, looked)
        return taken

    def _unread(
        self,
        receive: Receive,
        parent: LiteParent,
        reader: LiteReader,
        key: int,
        rows: list[OrderedRow],
        retried: int,
    ) -> None:
        """Add what the group was not given yet of a lite topic."""
        topic = parent.topics.get(key)
        if topic is None:
            return
        queue = self._state.queue(receive.subscription.topic_id, 0)
        follows = retried > 0
        for offset in topic.since(reader.next(key)):
            if (follows and receive.alone(1)) or not receive.reply_budget.take(
                queue.get(offset).length
            ):
                return
            rows.append(OrderedRow(key, offset, 0, ORDERED_TAKE))
            follows = True

    def _settle(self, receive: Receive, reader: LiteReader, looked: list[int]) -> None:
        """Put those that still may have something last, for the next time."""
        gate = receive.subscription.ordered()
        for key in looked:
            reader.ready.pop(key, None)
            group = gate.groups.get(key)
            if group is not None and group.blocked:
                continue
            if group is not None or reader.unread(key):
                reader.ready[key] = None
