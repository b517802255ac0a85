"""A call without a transport: what it carries is said by the test, and so is its end."""

from collections.abc import Callable, Mapping

from latermq_broker.catalog.access import User
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.transport.grpc.metadata import AnswerExtra

CLIENT_ID = "test@1@0@x"


class FakeCall:
    """`handler.Call`. A client id is sent unless `client_id` is empty."""

    def __init__(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        metadata_bin: Mapping[str, bytes] | None = None,
        client_id: str = CLIENT_ID,
        remaining_ms: int | None = None,
        path: str = "/test/Call",
        certificate_name: str = "",
        user: User | None = None,
        peer: str = "192.0.2.1:4711",
    ) -> None:
        self.user = user
        self._peer = peer
        self._metadata = {"x-mq-client-id": client_id} if client_id else {}
        self._metadata.update(metadata or {})
        self._metadata_bin = dict(metadata_bin or {})
        self._remaining_ms = remaining_ms
        self._on_cancel: list[Callable[[], None]] = []
        self._cancelled = False
        self._path = path
        self._certificate_name = certificate_name
        self.extra = AnswerExtra()
        self.unheard: Callable[[], None] | None = None
        self.room_bytes = 1 << 40  # for an answer; 0 or less: none
        self.reserved_bytes = 0

    @property
    def path(self) -> str:
        return self._path

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def local(self) -> str:
        return "192.0.2.9:8081"

    @property
    def connection_id(self) -> str:
        return "connection-1"

    @property
    def certificate_name(self) -> str:
        return self._certificate_name

    def metadata(self, name: str) -> str | None:
        return self._metadata.get(name)

    def metadata_bin(self, name: str) -> bytes | None:
        return self._metadata_bin.get(name)

    def all_metadata(self, prefixes: tuple[str, ...] = ("",)) -> list[tuple[str, str | bytes]]:
        pairs: list[tuple[str, str | bytes]] = [*self._metadata.items()]
        pairs += self._metadata_bin.items()
        return [pair for pair in pairs if pair[0].startswith(prefixes)]

    def remaining_ms(self) -> int | None:
        return self._remaining_ms

    def reply_room(self) -> int:
        if self.room_bytes <= 0:
            raise TooManyRequestsError("answers wait to be read")
        return self.room_bytes

    def reserve_reply(self, bytes_count: int) -> None:
        self.reserved_bytes += bytes_count
        self.room_bytes -= bytes_count

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self._cancelled:
            callback()
        else:
            self._on_cancel.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Keep nothing: no answer is on its way here."""

    def on_unheard(self, callback: Callable[[], None]) -> None:
        self.unheard = callback

    def cancel(self) -> None:
        """The caller goes away."""
        self._cancelled = True
        callbacks, self._on_cancel = self._on_cancel, []
        for callback in callbacks:
            callback()
