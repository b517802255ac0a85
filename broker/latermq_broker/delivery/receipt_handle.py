"""Receipt handles: which delivery, which generation of it, and a proof that we made it.

    0             8             12        20     little-endian, sent as 40 hex digits
    | delivery id | generation  | mac     |
The mac is keyed with a secret of the log, so handles outlive a restart and cannot be guessed.
"""

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

_BODY: Final = struct.Struct("<QI")
assert _BODY.size == 12
_MAC_BYTES: Final = 8
_HANDLE_DIGITS: Final = 2 * (_BODY.size + _MAC_BYTES)


class ReceiptHandles:
    def __init__(self, secret: bytes) -> None:
        key = blake2b(secret, person=b"latermq-receipt").digest()
        self._keyed = blake2b(key=key, digest_size=_MAC_BYTES)  # copied: the key is mixed in once

    def encode(self, delivery_id: int, generation: int) -> str:
        body = _BODY.pack(delivery_id, generation)
        return (body + self._mac(body)).hex()

    def decode(self, handle: str) -> tuple[int, int] | None:
        """(delivery id, generation); None: not a handle of this log."""
        if len(handle) != _HANDLE_DIGITS:
            return None
        try:
            raw = bytes.fromhex(handle)
        except ValueError:
            return None
        if len(raw) != _BODY.size + _MAC_BYTES:  # fromhex allows blanks
            return None
        body, mac = raw[: _BODY.size], raw[_BODY.size :]
        if not compare_digest(mac, self._mac(body)):
            return None
        delivery_id, generation = _BODY.unpack(body)
        return delivery_id, generation

    def _mac(self, body: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(body)
        return mac.digest()
