"""Makes a process of ours as poor as one of Windows, for tests: `exec` it before all else.

What is imported here finds itself on Linux: the standard library and packages of others have code
of their own for Windows, which cannot run here. What is imported after it, ours, finds no module,
name, signal or call that Windows lacks.
"""

import asyncio
import concurrent.futures
import http.client  # noqa: F401
import importlib.metadata  # noqa: F401
import json  # noqa: F401
import multiprocessing  # noqa: F401
import os
import select
import shutil  # noqa: F401
import signal
import socket
import ssl  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from typing import Any, Final

import click  # noqa: F401
import google.protobuf.internal.builder  # noqa: F401
import msgspec  # noqa: F401

NO_MODULES: Final = (
    "fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "curses", "readline", "syslog",
    "uvloop",
)  # fmt: skip
NO_NAMES: Final[dict[Any, str]] = {
    select: "poll epoll POLLIN POLLHUP POLLERR POLLRDHUP",
    signal: "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGCHLD SIGQUIT SIGPIPE SIGALRM SIGWINCH SIGCONT "
    "SIGSTOP SIGTSTP pthread_sigmask pthread_kill setitimer sigwait",
    socket: "AF_UNIX SO_REUSEPORT SO_PEERCRED SCM_RIGHTS MSG_DONTWAIT",
    os: "fork getuid geteuid getgid pread pwrite preadv pwritev sched_getaffinity statvfs "
    "posix_fadvise posix_fallocate fdatasync setsid killpg getpgid nice mkfifo uname getloadavg "
    "sysconf chown fchmod wait4 waitid O_DIRECTORY O_NOFOLLOW O_CLOEXEC memfd_create sendfile "
    "copy_file_range",
}


def refuse(*_: object) -> None:
    """Windows' event loops have no such call."""
    raise NotImplementedError


for module in NO_MODULES:
    sys.modules[module] = None  # type: ignore[assignment]
pair, unix = socket.socketpair, socket.AF_UNIX
for home, names in NO_NAMES.items():
    for name in names.split():
        if hasattr(home, name):
            delattr(home, name)
socket.socketpair = lambda *_: pair(unix)  # a loop wakes itself by one: of TCP, there
for name in ("add_signal_handler", "remove_signal_handler", "create_unix_connection"):
    setattr(asyncio.SelectorEventLoop, name, refuse)
sys.platform = "win32"
concurrent.futures.ThreadPoolExecutor  # noqa: B018  loads it, lazily otherwise
