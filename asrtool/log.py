"""Log lines and progress bars: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")
LINE_EVERY_S = 10.0


def setup_logging(level: int = logging.INFO) -> None:
    """Send the log to standard error, one line a record, time first."""
    logging.basicConfig(
        level=level,
        handlers=[_BesideBars(sys.stderr)],
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )


def is_quiet() -> bool:
    """Return whether `setup_logging` has left out all but warnings."""
    root = logging.getLogger()
    return any(isinstance(each, _BesideBars) for each in root.handlers) and not root.isEnabledFor(logging.INFO)


class _BesideBars(logging.StreamHandler):
    """Log lines that do not tear the progress bars on the screen."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm = sys.modules.get("tqdm")
        if tqdm is None or not self.stream.isatty():
            super().emit(record)
            return
        with tqdm.tqdm.external_write_mode(file=self.stream):
            super().emit(record)


@contextlib.contextmanager
def logged_as(place: Path, name: str) -> Iterator[None]:
    """Replace `place`, a temporary folder, by `name` in log lines and errors."""

    def rename(text: str) -> str:
        return text.replace(str(place), name).replace(f"{place.parent.name}/{place.name}", name)

    def rename_record(record: logging.LogRecord) -> bool:
        record.msg, record.args = rename(record.getMessage()), ()
        return True

    logging.getLogger().addFilter(rename_record)
    try:
        yield
    except AsrtoolError as error:
        error.what, error.hint = rename(error.what), rename(error.hint)
        raise
    finally:
        logging.getLogger().removeFilter(rename_record)


def progress(
    items: Iterable[Item],
    what: str,
    total: int | None = None,
    unit: str = "item",
    measure: Callable[[int], float] | None = None,
) -> Iterator[Item]:
    """Pass `items` through, showing how many are done, the rate and the time left.

    On a terminal this is a bar; elsewhere a log line at most every LINE_EVERY_S seconds and one at the end.
    `measure` returns the units of `total` in the first n items, if items differ in size; the last one completes it.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if sys.stderr.isatty():
        yield from bar(items, what, total, unit, measure)
    else:
        yield from _lines(items, what, total, unit, measure)


def bar(
    items: Iterable[Item], what: str, total: int | None, unit: str, measure: Callable[[int], float] | None = None
) -> Iterable[Item]:
    """Show a bar on a terminal and nothing elsewhere; for loops that log lines.

    No bar is shown if only warnings are logged. `measure` as in `progress`.
    """
    if not (sys.stderr.isatty() and logging.getLogger().isEnabledFor(logging.INFO)):
        return items
    from tqdm import tqdm

    shown = tqdm(None if measure else items, desc=what, total=total, unit=f" {_plural(unit)}", leave=False)
    return _moving(items, shown, measure) if measure else shown


def _moving(items: Iterable[Item], shown: tqdm[NoReturn], measure: Callable[[int], float]) -> Iterator[Item]:
    with shown:
        for done, item in enumerate(items, 1):
            yield item
            shown.update(round(measure(done)) - shown.n)


def _lines(
    items: Iterable[Item], what: str, total: int | None, unit: str, measure: Callable[[int], float] | None
) -> Iterator[Item]:
    start = last = time.monotonic()
    done = 0.0
    for number, item in enumerate(items, 1):
        yield item
        done = measure(number) if measure else number
        now = time.monotonic()
        if now - last >= LINE_EVERY_S:
            last = now
            logging.info("%s: %s", what, _state(done, total, now - start, unit))
    if measure and total is not None:
        done = total
    logging.info("%s: %s", what, _state(done, total, time.monotonic() - start, unit))


def plural(num: int, what: str) -> str:
    """Format a count: 1 word, 2 words."""
    return f"{num:,} {what if num == 1 else _plural(what)}"


def _plural(unit: str) -> str:
    return f"{unit}es" if unit.endswith("ch") else f"{unit}s"


def _state(done: float, total: int | None, elapsed_s: float, unit: str) -> str:
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    text = f"{done:.0f}{f'/{total}' if total is not None else ''} {unit}s, {rate:.1f} {unit}s/s"
    if total is not None and rate > 0 and done < total:
        text += f", {(total - done) / rate:.0f} s left"
    return text
