"""Settings of the room `[background]`: how much of the event loop work that lasts may have."""

from dataclasses import dataclass

from latermq_broker.config.number_bounds import check_minima


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundConfig:
    percent: int = 20  # of the loop's time, for all such work, while other calls are answered
    running_per_user_max: int = 8  # lasting calls of one user that take turns
    waiting_per_user_max: int = 256  # … and that wait for these; beyond: TOO_MANY_REQUESTS

    def __post_init__(self) -> None:
        check_minima("background", self, "waiting_per_user_max")
