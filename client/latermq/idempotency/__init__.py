"""What was done already: remembered in the transaction that does it, or in Redis.

    done = Done(metadata, "billing")  # SQLAlchemy: pip install 'latermq[idempotency]'

    async with sessions.begin() as session:
        if await done.first_time_async(session, delivery.message_id):
            session.add(Payment(order.id))

    done = RedisDone(redis.asyncio.Redis(), "billing")  # pip install 'latermq[redis]'

    async with done.once_async(delivery.message_id) as first:
        if first:
            await bank.charge(order)

A message may come more than once: its worker died before it acknowledged, or its sender sent it
again. With `Done` what the work writes, and that it is done, are committed together or not at all;
so it is done once, however often the message comes. `RedisDone` is for work that is done elsewhere:
it keeps two from doing it at a time, and repeats are left out; a worker that dies between its work
and the end of its block has it done again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from latermq.idempotency._database import Done
    from latermq.idempotency._exact import InexactTableError
    from latermq.idempotency._redis import InHandError, RedisDone

__all__ = ["Done", "InHandError", "InexactTableError", "RedisDone"]

_HOMES: Final = {
    "Done": "_database",
    "InHandError": "_redis",
    "InexactTableError": "_exact",
    "RedisDone": "_redis",
}

if not TYPE_CHECKING:  # to a type checker every other name would be Any

    def __getattr__(name: str) -> Any:
        """Load a name when it is first used: who has Redis need not have SQLAlchemy.

        Raises:
            AttributeError: no public name.
            ImportError: what it needs is not installed.
        """
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
