"""Settings as text: TOML files and ``section.key=value``, and their values to the type a field asks for and back."""

from __future__ import annotations

import difflib
import json
import math
import sys
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class TextValue(str):
    """A value from the command line, whose type the field decides."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; raises AsrtoolError naming file and line when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AsrtoolError(f"{path}: no readable configuration file", "give a .toml file with --config") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in each other
        raise AsrtoolError(f"{path}: not TOML: {error}", "fix the line named") from error


def parse_override(override: str) -> tuple[tuple[str, ...], TextValue]:
    """``section.key=value`` or ``section.table.key=value`` as key and value.

    Raises AsrtoolError when it has another form.
    """
    key, equals, text = override.partition("=")
    parts = tuple(part.strip() for part in key.split("."))
    if not equals or len(parts) not in (2, 3) or not all(parts):
        raise AsrtoolError(
            f"--set {override}: expected section.key=value",
            "for example --set train.num_epochs=3 or --set model.lstm.num_layers=4",
        )
    return parts, TextValue(text.strip())


def convert(value: Any, kind: Any, where: str) -> Any:
    """`value` (from TOML, or a TextValue) as `kind`: int, float, str, bool, or tuple[one of these, ...].

    Raises AsrtoolError that begins with `where`, the place of the value, when it does not fit.
    """
    if typing.get_origin(kind) is tuple:
        item_kind = typing.get_args(kind)[0]
        if isinstance(value, TextValue):
            value = _split(value)
        if not isinstance(value, list):
            raise _wrong_type(value, f"a list, each item {KINDS[item_kind]}", where)
        return tuple(convert(item, item_kind, where) for item in value)
    if isinstance(value, TextValue):
        return _from_text(value, kind, where)
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 2**1000 else math.inf
    if type(value) is not kind:
        raise _wrong_type(value, KINDS[kind], where)
    return _finite(value, where)


def check_kind(kind: Any, where: str) -> None:
    """Raise AsrtoolError that begins with `where` for a type that `convert` does not know."""
    item_kind = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    if item_kind not in KINDS:
        raise AsrtoolError(
            f"{where} is a {kind}, expected one of {', '.join(known.__name__ for known in KINDS)} or a tuple of it",
            "change the type in the Settings class",
        )


def _split(text: str) -> list[TextValue]:
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [TextValue(item.strip()) for item in text.split(",") if item.strip()]


def _from_text(text: str, kind: Any, where: str) -> Any:
    text = str(text)
    if kind is str:
        quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
        return text[1:-1] if quoted else text
    if kind is bool:
        if text not in ("true", "false"):
            raise _wrong_type(text, KINDS[bool], where)
        return text == "true"
    try:
        return _finite(kind(text), where)
    except ValueError:
        raise _wrong_type(text, KINDS[kind], where) from None


def _finite(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong_type(value, "a finite number", where)
    return value


def _wrong_type(value: Any, expected: str, where: str) -> AsrtoolError:
    return AsrtoolError(f"{where} is {value!r}, expected {expected}", "correct the value")


def format_value(value: Any) -> str:
    """`value` in TOML."""
    if isinstance(value, tuple):
        return "[" + ", ".join(format_value(item) for item in value) + "]"
    # A JSON text is a TOML text but for two things: surrogate pairs (so non-ASCII stays as it is) and DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_override(key: str, value: Any) -> str:
    """``section.key=value`` that parse_override and convert read back to `value`."""
    return f"{key}={value if isinstance(value, str) else format_value(value)}"


def format_key(name: str) -> str:
    """A key as TOML wants it: quoted where it is more than letters, digits, hyphens and underscores."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else format_value(name)


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``section.key`` or ``section.table.key`` -> value as JSON gives it back."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint that names the one of `words` most like `word`."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.0)
    return f"did you mean {close[0]}?" if close else "there is none"
