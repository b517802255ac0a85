"""Opening and reading files that others may have put where we look for ours.

A pipe would hold its reader for ever, a device has no end, a link leads elsewhere, and a file may
be longer than memory: each is an OSError with words, before a byte of it is read.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_READ_AT_ONCE_BYTES: Final = 1 << 20


def open_regular(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """Open a regular file and return its descriptor; what else is there is refused at once.

    Args:
        flags: as `os.open` takes them; a file that they make gets the mode 0600.
        follow: the file may be a link to a regular one.
    Raises:
        OSError: ELOOP for a link, EISDIR for a directory, ENXIO for a pipe, device or socket.
    """
    more = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags | more, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, f"{path.name} is a link", str(path)) from None
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise _irregular(path, error.errno) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise _irregular(path, errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO)


def read_regular(path: Path, bytes_max: int, *, follow: bool = False) -> bytes:
    """Read a whole regular file of at most `bytes_max` bytes.

    Raises:
        OSError: as `open_regular`; EFBIG: it is longer.
    """
    descriptor = open_regular(path, follow=follow)
    try:
        return read_bounded(descriptor, path, bytes_max)
    finally:
        os.close(descriptor)


def read_bounded(descriptor: int, path: Path, bytes_max: int) -> bytes:
    """Read the rest of an open file. Raises OSError EFBIG: it has more than `bytes_max` bytes."""
    data = bytearray()
    while part := os.read(descriptor, min(_READ_AT_ONCE_BYTES, bytes_max + 1 - len(data))):
        data += part
        if len(data) > bytes_max:
            text = f"{path.name} is longer than {bytes_max} bytes"
            raise OSError(errno.EFBIG, text, str(path))
    return bytes(data)


def _irregular(path: Path, number: int) -> OSError:
    kind = "a directory" if number == errno.EISDIR else "not a regular file"
    return OSError(number, f"{path.name} is {kind}", str(path))
