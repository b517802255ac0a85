"""The outbox: messages that a transaction of yours stores, and a relay that sends them.

    outbox = Outbox(metadata)  # SQLAlchemy: pip install 'latermq[outbox]'

    with sessions.begin() as session:
        session.add(Order(17))
        outbox.add(session, "orders", Message(b"17"))

    await outbox.run_async(mq, engine)  # in a task or process of its own

"The order is stored" and "its message is sent" are committed together, or neither. The relay takes
a row away once the broker has its message; a row that the broker refuses for good is set aside with
the reason; and while the broker is away everything waits.
"""

from latermq.outbox._outbox import Outbox, Relayed
from latermq.outbox._table import Parked

__all__ = ["Outbox", "Parked", "Relayed"]
