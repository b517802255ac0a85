"""A worker whose log nobody reads: it goes on."""

import fcntl
import subprocess
import sys
from pathlib import Path

import latermq.sync
from support.broker_process import BrokerProcess

F_SETPIPE_SZ = 1031
COUNT = 200
SHOP = """
import logging
import latermq

app = latermq.App()
done = []

@app.listener("{name}", group="{name}")
async def bill(order: str) -> None:
    logging.getLogger("shop").warning("order %s %s", order, "x" * 200)
    done.append(order)
    if len(done) == {count}:
        print("done", flush=True)
"""


def test_a_log_that_nobody_reads_stops_no_worker(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    (tmp_path / "quiet_shop.py").write_text(SHOP.format(name=name, count=COUNT))
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        for number in range(COUNT):
            mq.send(name, b"%d" % number)
    command = [sys.executable, "-m", "latermq_cli", "worker", "quiet_shop:app"]
    worker = subprocess.Popen(
        [*command, "--concurrency", "1", "--endpoint", sdk_broker.endpoint],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert worker.stdout is not None
        assert worker.stderr is not None
        fcntl.fcntl(worker.stderr, F_SETPIPE_SZ, 4096)
        assert worker.stdout.readline() == "done\n"
        worker.terminate()
        assert "order" in worker.communicate(timeout=60)[1]
        assert worker.returncode == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
