"""Redrives of one group have one rate together."""

from latermq_broker.services.messaging.redrive_pace import SILENT_MS, RedrivePaces

NOW_MS = 1_700_000_000_000
STEP_MS = 50


def redriven(paces: RedrivePaces, jobs: dict[int, tuple[str, int]], seconds: int) -> dict[int, int]:
    """Let redrives, job → (group, rate), ask every STEP_MS; return how many letters each got."""
    counts = dict.fromkeys(jobs, 0)
    for now_ms in range(NOW_MS, NOW_MS + seconds * 1_000, STEP_MS):
        for job, (group, rate) in jobs.items():
            allowed = paces.allowed(group, job, rate, 100, now_ms)
            paces.take(group, allowed)
            counts[job] += allowed
    return counts


def test_two_redrives_of_a_group_share_the_lowest_rate() -> None:
    paces = RedrivePaces()
    first, second, other = (paces.begin(NOW_MS) for _ in range(3))
    jobs = {first: ("billing", 50), second: ("billing", 20), other: ("mail", 10)}
    counts = redriven(paces, jobs, 10)
    # The first look, before the second redrive has asked, may be at the higher rate.
    assert 195 <= counts[first] + counts[second] <= 203
    assert 98 <= counts[other] <= 101


def test_a_redrive_without_a_rate_is_held_to_that_of_another_while_it_runs() -> None:
    paces = RedrivePaces()
    free, slow = paces.begin(NOW_MS), paces.begin(NOW_MS)
    assert paces.allowed("billing", free, 0, 100, NOW_MS) == 100
    paces.take("billing", 100)
    assert paces.allowed("billing", slow, 1, 100, NOW_MS) == 1
    paces.take("billing", 1)
    assert paces.allowed("billing", free, 0, 100, NOW_MS) == 0
    paces.end("billing", slow)
    assert paces.allowed("billing", free, 0, 100, NOW_MS) == 100


def test_one_redrive_after_the_other_begins_with_no_token_of_its_own() -> None:
    paces = RedrivePaces()
    done = 0
    for now_ms in range(NOW_MS, NOW_MS + 10_000, 100):
        job = paces.begin(now_ms)
        allowed = paces.allowed("billing", job, 1, 1, now_ms)
        paces.take("billing", allowed)
        paces.end("billing", job)
        done += allowed
    assert done in (10, 11)


def test_a_redrive_that_was_cut_off_holds_nobody_for_long() -> None:
    paces = RedrivePaces()
    lost = paces.begin(NOW_MS)
    assert paces.allowed("billing", lost, 1, 100, NOW_MS) == 1
    paces.take("billing", 1)
    free = paces.begin(NOW_MS)
    assert paces.allowed("billing", free, 0, 100, NOW_MS + SILENT_MS) <= 1
    assert paces.allowed("billing", free, 0, 100, NOW_MS + SILENT_MS + 1) == 100
