"""Texts that are not what they seem, and signatures that are guessed: number 14."""

from typing import Final

from abuse.attacks.requests import SEND
from abuse.peer import Peer, Target
from abuse.siege import WORKER, Case, ask, code_of
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support import wire_requests

HOSTILE: Final = "\x1b[2J\nERROR forged\u2028\u202eline\x85\x9b31m"


async def identifiers(target: Target) -> str:
    """A message id and a born host that would speak for themselves in a terminal."""
    told = set()
    async with await Peer.open(target) as peer:
        for field in ("message_id", "born_host"):
            message = wire_requests.message("texts", b"x")
            setattr(message.system_properties, field, f"01{HOSTILE}".ljust(34, "A"))
            answer = await ask(peer, SEND, wire_requests.send([message]))
            told.add(code_of(service_pb2.SendMessageResponse.FromString(answer)))
    return " and ".join(sorted(told))


CASES: Final = (
    Case(
        number=14,
        name="identifiers",
        what="ESC, newlines and bidi overrides in a message id and a born host",
        attack=identifiers,
        by=WORKER,
        answers="BAD_REQUEST and ILLEGAL_MESSAGE_ID",
    ),
)
