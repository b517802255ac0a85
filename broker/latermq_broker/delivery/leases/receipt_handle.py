"""Receipt handles: which delivery, which generation of it, and a proof that we made it.

    0             8             12        20     little-endian, sent as 40 hex digits
    | delivery id | generation  | mac     |
The mac is keyed with a secret of the log, so handles outlive a restart and cannot be guessed. Eight
deliveries in sequence share one run of the hash, which makes 64 bytes: each has 8 of them, by the
low bits of its id. Handles given out before that have a mac of their own, and are known still.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

_BODY: Final = struct.Struct("<QI")
assert _BODY.size == 12
_MAC_BYTES: Final = 8
_HANDLE_BYTES: Final = _BODY.size + _MAC_BYTES
_HANDLE_DIGITS: Final = 2 * _HANDLE_BYTES
_BLOCK_BITS: Final = 3
_BLOCK_MASK: Final = (1 << _BLOCK_BITS) - 1

Named = tuple[int, int]
"""Delivery id and generation."""

NO_DELIVERY: Final[Named] = (0, 0)


class ReceiptHandles:
    def __init__(self, secret: bytes) -> None:
        key = blake2b(secret, person=b"latermq-receipt").digest()
        # Copied: the key is mixed in once.
        self._keyed = blake2b(key=key, digest_size=_MAC_BYTES << _BLOCK_BITS, person=b"block")
        self._keyed_alone = blake2b(key=key, digest_size=_MAC_BYTES)

    def encode(self, delivery_id: int, generation: int) -> str:
        (handle,) = self.encode_all((delivery_id,), (generation,))
        return handle

    def encode_all(self, ids: Sequence[int], generations: Sequence[int]) -> list[str]:
        """A handle for each."""
        count = len(ids)
        if not count:
            return []
        fields = [0] * (3 * count)
        fields[::3], fields[1::3] = ids, generations
        fields[2::3] = struct.unpack(f"<{count}Q", self._macs(ids, generations))
        digits = struct.pack("<" + "QIQ" * count, *fields).hex()
        size = _HANDLE_DIGITS
        return [digits[at : at + size] for at in range(0, len(digits), size)]

    def decode(self, handle: str) -> Named | None:
        """(delivery id, generation); None: not a handle of this log."""
        (id,), (generation,) = self.decode_all((handle,))
        return (id, generation) if generation else None

    def decode_all(self, handles: Sequence[str]) -> tuple[Sequence[int], Sequence[int]]:
        """Ids and generations; both are 0 for what is no handle of this log."""
        try:
            raw = bytes.fromhex("".join(handles))
        except ValueError:
            raw = b""
        # fromhex allows blanks: the length tells.
        if len(raw) == _HANDLE_BYTES * len(handles) and {*map(len, handles)} == {_HANDLE_DIGITS}:
            fields = struct.unpack("<" + "QIQ" * len(handles), raw)
            ids, generations = fields[::3], fields[1::3]
            macs = struct.pack(f"<{len(handles)}Q", *fields[2::3])
            if compare_digest(macs, self._macs(ids, generations)):
                return ids, generations
        if len(handles) == 1:
            id, generation = self._decode_alone(raw)
            return (id,), (generation,)
        each = [self.decode(handle) or NO_DELIVERY for handle in handles]
        return [id for id, _ in each], [generation for _, generation in each]

    def _decode_alone(self, raw: bytes) -> Named:
        """Decode a handle that was given before macs came in blocks."""
        if len(raw) != _HANDLE_BYTES:
            return NO_DELIVERY
        mac = self._keyed_alone.copy()
        mac.update(raw[: _BODY.size])
        if not compare_digest(raw[_BODY.size :], mac.digest()):
            return NO_DELIVERY
        delivery_id, generation = _BODY.unpack_from(raw)
        return delivery_id, generation

    def _macs(self, ids: Sequence[int], generations: Sequence[int]) -> bytes:
        """Compute the macs of all handles, and join them."""
        first, last, generation = ids[0], ids[-1], generations[0]
        count = len(ids)
        in_run = count == 1 or (
            last - first == count - 1
            and generations.count(generation) == count
            and tuple(ids) == tuple(range(first, last + 1))
        )
        if not in_run:
            return b"".join(
                [self._macs((id,), (of,)) for id, of in zip(ids, generations, strict=True)]
            )
        blocks = range(first >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1)
        digests = b"".join([self._digest(block, generation) for block in blocks])
        begin = (first & _BLOCK_MASK) * _MAC_BYTES
        return digests[begin : begin + count * _MAC_BYTES]

    def _digest(self, block: int, generation: int) -> bytes:
        mac = self._keyed.copy()
        mac.update(_BODY.pack(block, generation))
        return mac.digest()
