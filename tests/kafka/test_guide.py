"""The guide's page about Kafka: its files, and pytest in a process."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.kafka.cluster import KafkaCluster
from support.machine import patient

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide" / "kafka.md"
FILE: Final = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_page_says_what_happens(kafka: KafkaCluster, tmp_path: Path) -> None:
    kafka.create_topic("orders")
    files = dict(FILE.findall(PAGE.read_text("utf-8")))
    assert sorted(files) == ["shop.py", "test_shop.py"]
    # For an environment whose entry points are older than the plugin.
    files["conftest.py"] = 'pytest_plugins = ["latermq.testing.plugin"]\n'
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto"],
        cwd=tmp_path, env={**os.environ, "KAFKA": kafka.bootstrap}, capture_output=True,
        text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
