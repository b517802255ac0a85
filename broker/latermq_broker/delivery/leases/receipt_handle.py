"""Receipt handles: which delivery, which generation of it, and a proof that we made it.

    0             8             12        20     little-endian, sent as 40 hex digits
    | delivery id | generation  | mac     |
The mac is keyed with a secret of the log, so handles outlive a restart and cannot be guessed. Eight
deliveries in sequence share one run of the hash, which makes 64 bytes: each has 8 of them, by the
low bits of its id. Handles given out before that have a mac of their own, and are known still.
"""

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

_BODY: Final = struct.Struct("<QI")
assert _BODY.size == 12
_MAC_BYTES: Final = 8
_HANDLE_DIGITS: Final = 2 * (_BODY.size + _MAC_BYTES)
_BLOCK_BITS: Final = 3
_BLOCK_MASK: Final = (1 << _BLOCK_BITS) - 1

DIGESTS_MAX: Final = 256  # kept: several consumers acknowledge by turns what each was given at once

Named = tuple[int, int]
"""Delivery id and generation."""

NO_DELIVERY: Final[Named] = (0, 0)


class ReceiptHandles:
    """Makes and knows the handles of one log."""

    def __init__(self, secret: bytes) -> None:
        key = blake2b(secret, person=b"latermq-receipt").digest()
        # Copied: the key is mixed in once.
        self._keyed = blake2b(key=key, digest_size=_MAC_BYTES << _BLOCK_BITS, person=b"block")
        self._keyed_alone = blake2b(key=key, digest_size=_MAC_BYTES)
        self._digests: dict[int, tuple[int, bytes]] = {}  # block → generation, digest

    def encode(self, delivery_id: int, generation: int) -> str:
        """Make the handle of a delivery in that generation."""
        assert delivery_id > 0  # else it could be taken for NO_DELIVERY
        mac = self._mac(delivery_id, generation)
        return (_BODY.pack(delivery_id, generation) + mac).hex()

    def decode(self, handle: str) -> Named:
        """Read delivery id and generation; NO_DELIVERY: not a handle of this log."""
        if len(handle) != _HANDLE_DIGITS:
            return NO_DELIVERY
        try:
            raw = bytes.fromhex(handle)
        except ValueError:
            return NO_DELIVERY
        mac = raw[_BODY.size :]
        if len(mac) != _MAC_BYTES:  # fromhex allows blanks
            return NO_DELIVERY
        delivery_id, generation = _BODY.unpack_from(raw)
        if compare_digest(mac, self._mac(delivery_id, generation)):
            return delivery_id, generation
        alone = self._keyed_alone.copy()  # of before macs came in blocks
        alone.update(raw[: _BODY.size])
        return (delivery_id, generation) if compare_digest(mac, alone.digest()) else NO_DELIVERY

    def _mac(self, delivery_id: int, generation: int) -> bytes:
        block = delivery_id >> _BLOCK_BITS
        known = self._digests.get(block)
        if known is None or known[0] != generation:
            mac = self._keyed.copy()
            mac.update(_BODY.pack(block, generation))
            if len(self._digests) >= DIGESTS_MAX:
                self._digests.clear()
            known = self._digests[block] = (generation, mac.digest())
        at = (delivery_id & _BLOCK_MASK) * _MAC_BYTES
        return known[1][at : at + _MAC_BYTES]
