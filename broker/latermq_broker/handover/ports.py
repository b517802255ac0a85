"""The ports of a broker that serves: opened, and where another process asks for them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from latermq_broker.config.config import Config
from latermq_broker.handover.passing import MeetingPoint, Port
from latermq_broker.handover.replacing import LISTEN, METRICS, Sockets
from latermq_broker.observability.metrics_endpoint import MetricsEndpoint
from latermq_broker.store.directory import LOCK_NAME
from latermq_broker.transport.lean import LeanServer

if TYPE_CHECKING:
    from latermq_broker.transport.grpcio import GrpcioServer

KEPT: Final = "systemd keeps its ports; `systemctl restart` refuses nobody"


@dataclass(frozen=True, slots=True)
class GivenSockets:
    """Listening sockets that this process did not bind.

    Args:
        kept: who gave them has them open when this process ends.
    """

    sockets: Sockets = field(default_factory=dict)
    kept: bool = False


async def open_ports(
    server: "GrpcioServer | LeanServer",
    given: GivenSockets,
    config: Config,
    metrics: MetricsEndpoint,
    replaced: Callable[[], None] | None,
) -> MeetingPoint | None:
    """Open the port, and where the lean transport is, the place where a successor asks for it.

    Args:
        replaced: called when it has it; None: nobody gets it.
    """
    if not isinstance(server, LeanServer):
        await server.start()
        return None
    await server.start(given.sockets.get(LISTEN, ()), kept=given.kept)
    if replaced is None:
        return None
    refusal = KEPT if given.kept else ""
    meeting = _meeting_point(config, server, metrics, replaced, refusal)
    meeting.open()
    return meeting


def _meeting_point(
    config: Config,
    server: LeanServer,
    metrics: MetricsEndpoint,
    replaced: Callable[[], None],
    refusal: str,
) -> MeetingPoint:
    """Make the place where a successor gets the ports; `replaced` when it has them."""

    def ports() -> dict[str, Port]:
        descriptors = [listener.fileno() for listener in server.sockets]
        ports = {LISTEN: Port(config.server.listen, server.address, descriptors)}
        if metrics.address:
            ports[METRICS] = Port(config.metrics.listen, metrics.address, metrics.descriptors)
        return ports

    def on_go() -> None:
        server.leave_port()
        metrics.leave_port()
        replaced()

    return MeetingPoint(config.server.directory / LOCK_NAME, ports, on_go, refusal)
