"""What files, rights and limits of a machine refuse is a line and 2, whatever command meets it."""

import errno
import os

import click
import pytest
from click.testing import CliRunner

from latermq_cli.terminal.commands import SURROUNDINGS, RootGroup


def group_that_meets(error: OSError) -> click.Group:
    group = RootGroup(name="latermq")

    @group.command()
    def ask() -> None:
        raise error

    return group


@pytest.mark.parametrize("number", sorted(SURROUNDINGS))
def test_a_line_and_2(number: int) -> None:
    error = OSError(number, os.strerror(number), "/srv/it")
    ended = CliRunner().invoke(group_that_meets(error), ["ask"], prog_name="latermq")
    assert ended.exit_code == 2
    assert ended.output == f"latermq: /srv/it: {os.strerror(number)}\n"


def test_a_limit_that_names_no_file() -> None:
    error = OSError(errno.EMFILE, "Too many open files")
    ended = CliRunner().invoke(group_that_meets(error), ["ask"], prog_name="latermq")
    assert (ended.exit_code, ended.output) == (2, "latermq: Too many open files\n")


def test_what_is_a_bug_stays_one() -> None:
    error = OSError(errno.EBADF, "Bad file descriptor")
    ended = CliRunner().invoke(group_that_meets(error), ["ask"], prog_name="latermq")
    assert ended.exit_code == 1
    assert "unexpected OSError" in ended.output
