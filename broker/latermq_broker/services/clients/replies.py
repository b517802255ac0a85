"""Questions to one client over its telemetry stream, and the answers that come back, by nonce.

Clients need not answer: some kinds never do. A question is given up after ANSWER_MS_MAX; an answer
that nobody waits for, or from another client than was asked, is dropped.
"""

import asyncio
import logging
from itertools import count
from typing import Final

from latermq_broker.errors import InternalServerError, NotFoundError, TooManyRequestsError
from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.session import Session, Sessions
from latermq_proto.apache.rocketmq.v2 import service_pb2

log = logging.getLogger("latermq.services")

ANSWER_MS_MAX: Final = 5_000
QUESTIONS_MAX: Final = 256  # at a time


class Replies:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._nonces = count(1)
        self._waiting: dict[str, tuple[str, asyncio.Future[service_pb2.TelemetryCommand]]] = {}

    def nonce(self) -> str:
        """Make the nonce of one question."""
        return str(next(self._nonces))

    async def ask(
        self, session: Session, nonce: str, question: service_pb2.TelemetryCommand
    ) -> service_pb2.TelemetryCommand:
        """Ask a client and await its answer, whatever its status.

        Raises:
            NotFoundError: it cannot be reached, or is of a kind that never answers.
            InternalServerError: it did not answer in time.
            TooManyRequestsError: QUESTIONS_MAX wait already.
        """
        client_id = session.client_id
        if Quirk.ANSWERS_NO_QUESTIONS in session.quirks:
            raise NotFoundError(
                f"client {client_id} cannot be asked: {session.language} clients never answer"
            )
        if len(self._waiting) >= QUESTIONS_MAX:
            raise TooManyRequestsError(f"{QUESTIONS_MAX} questions to clients wait already")
        if not self._sessions.push(client_id, question):
            raise NotFoundError(f"client {client_id} is not connected, or does not read")
        answer: asyncio.Future[service_pb2.TelemetryCommand]
        answer = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = (client_id, answer)
        try:
            return await asyncio.wait_for(answer, ANSWER_MS_MAX / 1_000)
        except TimeoutError:
            raise InternalServerError(
                f"client {client_id} did not answer within {ANSWER_MS_MAX} ms"
            ) from None
        finally:
            del self._waiting[nonce]

    def take(self, client_id: str, answer: service_pb2.TelemetryCommand) -> None:
        """Take a command of a client that is no settings to whoever waits for it."""
        kind = answer.WhichOneof("command")
        nonce = ""
        if kind == "thread_stack_trace":
            nonce = answer.thread_stack_trace.nonce
        elif kind == "verify_message_result":
            nonce = answer.verify_message_result.nonce
        elif kind == "verify_message_command":  # Node.js sends the question back, with a status
            nonce = answer.verify_message_command.nonce
        asked, waiting = self._waiting.get(nonce, ("", None))
        if waiting is None or asked != client_id or waiting.done():
            log.debug("reply dropped", extra={"client_id": client_id, "kind": kind})
            return
        waiting.set_result(answer)
