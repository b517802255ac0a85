"""Hundreds of official consumers of several languages in one group, and a book of what each took.

Every process holds push and simple consumers of one language. They tell what they took before they
acknowledge it; a body that begins with "nack" fails at its first attempt.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from interop import foreign
from interop.official import SCRIPT, OfficialClient
from support.machine import patient

WAIT_S: Final = 5  # of a simple consumer's long poll
START_TIMEOUT_S: Final = patient(180.0)


class Took(NamedTuple):
    """One delivery, as a client told it; the time is of this machine's clock."""

    at_ms: int
    text: str
    attempt: int


class Share(NamedTuple):
    """How many consumers one process of a language has."""

    language: str
    push: int
    simple: int


@dataclass
class Member:
    """A process with its consumers; `dead` ones are kept for what they told."""

    share: Share
    client: OfficialClient
    seen: int = 0  # of the client's events
    dead: bool = False


@dataclass
class Crowd:
    """Use it as a context manager: nothing is left running."""

    room: Path
    endpoint: str
    topic: str
    group: str
    shares: Sequence[Share]
    lease_s: int  # of what a simple consumer receives
    members: list[Member] = field(default_factory=list)
    took: list[Took] = field(default_factory=list)

    def __enter__(self) -> Self:
        started = [self._spawn(share) for share in self.shares]
        for member, answers in started:
            for answer in answers:
                answer.result(START_TIMEOUT_S)
            self._drain(member)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if not member.dead:
                member.client.kill()

    def replace(self, index: int) -> None:
        """Kill -9 a process, and have another with as many new consumers; not waited for."""
        member = self._alive()[index]
        member.client.kill()
        member.dead = True
        fresh, answers = self._spawn(member.share)
        for answer in answers:
            answer.result(START_TIMEOUT_S)
        self._drain(fresh)

    def look(self) -> list[Took]:
        """Enter what was told since the last look; all of it so far."""
        for member in self.members:
            events = member.client.events[member.seen :]
            member.seen += len(events)
            self.took += [
                Took(event["at_ms"], event["text"], event["attempt"])
                for event in events
                if event["event"] == "took"
            ]
        return self.took

    def by_language(self) -> dict[str, int]:
        """How many deliveries each language had."""
        counts = dict.fromkeys((share.language for share in self.shares), 0)
        for member in self.members:
            events = member.client.events
            counts[member.share.language] += sum(event["event"] == "took" for event in events)
        return counts

    def _alive(self) -> list[Member]:
        return [member for member in self.members if not member.dead]

    def _spawn(self, share: Share) -> tuple[Member, list[Any]]:
        """A process whose consumers are starting, and their answers."""
        number = len(self.members)
        python = [sys.executable, str(SCRIPT)]
        command = python if share.language == "python" else foreign.command(share.language)
        client = OfficialClient(self.room / f"{share.language}-{number}", command)
        member = Member(share, client.__enter__())
        self.members.append(member)
        fields: dict[str, Any] = {"endpoint": self.endpoint, "group": self.group}
        fields["topics"] = {self.topic: "*"}
        pushes = [
            client.begin("push", name=f"push-{one}", failures={}, brief=True, **fields)
            for one in range(share.push)
        ]
        simples = [
            client.begin("simple", name=f"simple-{one}", wait_s=WAIT_S, **fields)
            for one in range(share.simple)
        ]
        return member, pushes + simples

    def _drain(self, member: Member) -> None:
        answers = [
            member.client.begin("drain", name=f"simple-{one}", invisible_s=self.lease_s)
            for one in range(member.share.simple)
        ]
        for answer in answers:
            answer.result(START_TIMEOUT_S)
