"""The documents name what exists: links, make targets, RPCs, commands and their options."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from latermq_cli.root import latermq as cli
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.latermq.v1 import (
    broker_pb2,
    dead_letter_pb2,
    group_pb2,
    pending_pb2,
    queue_pb2,
    topic_pb2,
)

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    path for path in ROOT.glob("**/*.md") if not {".venv", ".cache", "site"} & set(path.parts)
)
LINK: Final = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
TARGET: Final = re.compile(r"^([a-z-]+):.*?## ", re.MULTILINE)
SERVED: Final = (
    service_pb2, topic_pb2, group_pb2, pending_pb2, dead_letter_pb2, queue_pb2, broker_pb2
)  # fmt: skip


def shell_lines(page: Path) -> Iterator[str]:
    """Commands of the page's shell blocks, comments cut off."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.strip():
                yield line.partition("  #")[0].strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in heads}


def test_make_targets_that_are_named_exist() -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert {"demo", "test", "setup", "serve", "bench", "check", "help"} <= targets
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8")))
        named |= {line.split()[1] for line in shell_lines(page) if line.startswith("make ")}
        assert named <= targets, page.name


ARCHITECTURE: Final = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
RECIPES: Final = re.findall(r"^## (Adding .*)\n((?:(?!^## ).*\n)*)", ARCHITECTURE, re.MULTILINE)
NAMED_PATH: Final = re.compile(r"`((?:[\w-]+/)+(?:\w+\.\w+)?)`")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[0])
def test_a_recipe_has_ten_steps_at_most_and_names_what_exists(recipe: tuple[str, str]) -> None:
    named = NAMED_PATH.findall(recipe[1])
    roots = (ROOT, ROOT / "broker" / "latermq_broker")
    assert len(named) > 3
    assert [path for path in named if not any((at / path).exists() for at in roots)] == []
    steps = re.findall(r"^(\d+)\. ", recipe[1], re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert 3 <= len(steps) <= 10


def test_there_are_recipes() -> None:
    assert {"Adding an RPC", "Adding a setting"} <= {name for name, _ in RECIPES}


def test_every_rpc_is_in_the_protocol_page() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    missing = [
        f"{service.name}.{rpc.name}"
        for file in SERVED
        for service in file.DESCRIPTOR.services_by_name.values()
        for rpc in service.methods
        if not re.search(rf"\b{rpc.name}\b", page)
    ]
    assert missing == []


def command_named(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that `words` call, and the words left for it."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, f"there is no `latermq {' '.join(words)}`"
        command, rest = found, rest[1:]
    return command, rest


@pytest.mark.parametrize(
    "line", [line for line in shell_lines(ROOT / "README.md") if line.startswith("latermq ")]
)
def test_commands_in_the_readme_parse(line: str) -> None:
    command, rest = command_named(shlex.split(line)[1:])
    context: Any = command.make_context(command.name, rest, resilient_parsing=False)
    assert context.params, line


def test_every_decision_is_found_by_its_question() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    assert sorted(re.findall(r"\]\((0[\w-]+\.md)\)", index)) == decisions


def test_every_page_is_found_from_the_navigation_and_the_guide() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    guide = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    pages = {page for page in pages if not page.startswith("adr/")}  # docs/pages.py lists them
    assert {page for page in pages if not re.search(rf"[ :]{page}$", navigation, re.M)} == set()
    told = {page for page in pages if page.startswith("guide/")} - {"guide/README.md"}
    assert {page for page in told if f"]({Path(page).name})" not in guide} == set()


def test_modules_that_are_named_are_there() -> None:
    """A walk that names a file which has moved leads nowhere."""
    architecture = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w-]+/)+\w+\.py)`", architecture))
    roots = (ROOT, ROOT / "broker" / "latermq_broker", ROOT / "client", ROOT / "proto")
    lost = {name for name in named if not any((root / name).is_file() for root in roots)}
    assert len(named) > 20
    assert not lost


def test_every_picture_is_taken_anew_and_shown() -> None:
    there = {path.stem for path in (ROOT / "docs" / "pictures").iterdir()}
    taken = (ROOT / "tests" / "console" / "screenshots.py").read_text(encoding="utf-8")
    assert set(re.findall(r'^    \("([a-z-]+)", "/', taken, re.MULTILINE)) == there
    shown = {
        name for page in PAGES
        for name in re.findall(r"\(pictures/([a-z-]+)\.png\)", page.read_text(encoding="utf-8"))
    }  # fmt: skip
    assert shown == there
