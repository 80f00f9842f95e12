"""A toy recipe of three stages, with commands that take no time; run as a script it is a run to be interrupted."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from asrtool.data.manifests.manifest import audio_files_below
from asrtool.recipe import engine, process, source
from asrtool.recipe.plan import plan
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.request import Request
from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.state import Run
from asrtool.settings.config import Config

COMMANDS = """
import pathlib, signal, sys, time
verb, out, *inputs = sys.argv[1:]
out = pathlib.Path(out)
out.parent.mkdir(parents=True, exist_ok=True)
if verb == "join":
    print("joining", len(inputs), "files")
    out.write_text("".join(pathlib.Path(name).read_text() for name in inputs))
elif verb == "keep":
    print("kept" if out.exists() else "made")
    if not out.exists():
        out.write_text("made")
elif verb == "fail":
    print("no such thing")
    sys.exit(3)
elif verb == "wait":
    def stop(number, frame):
        with out.with_suffix(".signal").open("a") as file:
            file.write(str(number))
        out.with_suffix(".stays").exists() or sys.exit(128 + number)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    out.write_text("half")
    for _ in range(6000):
        time.sleep(0.01)  # not in one piece: a signal just before a sleep is heeded after it
"""

SOURCES = {
    "asrtool/__init__.py": "",
    "asrtool/cli/__init__.py": "",
    "asrtool/cli/toy.py": '''"""Toy commands."""
def join():
    """Join."""
    from asrtool.words import add
    return add
def keep():
    from asrtool.words import add
    return add
def fail():
    return 1
def wait():
    return 2
''',
    "asrtool/words.py": "def add(a, b):\n    return a + b\n",
}

STAGES = (
    Stage("first", "One.", makes=("a.txt",), run=(Line("asrtool join {work}/a.txt {config}"),), settings=("mini",)),
    Stage(
        "second",
        "Two.",
        needs=("a.txt",),
        makes=("b",),
        run=(Line("asrtool join {work}/b/all.txt {work}/a.txt {config}"),),
        settings=("lm",),
    ),
    Stage("third", "Three.", needs=("b",), makes=("c.txt",), run=(Line("asrtool join {work}/c.txt {work}/b/all.txt"),)),
)


def find_entry(words: Sequence[str]) -> str:
    return f"asrtool.cli.toy:{words[1]}"


def write_sources(root: Path) -> None:
    for name, text in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def make_run(folder: Path, stages: Sequence[Stage] = STAGES, config: Config | None = None) -> Run:
    recipe = Recipe(folder / "toy", "mini", tuple(stages))
    return Run(recipe, config or Config(), folder / "exp", find_entry, audio_files_below, Request("toy", [], []))


def states(run: Run, chosen: range = range(3)) -> list[str]:
    """State of each stage and why it is so."""
    return [f"{state.word} {state.why}".strip() for state in plan(run, chosen)]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as the command line does
    process.START = COMMANDS
    source.ROOT = Path(sys.argv[1]) / "root"
    write_sources(source.ROOT)
    waiting = Stage("long", "Takes long.", makes=("long.txt",), run=(Line("asrtool wait {work}/long.txt"),))
    engine.run_stages(make_run(Path(sys.argv[1]), [waiting]), range(1))


SMALL_RECIPE = """
from asrtool.recipe.stage import Line, Stage

CONFIG = "small"
STAGES = (Stage("only", "Why.", makes=("x",), run=(Line("asrtool lm {work}/x"),)),)
"""


def write_recipe(folder: Path, **orders: int) -> Path:
    """Make `folder` a recipe of one stage, with a configuration NAME that sets lm.order for each of `orders`."""
    (folder / "conf").mkdir(parents=True)
    (folder / "recipe.py").write_text(SMALL_RECIPE)
    for name, order in orders.items():
        (folder / "conf" / f"{name}.toml").write_text(f"[lm]\norder = {order}\n")
    return folder
