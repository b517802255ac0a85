"""LaterMQ's client: send now, later or in a batch; receive under a lease; retry, or give up.

    async with latermq.connect("127.0.0.1:8081") as mq:
        await mq.send("orders", body, deliver_at=tomorrow)
        async for delivery in mq.push_consumer("orders", group="billing"):
            async with delivery:  # ack on exit; on raise, delivered again after its backoff
                await bill(delivery.body)

It is a RocketMQ 5 client: it speaks `apache.rocketmq.v2` and needs protobuf only.
`latermq.sync` is the same for threads, `latermq.errors` has every error, and with `latermq.admin`
brokers are administered.

A name brings its module when it is first used, so that who needs a part loads that part only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from latermq import errors, sync
    from latermq._connection.batching import Batching
    from latermq._values.identity import __version__ as __version__
    from latermq._values.tls import Tls
    from latermq.app import App
    from latermq.backoff import Backoff, retry
    from latermq.client import Client, connect
    from latermq.codes import Code
    from latermq.delivery import Delivery
    from latermq.errors import LaterMQError
    from latermq.lite_consumers import LitePushConsumer, LiteSimpleConsumer
    from latermq.message import (
        RECONSUME_LATER,
        Begin,
        ConsumeResult,
        DeadLetterOrigin,
        Message,
        Received,
        Resolution,
        SendReceipt,
        Sql,
    )
    from latermq.push_consumer import PushConsumer
    from latermq.simple_consumer import SimpleConsumer
    from latermq.transaction import Transaction

__all__ = [
    "RECONSUME_LATER",
    "App",
    "Backoff",
    "Batching",
    "Begin",
    "Client",
    "Code",
    "ConsumeResult",
    "DeadLetterOrigin",
    "Delivery",
    "LaterMQError",
    "LitePushConsumer",
    "LiteSimpleConsumer",
    "Message",
    "PushConsumer",
    "Received",
    "Resolution",
    "SendReceipt",
    "SimpleConsumer",
    "Sql",
    "Tls",
    "Transaction",
    "connect",
    "errors",
    "retry",
    "sync",
]

_HOMES: Final = {
    "__version__": "_values.identity",
    "Batching": "_connection.batching",
    "Tls": "_values.tls",
    "App": "app",
    "Backoff": "backoff",
    "retry": "backoff",
    "Client": "client",
    "connect": "client",
    "Code": "codes",
    "Delivery": "delivery",
    "LaterMQError": "errors",
    "LitePushConsumer": "lite_consumers",
    "LiteSimpleConsumer": "lite_consumers",
    "RECONSUME_LATER": "message",
    "Begin": "message",
    "ConsumeResult": "message",
    "DeadLetterOrigin": "message",
    "Message": "message",
    "Received": "message",
    "Resolution": "message",
    "SendReceipt": "message",
    "Sql": "message",
    "PushConsumer": "push_consumer",
    "SimpleConsumer": "simple_consumer",
    "Transaction": "transaction",
}

if not TYPE_CHECKING:  # to a type checker every other name would be Any

    def __getattr__(name: str) -> Any:
        """Load a public name with the module it lives in.

        Raises:
            AttributeError: no public name, nor a module that was imported.
        """
        if name not in __all__ and name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _HOMES:
            value = getattr(import_module(f"latermq.{_HOMES[name]}"), name)
        else:
            value = import_module(f"latermq.{name}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
