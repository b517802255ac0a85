"""Brokers for tests: a real one in a process, and one whose time the test moves.

    async def test_a_card_that_is_refused(latermq_time):
        async with latermq_time.working(app):
            await bill.send(Order(17, "ann"))
            await latermq_time.advance("36s")
            (letter,) = latermq_time.dead("billing")
            assert letter.kind == "CardRefused"

pytest finds the fixtures `latermq_broker` and `latermq_time` by itself: docs/guide/testing.md. A
name brings its module when it is first used: pytest loads this package wherever it is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from latermq.testing._desk import DeadLetter, Desk, Failure, Pending, Sent
    from latermq.testing._held import HeldBroker
    from latermq.testing._process import BrokerProcess

__all__ = ["BrokerProcess", "DeadLetter", "Desk", "Failure", "HeldBroker", "Pending", "Sent"]

_HOMES: Final = {"BrokerProcess": "_process", "HeldBroker": "_held"}

if not TYPE_CHECKING:  # to a type checker every other name would be Any

    def __getattr__(name: str) -> Any:
        """Load a public name with the module it lives in.

        Raises:
            AttributeError: no public name.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES.get(name, '_desk')}"), name)
        globals()[name] = value
        return value
