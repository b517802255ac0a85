"""Why a broker stops: the first failure, which the others follow from."""

from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import FencedError, StoreReadOnlyError
from latermq_broker.pump.event_loop import Ending


async def test_the_first_failure_says_why() -> None:
    """A sync that waits for the replicated log fails, too, once another owner is found in it."""
    ending = Ending(ServerConfig(), waited_for=False)
    ending.failed(FencedError("another broker has taken over"))
    ending.failed(StoreReadOnlyError("not in the replicated log"))
    assert isinstance(ending.failure, FencedError)
    assert ending.stop.is_set()


async def test_after_the_log_was_let_go_nothing_fails() -> None:
    ending = Ending(ServerConfig(), waited_for=False)
    ending.let_go()
    ending.failed(StoreReadOnlyError("not in the replicated log"))
    assert ending.failure is None
