"""From defaults, a TOML file, the environment and flags to one checked `Config`; and back to TOML.

    defaults < TOML file < LATERMQ_<SECTION>_<SETTING> < flags

What does not exist is an error that names its nearest neighbour, never ignored: a mistyped setting
must not run with the default.
"""

import codecs
import dataclasses
import difflib
import json
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_type_hints

from latermq_broker.config.config import Config
from latermq_broker.config.core_bounds import settings_of
from latermq_broker.config.number_bounds import maximum
from latermq_broker.errors import ConfigError
from latermq_text.durations import parse_duration_ms, shown

ENVIRONMENT_PREFIX: Final = "LATERMQ_"
FILE_BYTES_MAX: Final = 1 << 20  # bytes of a file of settings
DIGITS_MAX: Final = 40  # of a number that is looked at
_SECRET: Final = frozenset({"auth.root_secret_key"})  # in no message
_MARKS: Final = {  # byte order marks
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """
    Args:
        flags: `section.setting` → value; None means the flag was not given.

    Raises:
        ConfigError: unknown setting, value of the wrong type or out of bounds, unreadable file.
    """
    known = dict(_settings())
    chosen: dict[str, Any] = {}
    if file is not None:
        for name, value in _from_file(file):
            chosen[name] = _typed(name, value, known, f"in {file}")
    for variable, text in environment.items():
        if (meant := _name_in_environment(variable, known)) is not None:
            chosen[meant] = _parsed(meant, text, known, f"from {variable}")
    for name, value in flags.items():
        if value is not None:
            chosen[name] = _typed(name, value, known, "from the command line")
    return _build(chosen)


def to_toml(config: Config) -> str:
    """Write every setting with its value, as a file that `load` takes; secrets are not shown."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        lines += ["", f"[{section.name}]"] if lines else [f"[{section.name}]"]
        values = getattr(config, section.name)
        for setting in settings_of(values):
            value = getattr(values, setting.name)
            if setting.repr or not value:
                lines.append(f"{setting.name} = {_toml(value)}")
            else:
                lines.append(f"# {setting.name} is set and not shown")
    return "\n".join(lines) + "\n"


def _settings() -> Iterator[tuple[str, Any]]:
    """Yield `section.setting` and its type."""
    for section, section_class in get_type_hints(Config).items():
        kinds = get_type_hints(section_class)
        for setting in settings_of(section_class):
            yield f"{section}.{setting.name}", kinds[setting.name]


def _build(chosen: Mapping[str, Any]) -> Config:
    sections: dict[str, dict[str, Any]] = {}
    for name, value in chosen.items():
        section, _, setting = name.partition(".")
        sections.setdefault(section, {})[setting] = value
    store = sections.get("store", {})
    if store.get(
        "retention_ms"
    ):  # who set it meant all messages: it did before there was the other
        store.setdefault("unread_retention_ms", store["retention_ms"])
    classes = get_type_hints(Config)
    return Config(**{section: classes[section](**given) for section, given in sections.items()})


def _from_file(file: Path) -> Iterator[tuple[str, object]]:
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError("--config", f"cannot read {file}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError("--config", f"{file} has more than {FILE_BYTES_MAX} bytes")
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            raise ConfigError(
                "--config",
                f"{file} begins with the byte order mark (BOM) of {encoding}: save it as UTF-8 "
                "without BOM",
            )
    try:
        tables = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of no end
        raise ConfigError("--config", f"{file} is not TOML: {error}") from error
    sections = [section.name for section in dataclasses.fields(Config)]
    for section, table in tables.items():
        if section in sections and not isinstance(table, dict):
            raise ConfigError(section, f"is a section: its settings follow [{section}] (in {file})")
        if section not in sections:
            near = _nearest(section, sections)
            raise ConfigError(section, f"no such section in a configuration, {near} (in {file})")
        for setting, value in table.items():
            yield f"{section}.{setting}", value


def _name_in_environment(variable: str, known: Mapping[str, Any]) -> str | None:
    """Find the setting that a variable means; None: not about one of our sections.

    Raises ConfigError for what is nearly one.
    """
    if not variable.startswith(ENVIRONMENT_PREFIX):
        return None
    word = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    section, _, setting = word.partition("_")
    if setting and section in (field.name for field in dataclasses.fields(Config)):
        return f"{section}.{setting}"
    words = [name.replace(".", "_") for name in known]
    if close := difflib.get_close_matches(word, words, n=1, cutoff=0.8):
        meant = ENVIRONMENT_PREFIX + close[0].upper()
        raise ConfigError(variable, f"no such setting, did you mean {meant}?")
    return None


def _kind(name: str, known: Mapping[str, Any], origin: str) -> Any:
    if name not in known:
        section, _, setting = name.partition(".")
        elsewhere = [other for other in known if other.endswith(f".{setting}")]
        here = [other.partition(".")[2] for other in known if other.startswith(f"{section}.")]
        near = f"did you mean {elsewhere[0]}?" if elsewhere else _nearest(setting, here)
        raise ConfigError(name, f"no such setting, {near} ({origin})")
    return known[name]


def _typed(name: str, value: object, known: Mapping[str, Any], origin: str) -> Any:
    """Bring a value, as TOML or a flag gives it, to the setting's type. Raises ConfigError."""
    kind = _kind(name, known, origin)
    if name in _SECRET and not isinstance(value, str):
        raise ConfigError(name, f"its value is not text ({origin})")
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = [str(member.value) for member in kind]
        if value in words:
            return kind(value)
        raise ConfigError(name, f"{value!r} is not one of {', '.join(words)} ({origin})")
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return _bounded(name, value, origin)
    if kind is int and isinstance(value, str) and _is_span(name):
        return _span_ms(name, value, origin)
    if kind is str and isinstance(value, str):
        return _typed_text(name, value, origin)
    if kind is bool and isinstance(value, bool):
        return value
    if kind == tuple[int, ...] and isinstance(value, list | tuple) and all(map(_is_int, value)):
        return tuple(_bounded(name, number, origin) for number in value)
    if kind == tuple[str, ...] and isinstance(value, list | tuple):
        return tuple(_typed_text(name, text, origin) for text in value)
    expected = {
        int: "a whole number", bool: "true or false", str: "text",
        tuple[str, ...]: "a list of texts",
    }  # fmt: skip
    wanted = expected.get(kind, "a list of whole numbers")
    raise ConfigError(name, f"{_shown(value)} is not {wanted} ({origin})")


def _typed_text(name: str, value: object, origin: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, f"{value!r} is not text ({origin})")
    if "\0" in value:  # no path, address or name has one; the system's calls raise ValueError
        raise ConfigError(name, f"has a NUL character ({origin})")
    return value


def _is_span(name: str) -> bool:
    """Tell whether a setting is of milliseconds, so that it may be told as `30s` too."""
    setting = name.partition(".")[2]
    return setting.endswith("_ms") or "_ms_" in setting


def _span_ms(name: str, text: str, origin: str) -> int:
    """Read milliseconds, or a duration such as 30s, 12h or 3d. Raises ConfigError."""
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= DIGITS_MAX:
        return int(text)
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise ConfigError(name, f"{error} ({origin})") from None


def _bounded(name: str, number: int, origin: str) -> int:
    """Return a number that no setting's bounds are far beyond, so that it can be shown."""
    if abs(number) >= 10**DIGITS_MAX:
        raise ConfigError(name, f"too large: at most {maximum(name)} ({origin})")
    return number


def _shown(value: object) -> str:
    """Quote a value that is refused, cut if it is long."""
    try:
        return shown(value) if isinstance(value, str) else reprlib.repr(value)
    except ValueError:  # a number that Python does not write
        return "a number of thousands of digits"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _parsed(name: str, text: str, known: Mapping[str, Any], origin: str) -> Any:
    """Read a value as the environment gives it: text. Raises ConfigError."""
    kind = _kind(name, known, origin)
    value: object = text
    try:
        if kind is int:
            value = text if _is_span(name) else int(text)
        elif kind is bool:
            value = True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
        elif kind == tuple[int, ...]:
            value = [int(part) for part in text.replace(",", " ").split()]
        elif kind == tuple[str, ...]:
            value = text.replace(",", " ").split()
    except ValueError:
        value = text  # refused below, with the words for its kind
    return _typed(name, value, known, origin)


def _nearest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Enum():
            return _toml(value.value)
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False)
    return str(value)
