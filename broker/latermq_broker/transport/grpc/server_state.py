"""What all connections of a server have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from latermq_broker.services.call.handler import Method
from latermq_broker.transport.grpc.counts import Counts
from latermq_broker.transport.grpc.head import Methods
from latermq_broker.transport.grpc.one_by_one import OneByOne
from latermq_broker.transport.grpc.open_calls import OpenCalls, Shares
from latermq_broker.transport.grpc.reply_memory import ReplyBudget
from latermq_broker.transport.grpc.request_memory import RequestMemory

SMALL_BYTES_MAX: Final = 64 << 10  # of a request to a method that is called with small ones only


@dataclass(kw_only=True)
class Shared:
    """Holds what the connections of one server share: methods, bounds and counts."""

    methods: Methods
    calls_max: int
    message_bytes_max: int  # of methods with large requests
    other_bytes_max: int  # of all others
    assembly_bytes_max: int  # of the requests of one connection
    inflated_bytes_max: int = 16 << 20  # of one compressed request
    requests_bytes_max: int  # of all connections
    request_ms_max: int  # from a request's head to its end
    streams_max: int
    gzip_from_bytes: int
    now_ms: Callable[[], int]
    plain: Mapping[bytes, bytes] = field(default_factory=dict)
    behind: int = 0  # connections that have more input waiting than a turn handles
    counts: Counts = field(default_factory=Counts)
    replies: ReplyBudget = field(default_factory=ReplyBudget)
    shares: Shares = field(default_factory=Shares)
    long_messages: OneByOne = field(default_factory=OneByOne)
    memory: RequestMemory = field(init=False)
    open: OpenCalls = field(init=False)

    def __post_init__(self) -> None:
        self.memory = RequestMemory(
            self.requests_bytes_max, self.assembly_bytes_max, self.request_ms_max, self.now_ms,
            self.counts,
        )  # fmt: skip
        self.open = OpenCalls(
            self.calls_max, self.streams_max, self.request_ms_max, self.shares, self.counts
        )

    @property
    def calls(self) -> int:
        """Count the calls open now."""
        return self.open.all.count

    def bytes_max(self, method: Method) -> int:
        """Return the most bytes of one message to it."""
        if method.small:
            return min(SMALL_BYTES_MAX, self.other_bytes_max)
        return self.message_bytes_max if method.large else self.other_bytes_max
