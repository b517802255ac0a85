"""What the transport tells those who show it: GetBroker and the page of metrics."""

from collections.abc import Mapping
from typing import NamedTuple


class TransportFigures(NamedTuple):
    """What a transport has served and refused since its start, and what is open now."""

    calls: int  # begun
    connections: int  # taken
    calls_open: int
    connections_open: int
    deadline_timers: int  # of open calls
    tasks: int  # of the event loop, the broker's own few included
    others: Mapping[tuple[str, str], int]  # (kind, reason) → count, what did not go as usual
