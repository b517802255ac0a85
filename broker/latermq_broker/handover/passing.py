"""How a broker's ports pass to the process that replaces it: the listening sockets themselves.

    new                                       old
     │ connect ──────────────────────────────► the meeting point: an abstract socket, named after
     │                                          device and inode of the directory's LOCK file
     │ ◄──── who I am, my ports, their sockets │ (SCM_RIGHTS)
     │ everything that can fail is tried       │ serves on; if new ends here, nothing has changed
     │ "go" ─────────────────────────────────► stops accepting, drains, checkpoint, lets go of LOCK
     │ takes LOCK, accepts                      ends; new sees the connection close

A socket stays open as long as one process has it, so nobody is refused in between: connections wait
in the kernel's queue. The meeting point is gone as soon as its broker goes down, for whatever
reason: who comes then finds nobody, and waits for LOCK. Only the same user, or root, is answered. A
socket of this kind is not seen from another network namespace, where the port would be another one
too.
"""

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from latermq_broker.errors import HandoverError
from latermq_broker.transport.listener import ACCEPT_PAUSE_S, NO_DESCRIPTOR

log = logging.getLogger("latermq.transport")

GO: Final = b"go"
WORD_BYTES_MAX: Final = 8 << 10
SOCKETS_MAX: Final = 32
ANSWER_S_MAX: Final = 5.0  # for a broker that is there to say who it is
DECISION_S_MAX: Final = 30.0  # for the new one to try what can fail
_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class Port:
    """One address of a broker: as its configuration says, as bound, and its descriptors."""

    wanted: str
    address: str
    sockets: Sequence[int]


Ports = Mapping[str, Port]  # by the name of their setting


def meeting_point(lock: Path) -> bytes:
    """Raises OSError: there is no such file."""
    status = lock.stat()
    return f"\0latermq-handover/{status.st_dev:x}-{status.st_ino:x}".encode()


