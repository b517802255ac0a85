"""A server that speaks what the console needs of Prometheus's HTTP API, and can be in trouble.

https://prometheus.io/docs/prometheus/latest/querying/api/: instant and range queries, a matrix,
errors. It does not understand a query: each line that is asked for rises, with a gap in it.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

from latermq import admin
from latermq_proto.latermq.v1 import broker_pb2

LABELS = {"__name__": "latermq_start_time_seconds", "instance": "broker:9464", "job": "latermq"}


class PrometheusApi:
    """Use it as a context manager.

    Attributes:
        started_at_ms: of the brokers that it scrapes.
        trouble: "", silent, refuses, html or huge.
        asked: the forms of all range queries.
    """

    def __init__(self) -> None:
        self.started_at_ms: list[int] = []
        self._labels: dict[int, dict[str, str]] = {}
        self.trouble = ""
        self.asked: list[dict[str, str]] = []
        self._ends = threading.Event()

    def __enter__(self) -> Self:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                form = {k: v[-1] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
                code, body = api._answer(self.path, form)
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    async def know(self, endpoint: str, **labels: str) -> None:
        """Scrape a broker, from now on, whose samples have these labels, too."""
        broker = admin.connect_async(endpoint)
        try:
            answer = await broker.call(broker.brokers.GetBroker, broker_pb2.GetBrokerRequest())
            self._labels[len(self.started_at_ms)] = labels
            self.started_at_ms.append(int(answer.broker.started_at_ms))
        finally:
            await broker.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, path: str, form: dict[str, str]) -> tuple[int, bytes]:
        if self.trouble == "silent":
            self._ends.wait()
        if self.trouble == "refuses":
            said = {"status": "error", "errorType": "execution", "error": "too many samples"}
            return 422, json.dumps(said).encode()
        if self.trouble == "html":
            return 200, b"<h1>Sign in</h1>"
        if self.trouble == "huge":
            return 200, b" " * (2 << 20)
        if path == "/api/v1/query":
            return 200, _success("vector", [
                {"metric": {**LABELS, "instance": f"broker{number}:9464",
                            **self._labels.get(number, {})},
                 "value": [1.0, str(ms / 1_000)]}
                for number, ms in enumerate(self.started_at_ms)
            ])  # fmt: skip
        assert path == "/api/v1/query_range", path
        self.asked.append(form)
        begin, end, step = (float(form[name]) for name in ("start", "end", "step"))
        values = [
            [begin + number * step, "NaN" if 40 <= number < 50 else str(number)]
            for number in range(round((end - begin) / step) + 1)
        ]
        names = re.findall(r'"line", "(\w+)"', form["query"])
        return 200, _success(
            "matrix", [{"metric": {"line": name}, "values": values} for name in names]
        )


def _success(kind: str, result: list[Any]) -> bytes:
    said = {"status": "success", "data": {"resultType": kind, "result": result}}
    return json.dumps(said).encode()
