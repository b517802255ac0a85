"""A call that lasts, made of a service's method without its table."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from latermq_broker.background.jobs import Background
from latermq_broker.config.background import BackgroundConfig
from latermq_broker.services.call.answers import Caller
from support.fake_call import FakeCall

Answer = TypeVar("Answer")


async def answered(answer: Callable[[Any, Caller], Awaitable[Answer]], request: Any) -> Answer:
    """Answer in turns of a background that has nothing else to do."""
    caller = Caller("", FakeCall())
    async with Background(BackgroundConfig()).job("at test", "Call") as caller.job:
        return await answer(request, caller)
