"""The guide's first page, followed to the letter: its files written, its commands run, in order."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from support.machine import patient

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide" / "first-worker.md"
BLOCK: Final = re.compile(r"^(The worker says:\n\n)?```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLED: Final = ("mkdir ", "python -m venv", "pip install")  # done for us
READY: Final = {"serve": "latermq ready on", "worker": "worker ready"}
WAIT_S: Final = 0.02


class Reader:
    """Somebody in an empty folder who does what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[str] = []
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        self._said = ""  # by the last command
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}

    def follow(self, page: str) -> None:
        for by_worker, language, text in BLOCK.findall(page):
            if language == "python":
                self._write(text)
            elif language == "sh":
                for line in text.splitlines():
                    self._run(line)
            else:
                self._compare(text, from_worker=bool(by_worker))

    def end(self) -> None:
        for _, process, _ in reversed(self._running):
            process.kill()
            process.wait()

    def _write(self, text: str) -> None:
        head, _, source = text.partition("\n")
        name, _, where = head.removeprefix("# ").partition(": instead of the line with ")
        path = self.folder / name
        if where:
            before = path.read_text("utf-8")
            source, count = re.subn(rf"^{where} = .*\n", source, before, flags=re.MULTILINE)
            assert count == 1
        path.write_text(source, encoding="utf-8")

    def _run(self, line: str) -> None:
        command, _, remark = line.partition("# ")
        if remark == "Ctrl-C":
            _, worker, _ = self._running.pop()
            worker.send_signal(signal.SIGINT)
            assert worker.wait(patient(60)) == 0
        elif remark.startswith("stays"):
            self.commands.append(command.strip())
            self._start(shlex.split(command))
        elif not command.startswith(INSTALLED):
            self.commands.append(command.strip())
            ended = subprocess.run(
                shlex.split(command), cwd=self.folder, env=self._environment,
                capture_output=True, text=True, timeout=patient(60), check=False,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr
            self._said = ended.stdout

    def _start(self, words: list[str]) -> None:
        kind = words[1]
        if kind == "serve":
            words += ["--listen", "127.0.0.1:0"]  # where the page has the port that is usual
        said = self.folder / f"{kind}-{len(self._running)}-{len(self.commands)}.log"
        with said.open("wb") as log:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
        self._running.append((kind, process, said))
        line = self._until(said, lambda text: READY[kind] in text)
        if kind == "serve":
            found = re.search(r"latermq ready on (\S+)", line)
            assert found is not None
            self._environment["LATERMQ_ENDPOINT"] = found[1]

    def _compare(self, text: str, *, from_worker: bool) -> None:
        lines = [".*".join(map(re.escape, re.split(r" *… *", line))) for line in text.splitlines()]

        def says_all(said: str) -> bool:
            return all(re.search(line, said) for line in lines)

        if from_worker:
            self._until(self._running[-1][2], says_all)
        else:
            missing = [line for line in lines if not re.search(line, self._said)]
            assert not missing, self._said

    def _until(self, path: Path, done: Callable[[str], bool]) -> str:
        """Wait for what a process says; return it all."""
        end_s = time.monotonic() + patient(60)
        while not done(text := path.read_text("utf-8")):
            assert time.monotonic() < end_s, text
            time.sleep(WAIT_S)
        return text


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    try:
        yield reader
    finally:
        reader.end()


def test_what_the_page_says_is_what_happens(reader: Reader) -> None:
    reader.follow(PAGE.read_text("utf-8"))
    told = [" ".join(command.split()[:3]) for command in reader.commands]
    assert told == [
        "latermq serve --data-dir",
        "latermq worker shop:app",
        "python place.py",
        "latermq dead list",
        "latermq dead show",
        "latermq worker shop:app",
        "latermq dead redrive",
        "latermq dead list",
    ]
