"""Who is told when a connection has closed."""

import logging
from collections.abc import Callable

log = logging.getLogger("latermq.transport")


class Closing:
    """Of one connection: a callback for each key; keys bound what calls leave here."""

    def __init__(self) -> None:
        self._callbacks: dict[str, Callable[[], None]] | None = {}  # None: it is closed

    def tell(self, key: str, callback: Callable[[], None]) -> None:
        """Run it once when the connection is closed; at once if it is. The last of a key counts."""
        if self._callbacks is None:
            callback()
        else:
            self._callbacks[key] = callback

    def closed(self) -> None:
        """The connection is gone, and all its calls are cancelled."""
        callbacks, self._callbacks = self._callbacks, None
        for key, callback in (callbacks or {}).items():
            try:
                callback()
            except Exception:
                log.exception("closed callback failed", extra={"key": key})
