"""Calls from this shard to the others, over grpc.aio: a channel per shard, opened on first use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from latermq_broker.config.config import Config
from latermq_broker.errors import ConfigError

UNLIMITED: Final = -1
OPTIONS: Final = (
    ("grpc.max_receive_message_length", UNLIMITED),
    ("grpc.max_send_message_length", UNLIMITED),
    ("grpc.enable_retries", 0),
    # A shard that was started again is to be found at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

Metadata = Sequence[tuple[str, str | bytes]]


class PeerError(Exception):
    """Another shard did not answer."""


class Peers:
    """The other shards; to be made inside a running event loop.

    Raises:
        ConfigError: the files that TLS between shards needs cannot be read.
    """

    def __init__(self, config: Config) -> None:
        self._addresses = config.cluster.shards
        self._credentials = _credentials(config)
        self._channels: dict[int, Any] = {}

    async def call(
        self, shard: int, path: str, request: bytes, metadata: Metadata, timeout_s: float
    ) -> bytes:
        """Have another shard answer a unary call; one that is just starting is waited for.

        Raises:
            PeerError: it does not answer, or not in time.
        """
        try:
            method = self._channel(shard).unary_unary(path)
            answer: bytes = await method(
                request, metadata=tuple(metadata), timeout=timeout_s, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name
            raise PeerError(f"shard {shard} at {self._addresses[shard]}: {why}") from error
        return answer

    async def close(self) -> None:
        """End every call that is under way."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def _channel(self, shard: int) -> Any:
        channel = self._channels.get(shard)
        if channel is None:
            address = self._addresses[shard]
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(address, OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, self._credentials, OPTIONS)
            self._channels[shard] = channel
        return channel


def _credentials(config: Config) -> Any:
    """Make what TLS needs; None: clear text."""
    if not config.cluster.ca:
        return None
    tls = config.tls
    return grpc.ssl_channel_credentials(
        _file("cluster.ca", config.cluster.ca),
        _file("tls.key", tls.key) if tls.key else None,
        _file("tls.certificate", tls.certificate) if tls.certificate else None,
    )


def _file(setting: str, path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(setting, f"cannot read {path}: {error.strerror}") from error
