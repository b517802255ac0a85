"""Flow control: who waits or holds more than its limit is told TOO_MANY_REQUESTS.

The message names the limit, and how it can be seen. Without limits a call costs one look at a flag.
A client chooses its id, and may take another with each call: what is to hold for those who run it
is a limit of their user, within which those of its clients stay. What they send is counted by
`engine/send/send_gate.py`.
"""

from latermq_broker.catalog.limits import Scope
from latermq_broker.engine.catalog.limit_rules import LimitAdmin
from latermq_broker.engine.send.send_gate import limit_name
from latermq_broker.engine.state.model import ReceiveRequest
from latermq_broker.errors import TooManyRequestsError


class FlowControl:
    def __init__(self, limits: LimitAdmin) -> None:
        self._limits = limits
        self.table = limits.table

    def admit_polls_of(self, scope: Scope, name: str, waiting: int) -> None:
        """Call when `table.polls` is set, before one more waits. Raises TooManyRequestsError."""
        most = self.table.bound(scope, name, "parked_polls")
        if most and waiting >= most:
            raise TooManyRequestsError(
                f"{waiting} receives of {scope.name.lower()} {name} wait, at most {most} may "
                f"({self._limit_name(scope)})"
            )

    def fitted(self, receive: ReceiveRequest) -> ReceiveRequest:
        """Call when `table.in_flight` is set: as many as the group may still hold.

        Raises TooManyRequestsError: none.
        """
        most = self.table.bound(Scope.GROUP, receive.group, "in_flight")
        if not most:
            return receive
        held = self._limits.in_flight(receive.group)
        if held >= most:
            raise TooManyRequestsError(
                f"{held} messages of group {receive.group} are in flight, at most {most} may be "
                f"({self._limit_name(Scope.GROUP)})"
            )
        return receive._replace(count_max=min(receive.count_max, most - held))

    def _limit_name(self, scope: Scope) -> str:
        return limit_name(self.table, scope)
