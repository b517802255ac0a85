"""Celery's half of the guide's comparison: it does what the page says of it, on a real Redis.

It runs where `make bench-worker` has made Celery's environment, and where redis-server is.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from support.guide import GUIDE, ROOT, modules
from support.machine import patient

CELERY: Final = ROOT / ".cache" / "bench-worker" / "celery" / "bin"
REDIS: Final = shutil.which("redis-server")
LETTERS: Final = """
import json
from celery_shop import app
with app.connection_for_write() as connection:
    letters = connection.default_channel.client.lrange("dead:bill", 0, -1)
print(json.dumps([json.loads(each) for each in letters]))
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], object], said: Path) -> None:
    end_s = time.monotonic() + patient(60)
    while not condition():
        assert time.monotonic() < end_s, said.read_text()
        time.sleep(0.1)


@pytest.mark.skipif(
    REDIS is None or not (CELERY / "celery").exists(), reason="no redis-server, or no Celery"
)
def test_celery_s_half_does_what_the_table_says(tmp_path: Path) -> None:
    port = free_port()
    text = modules(GUIDE / "coming-from.md")["celery_shop.py"]
    assert text.count("127.0.0.1:6379") == 1
    text = text.replace("127.0.0.1:6379", f"127.0.0.1:{port}")
    (tmp_path / "celery_shop.py").write_text(text, encoding="utf-8")
    said = tmp_path / "said"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def python(source: str) -> str:
        command = [str(CELERY / "python"), "-c", source]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, text=True, check=True, stdout=subprocess.PIPE
        ).stdout

    def letters() -> list[dict[str, object]]:
        return list(json.loads(python(LETTERS)))

    with said.open("wb") as log:
        redis = [str(REDIS), "--port", str(port), "--save", "", "--dir", str(tmp_path)]
        worker = [
            str(CELERY / "celery"),
            "-A",
            "celery_shop",
            "worker",
            "--pool",
            "solo",
            "-l",
            "info",
        ]
        with (
            subprocess.Popen(redis, stdout=log, stderr=log) as served,
            subprocess.Popen(
                worker, cwd=tmp_path, env=environment, stdout=log, stderr=log
            ) as works,
        ):
            try:
                until(lambda: answers(port), said)
                python(
                    "from celery_shop import bill\n"
                    "bill.delay({'id': 17, 'what': 'tea'})\nbill.delay({'id': 18, 'what': 'cake'})"
                )
                until(lambda: "order 17: 350 cents" in said.read_text(), said)
                until(letters, said)
                [letter] = letters()
                assert letter["error"] == "KeyError('cake')"
                assert said.read_text().count("retry: Retry in ") == 2
                python("import celery_shop; celery_shop.redrive()")
                until(lambda: said.read_text().count("retry: Retry in ") == 4, said)
                until(letters, said)  # there is still no price
            finally:
                works.kill()
                served.kill()
