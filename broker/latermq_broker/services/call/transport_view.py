"""What only the edges can tell or do, for the services: the transport, those who wait, work that
lasts, and who has a replicated log.

Services are built before the edges that serve them; the runtime connects the two.
"""

from collections.abc import Callable

from latermq_broker.background.jobs import Background
from latermq_broker.observability.replication_figures import ReplicationFigures
from latermq_broker.observability.transport_figures import TransportFigures
from latermq_broker.services.call.handler import ParkedReceives


class TransportView:
    def __init__(self, parked: ParkedReceives, background: Background) -> None:
        self.background = background
        self.transport: Callable[[], TransportFigures | None] = lambda: None
        self.replication: Callable[[], ReplicationFigures | None] = lambda: None
        self.hand_over: Callable[[], None] | None = None  # of an owner: has others take the log
        self._parked = parked

    @property
    def receives_parked(self) -> int:
        """Count the receives and pulls that wait for a message now."""
        return self._parked.waiting