class MeetingPoint:
    """The old one's side, on the event loop; of one broker's life.

    Args:
        lock: the LOCK file of the directory.
        ports: what is handed over; asked when somebody comes, for descriptors that are closed may
            be somebody else's.
        on_go: called once, when another process has taken the ports.
        refusal: why no process may; "": one may.
    """

    def __init__(
        self, lock: Path, ports: Callable[[], Ports], on_go: Callable[[], None], refusal: str = ""
    ) -> None:
        self._refusal = refusal
        self._lock = lock
        self._ports = ports
        self._on_go = on_go
        self._listening: socket.socket | None = None
        self._peer: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._over = False

    def open(self) -> None:
        """Be found, if it is not yet.

        A system without such sockets, or a name that is taken, is only logged.
        """
        if self._listening is not None:
            return
        listening = None
        try:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listening.setblocking(False)
            listening.bind(meeting_point(self._lock))
            listening.listen(1)
        except OSError as error:
            if listening is not None:
                listening.close()
            log.warning("cannot be replaced while it runs", extra={"reason": str(error)})
            return
        self._listening = listening
        self._listen()

    def close(self) -> None:
        """Be found no more. Who takes over keeps its connection, and sees the process end."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        if not self._over:
            self._leave()

    def _listen(self) -> None:
        assert self._listening is not None
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            peer, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            log.error("not to be replaced for a moment", extra={"reason": error.strerror})
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listening)  # who asks waits: it would be readable all the time
            self._pause = loop.call_later(ACCEPT_PAUSE_S, self._listen)
            return
        peer.setblocking(False)
        try:
            self._welcome(peer)
        except OSError as error:
            peer.close()
            log.warning("not handed over", extra={"reason": str(error)})

    def _welcome(self, peer: socket.socket) -> None:
        """Raises OSError."""
        _, uid, _ = _credentials(peer)
        why = self._refusal
        if uid not in (os.geteuid(), 0):
            why = "another user asked"
        elif self._peer is not None:
            why = "it is being replaced already"
        if why:
            peer.send(json.dumps({"refused": why}).encode())
            peer.close()
            return
        ports = self._ports()
        introduction = {
            name: (port.wanted, port.address, len(port.sockets)) for name, port in ports.items()
        }
        word = json.dumps({"ports": introduction}).encode()
        sockets = [number for port in ports.values() for number in port.sockets]
        socket.send_fds(peer, [word], sockets)
        loop = asyncio.get_running_loop()
        self._peer = peer
        self._timer = loop.call_later(DECISION_S_MAX, self._leave)
        loop.add_reader(peer, self._decided)

    def _decided(self) -> None:
        assert self._peer is not None
        try:
            word = self._peer.recv(WORD_BYTES_MAX)
        except OSError:
            word = b""
        if word != GO:
            self._leave()
            return
        self._forget_peer()
        self._over = True
        log.info("replaced by another process", extra={"pid": _credentials(self._peer)[0]})
        self._on_go()

    def _forget_peer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._peer is not None:
            asyncio.get_running_loop().remove_reader(self._peer)

    def _leave(self) -> None:
        """Forget who asked and did not take over, as if nobody had asked."""
        self._forget_peer()
        if self._peer is not None:
            self._peer.close()
            self._peer = None


@dataclass
class Predecessor:
    """The new one's side: a broker of this directory that serves, and copies of its sockets."""

    pid: int
    ports: Ports
    _connection: socket.socket = field(repr=False)

    @classmethod
    def meet(cls, lock: Path) -> Self | None:
        """Ask the broker that has `lock` for its ports; None: there is none, or it is going down.

        Raises HandoverError: who is there cannot be replaced.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(ANSWER_S_MAX)
        try:
            connection.connect(meeting_point(lock))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            raise HandoverError(f"the broker of {lock.parent} is not reached: {error}") from error
        predecessor = None
        try:
            predecessor = cls._introduced(connection)
        finally:
            if predecessor is None:
                connection.close()
        return predecessor

    @classmethod
    def _introduced(cls, connection: socket.socket) -> Self | None:
        pid, uid, _ = _credentials(connection)
        if uid not in (os.geteuid(), 0):
            raise HandoverError(f"process {pid} of another user says it is the broker")
        try:
            word, sockets, _, _ = socket.recv_fds(
                connection, WORD_BYTES_MAX, SOCKETS_MAX, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return None
        except OSError as error:
            raise HandoverError(f"the broker, process {pid}, does not answer: {error}") from error
        if not word:
            return None
        introduction: dict[str, Any] = json.loads(word)
        if "refused" in introduction:
            raise HandoverError(
                f"the broker, process {pid}, is not replaced: {introduction['refused']}"
            )
        wrong = [number for number in sockets if not _listens(number)]
        if wrong or len(sockets) != sum(count for _, _, count in introduction["ports"].values()):
            for number in sockets:
                os.close(number)
            raise HandoverError(
                f"the broker, process {pid}, does not hand over its listening sockets: "
                f"{len(sockets)} descriptors came, {len(wrong)} of them are something else"
            )
        ports = {}
        for name, (wanted, address, count) in introduction["ports"].items():
            ports[name] = Port(wanted, address, sockets[:count])
            del sockets[:count]
        return cls(pid, ports, connection)

    def take(self, name: str, wanted: str) -> list[socket.socket] | None:
        """Take the sockets, once, of a setting that names the old one's address; None: another."""
        port = self.ports.get(name)
        if port is None or wanted not in (port.wanted, port.address):
            return None
        return [socket.socket(fileno=os.dup(number)) for number in port.sockets]

    def go(self) -> None:
        """Tell it to go; its ports are ours now. Raises HandoverError: it does not listen any more,
        because it is going down already, or waited longer than DECISION_S_MAX.
        """
        try:
            self._connection.send(GO)
        except OSError as error:
            raise HandoverError(f"the broker, process {self.pid}, was not told: {error}") from error

    def wait(self, wait_s: float) -> bool:
        """Wait until it has ended, or went down untold, at most `wait_s`; tell whether it has."""
        self._connection.settimeout(wait_s)
        try:
            return not self._connection.recv(WORD_BYTES_MAX)
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Drop what was not taken."""
        for port in self.ports.values():
            for number in port.sockets:
                os.close(number)
        self.ports = {}
        self._connection.close()


def _listens(descriptor: int) -> bool:
    """Tell whether it is a listening socket; it stays open."""
    try:
        copy = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    finally:
        copy.detach()


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Return process, user and group at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, gid = _PEER.unpack(credentials)
    return pid, uid, gid
