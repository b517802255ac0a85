"""Telemetry: one long stream per client and connection, settings up and down, commands down.

Every settings command is answered at once, for any kind of client, with no topics too, before any
route query; settings that do not stand are the one business error that ends a call with a gRPC
status. A client without an id gets one command with the status, then the end. Replies to commands
carry a nonce, by which those who asked get them (`replies.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

from google.protobuf.message import DecodeError

from latermq_broker.config.config import Config
from latermq_broker.engine.state.hearing import Hearing
from latermq_broker.errors import RequestError, TooManyRequestsError
from latermq_broker.services.call.answers import client_id_of, ok_status, status_of
from latermq_broker.services.call.field_counts import COMMAND_FIELDS_MAX, FieldCount
from latermq_broker.services.call.handler import Call, CallAborted, Committer
from latermq_broker.services.clients import settings as client_settings
from latermq_broker.services.clients.client_quirks import quirks_of
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.session import ClientKind, CommandStream, Session, Sessions
from latermq_broker.services.clients.settings_bounds import held_bytes
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

log = logging.getLogger("latermq.services")

Commands: TypeAlias = AsyncIterator[service_pb2.TelemetryCommand]

COMMAND_FIELDS: Final = FieldCount(service_pb2.TelemetryCommand.DESCRIPTOR, COMMAND_FIELDS_MAX)
CLIENT_ERRORS: Final = range(40_000, 50_000)
HEADER_CHARACTERS_MAX: Final = 64  # kept of a client's language and version
SERVICE_HEADER: Final = "x-latermq-service"
SERVICE_CHARACTERS_MAX: Final = 255  # kept of it


def command_of(data: bytes) -> service_pb2.TelemetryCommand:
    """Parse what a client sends on its stream.

    Raises:
        CallAborted: it is no command.
        BadRequestError: it has too many fields.
    """
    command = service_pb2.TelemetryCommand()
    COMMAND_FIELDS.check(data)
    try:
        command.ParseFromString(data)
    except DecodeError as error:
        text = "not a valid TelemetryCommand"
        raise CallAborted(GrpcCode.INVALID_ARGUMENT, text) from error
    return command


async def _commands(requests: AsyncIterator[bytes]) -> Commands:
    async for data in requests:
        command = command_of(data)
        del data
        yield command
        del command  # up to 4 MiB, and the next may be long in coming


class GroupEngine(Protocol):
    """What telemetry needs of the engine."""

    @property
    def catalog(self) -> client_settings.Groups: ...

    @property
    def hearing(self) -> Hearing: ...

    def client_seen(self, client_id: str, now_ms: int) -> bool: ...


class TelemetryService:
    def __init__(
        self,
        engine: GroupEngine,
        committer: Committer,
        sessions: Sessions,
        config: Config,
        replies: Replies,
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._sessions = sessions
        self._config = config
        self._replies = replies

    def telemetry(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        """Serve one stream to its end, as `parsed_telemetry` does."""
        return self.parsed_telemetry(_commands(requests), call)

    async def parsed_telemetry(self, commands: Commands, call: Call) -> AsyncIterator[bytes]:
        """Serve a stream until the client ends it, the broker drains or settings do not stand."""
        try:
            client_id = client_id_of(call)
        except RequestError as error:
            refusal = service_pb2.TelemetryCommand(status=status_of(error))
            yield refusal.SerializeToString()
            return
        stream = self._sessions.open_stream()
        reader = asyncio.create_task(self._read(commands, client_id, stream, call))
        try:
            async for command in stream.commands():
                yield command
        finally:
            if not self._sessions.close_stream(client_id, stream):
                self._engine.hearing.client_left(client_id)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    async def _read(
        self, commands: Commands, client_id: str, stream: CommandStream, call: Call
    ) -> None:
        """Take what the client sends; its end, or a reason of ours, ends `stream`."""
        try:
            async for command in commands:
                self._take(command, client_id, stream, call)
                del command  # up to 4 MiB, and the next may be long in coming
        except RequestError as error:
            refused = service_pb2.TelemetryCommand(status=status_of(error))
            stream.put(refused)
            stream.end()
        except CallAborted as ended:
            # Without its traceback, which holds the command until the stream is collected.
            again = CallAborted(ended.code, ended.message, ends_connection=ended.ends_connection)
            stream.end(again)
        except Exception:
            log.exception("telemetry failed", extra={"client_id": client_id})
            stream.end(CallAborted(GrpcCode.INTERNAL, "internal error of the broker"))
        else:
            stream.end()

    def _take(
        self,
        command: service_pb2.TelemetryCommand,
        client_id: str,
        stream: CommandStream,
        call: Call,
    ) -> None:
        if not command.HasField("settings"):
            self._replies.take(client_id, command)
            return
        merged = self._accept(command.settings, client_id, stream, call)
        answer = service_pb2.TelemetryCommand(status=ok_status(), settings=merged)
        if not stream.put(answer):
            raise TooManyRequestsError("the telemetry stream sends settings and reads no answers")

    def _accept(
        self,
        settings: definition_pb2.Settings,
        client_id: str,
        stream: CommandStream,
        call: Call,
    ) -> definition_pb2.Settings:
        """Begin or update the session; the merged settings.

        Raises:
            CallAborted: they do not stand.
            TooManyRequestsError: too many clients.
        """
        try:
            kind = client_settings.check(settings)
            client_settings.check_group(kind, settings, self._engine.catalog)
        except RequestError as error:
            # gRPC's own status has no place for ours; clients that look for that one pass this by.
            stream.put(service_pb2.TelemetryCommand(status=status_of(error)))
            code = GrpcCode.INVALID_ARGUMENT if error.code in CLIENT_ERRORS else GrpcCode.INTERNAL
            raise CallAborted(code, str(error)) from error
        language = (call.metadata("x-mq-language") or "")[:HEADER_CHARACTERS_MAX]
        version = (call.metadata("x-mq-client-version") or "")[:HEADER_CHARACTERS_MAX]
        group_name = "" if kind is ClientKind.PRODUCER else settings.subscription.group.name
        merged = client_settings.merge(
            settings,
            self._engine.catalog.group(group_name) if group_name else None,
            quirks_of(language, version),
            self._config,
        )
        now_ms = self._committer.now_ms()
        if self._sessions.get(client_id) is None:
            log.info(
                "client known",
                extra={"client_id": client_id, "kind": kind.name, "language": language},
            )
        self._sessions.put(
            Session(
                client_id=client_id,
                kind=kind,
                group=group_name,
                topics=client_settings.topics_of(settings),
                settings=merged,
                language=language,
                version=version,
                seen_ms=now_ms,
                service=(call.metadata(SERVICE_HEADER) or "")[:SERVICE_CHARACTERS_MAX],
                peer=call.peer,
                connection_id=call.connection_id,
                held_bytes=held_bytes(settings),
                owner=call.user,
            )
        )
        self._sessions.attach(client_id, stream)
        self._engine.client_seen(client_id, now_ms)
        return merged
