"""Every example of README and guide is run by a test that is named here, or a reason is."""

import re
from typing import Final

import pytest

from support.guide import PAGES, ROOT, Example, examples

GUIDED: Final = "integration/test_guide.py::"
IN_PROJECTS: Final = f"{GUIDED}test_a_page_s_files_do_what_their_tests_say"
CELERY: Final = "integration/test_celery_example.py::"
FIRST_WORKER: Final = "integration/test_first_worker.py::test_what_the_page_says_is_what_happens"
WORKER: Final = "integration/test_worker.py::"
KAFKA: Final = "kafka/test_guide.py::test_the_page_says_what_happens"
REDIS: Final = "integration/test_redis_done.py::test_the_guide_s_example_passes"
README: Final = "integration/test_readme.py::"
DEPLOYING: Final = "unit/test_deploying.py::"
# Pages whose blocks have one test; other pages' files of Python are written and run together.
PAGES_RUN: Final = {"first-worker.md": FIRST_WORKER, "kafka.md": KAFKA}
# By the page and what a block begins with.
RUN: Final = {
    ("README.md", "import asyncio"): f"{README}test_the_ten_lines_work",
    ("README.md", "async with mq.transaction"): f"{README}test_a_transaction_is_a_block",
    ("README.md", "bots = mq.lite_push"): f"{README}test_a_lite_consumer_reads_what_it_chose",
    ("README.md", "from latermq.spark"): "spark/test_report.py::test_the_readme_snippet",
    ("README.md", "latermq serve --data"): f"{README}test_the_tour_of_the_command_line_works",
    ("README.md", "printf '[auth]"): f"{README}test_users_come_in_as_it_says",
    ("coming-from.md", "# celery_shop.py"): f"{CELERY}test_celery_s_half_does_what_the_table_says",
    ("delays.md", "latermq pending"): f"{GUIDED}test_what_waits_is_moved_by_the_page_s_commands",
    ("deploying.md", "# /etc/systemd"): f"{DEPLOYING}test_systemd_takes_the_unit",
    ("deploying.md", "# Dockerfile"): f"{DEPLOYING}test_the_image_runs_the_worker_itself",
    ("deploying.md", "# worker.yaml"): f"{DEPLOYING}test_kubernetes_waits_longer_than_the_worker",
    ("idempotency.md", "# mail/shop.py"): REDIS,
    ("idempotency.md", "# mail/test_shop.py"): REDIS,
    ("retries.md", "WARNING latermq.worker"): f"{GUIDED}test_a_worker_warns_as_the_page_says",
    ("retries.md", "latermq dead list"): f"{GUIDED}test_a_letter_is_redriven_by_the_page_s_words",
    ("schedules.md", "latermq schedule"): f"{GUIDED}test_a_schedule_is_led_by_the_page_s_commands",
    ("worker.md", "await bill.consumer"): f"{GUIDED}test_a_listener_is_paused_by_the_page_s_lines",
    ("worker.md", "import asyncio"): f"{WORKER}test_the_guide_s_example_works",
    ("worker.md", "latermq worker shop:app"): f"{WORKER}test_the_guide_s_example_works",
    ("worker.md", "WARNING latermq.client"):
        f"{WORKER}test_a_broker_that_is_away_is_two_lines_and_no_loss",
}  # fmt: skip
NOT_RUN: Final = {
    ("README.md", "make demo"): ".ci/run runs both, and looks whether the README names them",
    ("README.md", "docker compose"):
        "needs a Docker engine: `make compose-test`; unit/test_compose.py reads the file",
    ("README.md", "make native"): "compiles for minutes: `make test` does it once for all suites",
}  # fmt: skip
EXAMPLES: Final = [each for page in PAGES for each in examples(page)]


def begins(example: Example, place: tuple[str, str]) -> bool:
    page, text = place
    return example.page.name == page and example.text.startswith(text)


def run_by(example: Example) -> str:
    """Return the test that runs it; "": none does."""
    named = [test for place, test in RUN.items() if begins(example, place)]
    if example.page.name in PAGES_RUN:
        named.append(PAGES_RUN[example.page.name])
    elif not named and example.language == "python" and example.file:
        named.append(IN_PROJECTS)
    assert len(named) <= 1, named
    return "".join(named)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.page.name}: {each.begins}")
def test_an_example_is_run(example: Example) -> None:
    test = run_by(example)
    excused = any(begins(example, place) for place in NOT_RUN)
    assert bool(test) != excused, "name the test that runs it, or a reason"
    if test:
        path, _, name = test.partition("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), test


@pytest.mark.parametrize("place", [*RUN, *NOT_RUN])
def test_what_is_named_here_is_one_example(place: tuple[str, str]) -> None:
    assert sum(begins(example, place) for example in EXAMPLES) == 1


def test_every_fence_is_known() -> None:
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        fences = sum(line.lstrip().startswith(("```", "~~~")) for line in lines)
        assert fences == 2 * len(list(examples(page))), page.name
