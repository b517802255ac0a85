"""latermq.v1 Backups: a cut of the log, and its bytes.

Nobody is asked to stop, and the core knows nothing of a backup but a hold that retention respects.
Bytes go out at a pace, in turns of the background.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.clients.rooms import Rooms
from latermq_proto.latermq.v1 import backup_pb2
from latermq_text.version import own_version

KNOWN_MAX: Final = 64
SLICE_BYTES: Final = 128 << 10  # of one element
PACE_DEFAULT: Final = 32 << 20  # bytes a second
PACE_MIN: Final = 64 << 10  # slower, a slice would keep its stream for minutes
PACE_MAX: Final = 1 << 30


class BackupsService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._name = rooms.config.server.broker_name

    async def begin_backup(
        self, request: backup_pb2.BeginBackupRequest, _: Caller
    ) -> backup_pb2.BeginBackupResponse:
        """Answer BeginBackup of backup.proto.

        Raises:
            BadRequestError: too much is known.
        """
        if len(request.known) > KNOWN_MAX:
            raise BadRequestError(f"{len(request.known)} known records, at most {KNOWN_MAX}")
        copy = self._engine.log_copy
        moment = copy.begin(self._committer.now_ms())
        await self._committer.synced()
        cut = copy.cut(moment)
        response = backup_pb2.BeginBackupResponse(
            status=ok_status(),
            log_uuid=cut.uuid,
            position=cut.position,
            newest=backup_pb2.LogRecord(position=cut.newest[0], checksum=cut.newest[1]),
            segments=[backup_pb2.LogSegment(base=base, size=size) for base, size in cut.segments],
            repairs=cut.repairs,
            directory=cut.directory,
            shard_mark=cut.shard_mark,
            broker=self._name,
            version=own_version(),
            now_ms=self._committer.now_ms(),
            hold=moment.hold,
        )
        response.continued.extend(
            known for known in request.known if copy.has(known.position, known.checksum)
        )
        return response

    def keep_backup(
        self, request: backup_pb2.KeepBackupRequest, _: Caller
    ) -> backup_pb2.KeepBackupResponse:
        """Answer KeepBackup of backup.proto.

        Raises:
            NotFoundError: as named.
            BadRequestError: a position below 0.
        """
        if request.from_position < 0:
            raise BadRequestError("from_position is below 0")
        self._engine.log_copy.keep(request.hold, request.from_position, self._committer.now_ms())
        return backup_pb2.KeepBackupResponse(status=ok_status())

    async def read_log(
        self, request: backup_pb2.ReadLogRequest, caller: Caller
    ) -> AsyncIterator[backup_pb2.ReadLogResponse]:
        """Answer ReadLog of backup.proto.

        Raises:
            NotFoundError: as named.
            BadRequestError: not a range of the log.
        """
        if not 0 <= request.begin < request.end:
            raise BadRequestError("begin must be at least 0 and below end")
        pace = request.bytes_per_second or PACE_DEFAULT
        if not PACE_MIN <= pace <= PACE_MAX:
            raise BadRequestError(
                f"bytes_per_second must be from {PACE_MIN} to {PACE_MAX}, or 0, not {pace}"
            )
        position = request.begin
        while position < request.end and not caller.call.cancelled:
            data = self._engine.log_copy.read(position, min(SLICE_BYTES, request.end - position))
            position += len(data)
            yield backup_pb2.ReadLogResponse(status=ok_status(), data=data)
            if position < request.end:
                caller.lasting.rest()
                await asyncio.sleep(len(data) / pace)
