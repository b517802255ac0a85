"""Calls from this shard to the others, over grpc.aio: a channel per address, opened on first use.

Of a shard's addresses its owner's is open, and for a moment one's that hands its log over: what it
was called for waits there, and ends with the connection. The one that answered last is called,
until it does not; then all are tried in turns.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from latermq_broker.config.addresses import addresses_of
from latermq_broker.config.config import Config
from latermq_broker.errors import ConfigError

log = logging.getLogger("latermq.cluster")

UNLIMITED: Final = -1
TURN_S: Final = 0.25  # for one address, where there are several
TRIES: Final = 2  # of a call: at an owner that hands over, and at the next one
GONE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
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
    ("grpc.client_idle_timeout_ms", 30_000),  # who was replaced is not tried for ever
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
        self._addresses = [addresses_of(each) for each in config.cluster.shards]
        self._turns = [0] * len(self._addresses)  # the address of each that is called first
        self._files = _TlsFiles(config) if config.cluster.ca else None
        self._channels: dict[str, Any] = {}
        self._former: list[Any] = []  # channels with the certificates of before

    async def call(
        self, shard: int, path: str, request: bytes, metadata: Metadata, timeout_s: float
    ) -> bytes:
        """Have another shard answer a unary call; one that is just starting is waited for.

        Where it has several addresses, a call that a connection took with it is made once more,
        though an owner that died may have done it: by whom it came from it would be, too, but
        perhaps while nobody serves.

        Raises:
            PeerError: it does not answer, or not in time.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        where = f"shard {shard} at {' or '.join(self._addresses[shard])}"
        tries = min(len(self._addresses[shard]), TRIES)
        while True:
            try:
                async with asyncio.timeout_at(end_s):
                    channel = await self._answering(shard)
            except TimeoutError as error:
                raise PeerError(f"{where}: nobody answers") from error
            turn, tries = self._turns[shard], tries - 1
            try:
                answer: bytes = await channel.unary_unary(path)(
                    request, metadata=tuple(metadata), timeout=max(end_s - loop.time(), 0.001),
                    wait_for_ready=True,
                )  # fmt: skip
            except grpc.aio.AioRpcError as error:
                if error.code() in GONE:
                    self._turns[shard] = turn + 1
                if not tries or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise PeerError(f"{where}: {error.details() or error.code().name}") from error
            else:
                return answer

    async def close(self) -> None:
        """End every call that is under way."""
        for channel in (*self._channels.values(), *self._former):
            await channel.close()
        self._channels.clear()

    async def _answering(self, shard: int) -> Any:
        """Find the address of a shard that is open; its channel. Waits for one."""
        addresses, turn = self._addresses[shard], self._turns[shard]
        while True:
            channel = self._channel(addresses[turn % len(addresses)])
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    await channel.channel_ready()
                self._turns[shard] = turn
                return channel
            turn += 1

    def _channel(self, address: str) -> Any:
        """Return the channel to an address; another one when TLS files changed and it is not open.

        What still waits on the one before ends by its own time.
        """
        channel = self._channels.get(address)
        is_open = channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY
        if self._files is not None and not is_open and self._files.renew():
            self._former += self._channels.values()
            self._channels.clear()
            channel = None
        if channel is None:
            if self._files is None:
                channel = grpc.aio.insecure_channel(address, OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, self._files.credentials, OPTIONS)
            self._channels[address] = channel
        return channel


class _TlsFiles:
    """The files that TLS between shards needs, read again when they have changed.

    Those that cannot be used, or a pair that does not fit, keep what was read before, with a
    WARNING.
    """

    def __init__(self, config: Config) -> None:
        self._paths = {"cluster.ca": config.cluster.ca}
        if config.tls.certificate and config.tls.key:
            self._paths |= {"tls.certificate": config.tls.certificate, "tls.key": config.tls.key}
        self._read = self._now()
        self.credentials = _credentials(self._read)

    def renew(self) -> bool:
        """Read the files; tell whether there are other credentials now."""
        try:
            read = self._now()
            if read == self._read:
                return False
            self._read = read
            self._check()
        except (ConfigError, OSError) as error:  # ssl's errors are of the latter kind
            log.warning("TLS files between shards not taken", extra={"reason": str(error)})
            return False
        self.credentials = _credentials(read)
        return True

    def _now(self) -> dict[str, bytes]:
        return {setting: _file(setting, path) for setting, path in self._paths.items()}

    def _check(self) -> None:
        """Raises OSError: the certificate and the key do not fit, or are no PEM."""
        paths = {name: Path(path).expanduser() for name, path in self._paths.items()}
        context = ssl.create_default_context(cafile=paths["cluster.ca"])
        if "tls.key" in paths:
            context.load_cert_chain(paths["tls.certificate"], paths["tls.key"])


def _credentials(files: Mapping[str, bytes]) -> Any:
    return grpc.ssl_channel_credentials(
        files["cluster.ca"], files.get("tls.key"), files.get("tls.certificate")
    )


def _file(setting: str, path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(setting, f"cannot read {path}: {error.strerror}") from error
