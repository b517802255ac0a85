"""How long a lease, a delay and a wait may be: ours, or RocketMQ's own with `compat.strict`.

RocketMQ's are tighter, and test suites written for it expect them and its very words. What the
configuration bounds more tightly still stays bounded.
"""

from typing import Final

from latermq_broker.config.config import Config
from latermq_broker.errors import IllegalDeliveryTimeError, IllegalInvisibleTimeError

STRICT_LEASE_MS_MIN: Final = 10_000
STRICT_LEASE_MS_MAX: Final = 12 * 3_600_000
STRICT_DELAY_MS_MAX: Final = 86_400_000
_MS_PER_DAY: Final = 86_400_000


class Bounds:
    def __init__(self, config: Config) -> None:
        delivery = config.delivery
        self.strict = strict = config.compat.strict
        self.short_polling = config.server.short_polling and not strict
        self.lease_ms_min = delivery.invisible_ms_min
        self.lease_ms_max = delivery.invisible_ms_max
        self.delay_ms_max = delivery.delay_ms_max
        if strict:
            self.lease_ms_min = max(self.lease_ms_min, STRICT_LEASE_MS_MIN)
            self.lease_ms_max = min(self.lease_ms_max, STRICT_LEASE_MS_MAX)
            self.delay_ms_max = min(self.delay_ms_max, STRICT_DELAY_MS_MAX)

    def check_lease(self, invisible_ms: int) -> None:
        """Check the invisible duration of a receive. Raises IllegalInvisibleTimeError."""
        self._check_invisible(invisible_ms, self.lease_ms_min)

    def check_change(self, invisible_ms: int) -> None:
        """Check that of a change; 0: visible now. Raises IllegalInvisibleTimeError."""
        self._check_invisible(invisible_ms, 0)

    def _check_invisible(self, invisible_ms: int, least_ms: int) -> None:
        most_ms = self.lease_ms_max
        if least_ms <= invisible_ms <= most_ms:
            return
        text = (
            f"invisible duration {_words(invisible_ms)} is not within {_words(least_ms)} to "
            f"{_words(most_ms)}"
        )
        if self.strict:
            small = invisible_ms < least_ms
            word, bound = ("small. min", least_ms) if small else ("large. max", most_ms)
            text = f"the invisibleTime is too {word} is {bound}"
        raise IllegalInvisibleTimeError(text)

    def check_delay(self, delay_ms: int) -> None:
        """Check how far off a message's delivery is. Raises IllegalDeliveryTimeError."""
        most_ms = self.delay_ms_max
        if delay_ms <= most_ms:
            return
        text = f"the max delay time of message is too large, max is {most_ms}"
        if not self.strict:
            text = (
                f"delivery {delay_ms} ms from now, at most {most_ms} ms "
                f"({most_ms // _MS_PER_DAY} days) are allowed"
            )
        raise IllegalDeliveryTimeError(text)


def _words(ms: int) -> str:
    """Write a duration exactly, in the largest unit of which it is a whole number."""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
