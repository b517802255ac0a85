"""Who holds which row, and for whom the broker renews leases."""

from array import array
from collections.abc import KeysView, Sequence
from typing import Final

from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.leases.shared import Holder
from latermq_broker.delivery.leases.slab import Slab, fill

_ROWS_MIN: Final = 64

RENEW_MARGIN_MS: Final = 10_000  # an auto-renewed lease is looked at so long before its deadline


class _Renewed:
    """Rows that were given to one client to be renewed; some have been given away since."""

    __slots__ = ("holders", "rows", "rows_max")

    def __init__(self) -> None:
        self.holders = 0  # of that client, that hold anything
        self.rows = array("I")
        self.rows_max = _ROWS_MIN


class Renewals:
    """Writes the column `holder`."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._clients: dict[str, _Renewed] = {}

    def give_to(self, row: int, holder: Holder) -> None:
        """Give a row to `holder` from now on."""
        slab = self._slab
        before = slab.holder[row]
        self.give_new((row,), holder)
        if before and slab.holders.release(before):
            self.forget(before)

    def give_new(self, rows: Sequence[int], holder: Holder) -> None:
        """Give rows that were nobody's to `holder`."""
        if not rows:
            return
        slab = self._slab
        number = slab.holders.hold(holder, len(rows))
        assert number  # 0: nobody
        new = slab.holders.count(number) == len(rows)
        fill(slab.holder, rows, number)
        for row in rows if holder.auto_renew else ():
            self._note(row, holder, new=new)
            new = False

    def load(self) -> None:
        """Take over the holders of a slab that was loaded."""
        slab = self._slab
        known = {0}
        for row in slab.live():
            number = slab.holder[row]
            holder = slab.holders.values[number]
            if holder.auto_renew:
                self._note(row, holder, new=number not in known)
                known.add(number)

    def rows(self, client_id: str) -> set[int]:
        """Return the client's rows that are renewed, or were while they lasted."""
        renewed = self._clients.get(client_id)
        return set() if renewed is None else self._current(renewed, client_id)

    def clients(self) -> KeysView[str]:
        """Return the clients that have such rows, as they come and go."""
        return self._clients.keys()

    def _note(self, row: int, holder: Holder, *, new: bool) -> None:
        assert row
        assert holder.auto_renew
        renewed = self._clients.get(holder.client_id)
        if renewed is None:
            renewed = self._clients[holder.client_id] = _Renewed()
        renewed.holders += new
        renewed.rows.append(row)
        if len(renewed.rows) > renewed.rows_max:
            renewed.rows = array("I", sorted(self._current(renewed, holder.client_id)))
            renewed.rows_max = max(_ROWS_MIN, 2 * len(renewed.rows))

    def _current(self, renewed: _Renewed, client_id: str) -> set[int]:
        slab = self._slab
        holders = slab.holders.values
        current: set[int] = set()
        for row in renewed.rows:
            holder = holders[slab.holder[row]]
            if slab.state[row] and holder.auto_renew and holder.client_id == client_id:
                current.add(row)
        return current

    def forget(self, number: int) -> None:
        """Forget a holder that holds nothing any more."""
        holder = self._slab.holders.values[number]
        if holder.auto_renew:
            renewed = self._clients[holder.client_id]
            renewed.holders -= 1
            assert renewed.holders >= 0
            if not renewed.holders:
                del self._clients[holder.client_id]


def margin_ms(delivery: Delivery, deadline_ms: int) -> int:
    """Say how long before its deadline a delivery is looked at: its lease may be to be renewed."""
    if delivery.state is not State.LEASED or not delivery.auto_renew:
        return 0
    return early_ms(deadline_ms - delivery.leased_ms)


def early_ms(lasting_ms: int) -> int:
    """Say how long before its end a lease that lasts so long is looked at."""
    return min(RENEW_MARGIN_MS, lasting_ms // 2)
