"""Starts a process as systemd does that keeps its listening sockets: sd_listen_fds(3)."""

import socket
import sys
from collections.abc import Mapping
from typing import Final

_HAND_OVER: Final = """
import fcntl, os, sys
given, names, *words = sys.argv[1:]
copies = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 100) for number in given.split(",")]
for number, copy in enumerate(copies, 3):
    os.dup2(copy, number)
    os.close(copy)
os.environ |= {"LISTEN_FDS": str(len(copies)), "LISTEN_PID": str(os.getpid())}
if names:
    os.environ["LISTEN_FDNAMES"] = names
os.execv(words[0], words)
"""


def prefix(sockets: Mapping[str, socket.socket], names: str | None = None) -> list[str]:
    """Return the words before a command that is to have the sockets, by their names.

    They are to be passed to it, too: `descriptors`.

    Args:
        names: what it is told instead of the names; "": nothing.
    """
    given = ",".join(map(str, descriptors(sockets)))
    told = ":".join(sockets) if names is None else names
    return [sys.executable, "-c", _HAND_OVER, given, told]


def descriptors(sockets: Mapping[str, socket.socket]) -> list[int]:
    return [each.fileno() for each in sockets.values()]


def listening(host: str = "127.0.0.1") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, 0), family=family, backlog=128)
    made.setblocking(False)  # as systemd's are
    return made


def endpoint(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{host}:{port}"
