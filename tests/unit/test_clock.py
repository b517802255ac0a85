"""Two scales: the broker's own time follows no jump, the wall clock's offset follows each."""

from latermq_broker.clock import SystemClock, boot_ms, monotonic_ms

HOUR_NS = 3_600_000_000_000
HOUR_MS = 3_600_000
START_NS = 1_700_000_000_000_000_000


class Clocks:
    """The system's two clocks; `interrupted_ns` passes between two readings."""

    def __init__(self) -> None:
        self.passed_ns = 0
        self.wall_ahead_ns = 0
        self.interrupted_ns = 0

    def wall_ns(self) -> int:
        self.passed_ns += self.interrupted_ns
        return START_NS + self.passed_ns + self.wall_ahead_ns

    def monotonic_ns(self) -> int:
        return 12_345 + self.passed_ns


def clock_of(clocks: Clocks) -> SystemClock:
    return SystemClock(clocks.wall_ns, clocks.monotonic_ns)


def test_time_passes_alike_on_both_scales() -> None:
    clocks = Clocks()
    clock = clock_of(clocks)
    began_ms = clock.now_ms()
    clocks.passed_ns += HOUR_NS
    assert clock.now_ms() == began_ms + HOUR_MS
    assert clock.wall_offset_ms == 0


def test_a_jump_moves_only_the_wall_clock() -> None:
    clocks = Clocks()
    clock = clock_of(clocks)
    began_ms = clock.now_ms()
    for hours in (1, -1, 0):
        clocks.wall_ahead_ns = hours * HOUR_NS
        assert clock.now_ms() == began_ms
        assert clock.wall_offset_ms == hours * HOUR_MS


def test_small_steps_add_up_to_a_jump() -> None:
    clocks = Clocks()
    clock = clock_of(clocks)
    for _ in range(3):
        clocks.wall_ahead_ns += 8_000_000
        clock.now_ms()
    assert clock.wall_offset_ms == 24


def test_a_step_back_is_followed_at_once_and_a_step_ahead_waits_until_it_is_large() -> None:
    """What is followed late is, after a step back, delivered that much too early."""
    clocks = Clocks()
    clock = clock_of(clocks)
    for ahead_ms, seen_ms in ((8, 0), (0, 0), (-8, -8), (-8.5, -8), (-9, -9), (10, -9), (11, 11)):
        clocks.wall_ahead_ns = int(ahead_ms * 1_000_000)
        clock.now_ms()
        assert clock.wall_offset_ms == seen_ms


def test_being_interrupted_between_two_readings_is_no_jump() -> None:
    clocks = Clocks()
    clock = clock_of(clocks)
    clocks.interrupted_ns = 500_000_000
    clock.now_ms()
    assert clock.wall_offset_ms == 0


def test_a_life_that_begins_before_the_last_one_ended_goes_on_where_it_ended() -> None:
    clocks = Clocks()
    clock = clock_of(clocks)
    ended_ms = clock.now_ms() + HOUR_MS
    clock.not_before(ended_ms)
    assert clock.now_ms() == ended_ms
    assert clock.wall_offset_ms == -HOUR_MS
    clock.not_before(ended_ms - 5)
    assert clock.now_ms() == ended_ms
    assert clock.wall_offset_ms == -HOUR_MS


def test_a_life_goes_on_by_a_clock_that_was_behind_or_ahead() -> None:
    clocks = Clocks()
    clock = clock_of(clocks)
    for hours in (-1, 2, 1):
        began_ms = clock.now_ms()
        wall_ms = clock.wall_ms()
        clock.go_on_from(began_ms + hours * HOUR_MS)
        assert clock.now_ms() == began_ms + hours * HOUR_MS
        assert clock.wall_ms() == wall_ms
    clocks.passed_ns += HOUR_NS
    clocks.wall_ahead_ns += HOUR_NS
    assert clock.wall_ms() == wall_ms + 2 * HOUR_MS


def test_what_the_machine_slept_is_counted() -> None:
    awake_ms = monotonic_ms()
    assert boot_ms() >= awake_ms
