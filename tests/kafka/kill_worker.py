"""A worker that is killed: writes down each record that its handler was done with.

python kill_worker.py BOOTSTRAP ENDPOINT TOPIC GROUP FILE ORDERED RETRY
"""

import asyncio
import os
import sys

from latermq.kafka import KafkaApp, Record

BAD = 5  # of a hundred; every tenth of them never gets through
ATTEMPTS = 8


def fails(number: int, attempt: int) -> bool:
    """Tell whether the handler is to raise; the same in every process."""
    return number % 100 < BAD and (attempt == 1 or number % 1_000 < BAD)


def main() -> None:
    bootstrap, endpoint, topic, group, file, ordered, retry = sys.argv[1:]
    done = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    app = KafkaApp(
        {"bootstrap.servers": bootstrap},
        endpoint,
        consumer={"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500},
    )

    @app.kafka_listener(
        topic, group=group, ordered=ordered == "ordered", retry=retry, max_attempts=ATTEMPTS
    )
    async def handle(record: Record) -> None:
        number = int(record.value or b"")
        await asyncio.sleep(0)
        if fails(number, record.attempt):
            raise ValueError("not yet")
        os.write(done, b"%d\n" % number)

    app.run()


if __name__ == "__main__":
    main()
