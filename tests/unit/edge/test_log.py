"""Log lines: constant text, fields beside it, one line per record."""

import io
import json
import logging

import pytest

from latermq_broker.config.config import LogConfig
from latermq_broker.observability import log as logs


def written(config: LogConfig) -> io.StringIO:
    stream = io.StringIO()
    logs.set_up(config, stream)
    return stream


OBEYED = "\x1b[2J\x9b31m\x85\u2028\u2029\u202egpj"  # by terminals, viewers, readers of lines


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_nothing_of_a_stranger_is_obeyed(as_json: bool) -> None:
    stream = written(LogConfig(json=as_json))
    logger = logging.getLogger("latermq.x")
    forged = ValueError(f"{OBEYED}\n2026-01-01T00:00:00.000Z INFO latermq.x: forged")
    logger.warning("odd", extra={"client_id": OBEYED}, exc_info=forged)
    logger.warning(f"a library's own text {OBEYED}\nforged")
    lines = stream.getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    assert len([line for line in lines if line and not line.startswith(" ")]) == 2
    if as_json:
        assert json.loads(lines[0])["client_id"] == OBEYED


class TestText:
    def test_fields_follow_the_text(self) -> None:
        stream = written(LogConfig())
        logging.getLogger("latermq.pump").info("sync done", extra={"ms": 3, "to": 4096})
        line = stream.getvalue()
        assert line.endswith("Z INFO latermq.pump: sync done ms=3 to=4096\n")

    @pytest.mark.parametrize("value", ["two words", "a=b", 'say "hi"', "", "line\nbreak"])
    def test_a_value_that_would_read_as_several_is_quoted(self, value: str) -> None:
        stream = written(LogConfig())
        logging.getLogger("latermq.x").warning("odd", extra={"value": value})
        line = stream.getvalue()
        assert line.count("\n") == 1
        assert line.rstrip("\n").endswith(f"value={json.dumps(value)}")

    def test_a_traceback_follows(self) -> None:
        stream = written(LogConfig())
        try:
            raise KeyError("why")
        except KeyError:
            logging.getLogger("latermq.x").exception("failed")
        assert "KeyError: 'why'" in stream.getvalue()


class TestJson:
    def test_one_object_per_line(self) -> None:
        stream = written(LogConfig(json=True))
        logging.getLogger("latermq.x").error("odd\nname", extra={"path": object(), "n": 1})
        (line,) = stream.getvalue().splitlines()
        fields = json.loads(line)
        assert fields["level"] == "error"
        assert fields["logger"] == "latermq.x"
        assert fields["message"] == "odd\nname"
        assert fields["n"] == 1
        assert fields["time"].endswith("Z")

    def test_with_its_traceback(self) -> None:
        stream = written(LogConfig(json=True))
        try:
            raise KeyError("why")
        except KeyError:
            logging.getLogger("latermq.x").exception("failed")
        assert "KeyError: 'why'" in json.loads(stream.getvalue())["traceback"]


class TestLevels:
    def test_ours_as_configured_and_libraries_from_warning_on(self) -> None:
        stream = written(LogConfig(level="debug"))
        logging.getLogger("latermq.x").debug("ours")
        logging.getLogger("asyncio").info("theirs")
        logging.getLogger("asyncio").warning("loud")
        assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == [
            "ours", "loud",
        ]  # fmt: skip

    def test_a_second_set_up_replaces_the_first(self) -> None:
        first, second = written(LogConfig()), written(LogConfig())
        logging.getLogger("latermq.x").info("once")
        assert not first.getvalue()
        assert second.getvalue().count("once") == 1
