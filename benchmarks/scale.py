"""CPU seconds and peak memory of the stages before training, at the size of Fisher and Switchboard.

    python benchmarks/scale.py --folder /tmp/scale                 # 11,699 + 2,438 calls, 2.4 million utterances
    python benchmarks/scale.py --folder /tmp/scale --scale 0.05    # a twentieth
    python benchmarks/scale.py --folder /tmp/scale --only fisher split

Releases are invented (scale_releases.py) and made once in the folder, a few GB. The commands are those of the recipe
with its configuration swb2000, tested on Hub5'00 alone; `kaldi` reads Fisher as Kaldi's recipe lays it out
(scale_kaldi.py). For the start of training, from the command to its first step,
a set of 7 million utterances is made once as well (large_set.py); it is started twice, since the first time builds the
columns that learners map. Further rows, some of a part of the size, are in scale_rows.py, and what they read is made by
scale_inputs.py.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from scale_rows import Step, clear, further_steps
from start import measure_start, until_first_step

from asrtool.files import write_folder
from asrtool.recipe.stages import COMMON, PREPARE
from asrtool.settings.toml_files import load_config

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "recipes" / "swbd" / "conf" / "swb2000.toml"
SETTINGS = ("--config", str(CONFIG), "--set", "data.test=hub5")
CORPORA = ("swbd", "fisher", "hub5")
KALDI = "kaldi"  # the data directory that is made of Fisher's releases, and the step that reads it
LANGUAGE = ("tokenizer", "lang", "lm", "graph")
SEARCH = "search"  # the folder of what tune and decode read beside the outputs of the stages
SEARCH_ARCS, SEARCH_UTTERANCES = 31.3e6, 16
STARTS = ("train, first start", "train, second start")
NNLM = "nnlm, start"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where releases and results are written")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the calls")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="of the table; what comes before must be there")
    options = parser.parse_args()
    folder = options.folder.absolute() / f"{options.scale:g}"
    _make_once(folder / "releases", make_releases, options.scale)
    chosen = [step for step in steps(folder) if not options.only or step.name in options.only]
    print("| | CPU s | of which children | s | peak GiB | of a child | |\n|---|---|---|---|---|---|---|", flush=True)
    for step in chosen:
        if step.missing:
            print(f"| {step.name} | | | | | | skipped: {step.missing} |", flush=True)
            continue
        if step.name == KALDI:
            _make_once(folder / KALDI, make_kaldi, options.scale)
        if step.name == "tune":
            _make_once(folder / SEARCH, make_search, options.scale)
        for name in step.inputs:
            _make_once(folder / name, functools.partial(make_input, name), options.scale)
        clear(step.out)
        print(measure(step, folder), flush=True)
    if not options.only or NNLM in options.only:
        print(nnlm_start(folder), flush=True)
    starts = [name for name in STARTS if not options.only or name in options.only]
    if starts:
        _make_once(folder / "index", functools.partial(make_input, "index"), options.scale)
        shutil.rmtree(folder / "index" / "train", ignore_errors=True)  # with the columns, which the first start builds
    for name in starts:
        start = measure_start(folder / "index", folder / "index" / "train")
        print(f"| {name} | {start.cpu_s:.1f} | 0.0 | {start.wall_s:.0f} | {start.peak_gib:.2f} | 0.00 | |", flush=True)


def make_releases(folder: Path, scale: float) -> None:
    from scale_releases import make_releases

    make_releases(folder, scale)


def make_kaldi(folder: Path, scale: float) -> None:
    from scale_kaldi import make_kaldi

    make_kaldi(folder, folder.parent / "releases")


def make_input(name: str, folder: Path, scale: float) -> None:
    from scale_inputs import MAKERS

    MAKERS[name](folder, scale)


def make_search(folder: Path, scale: float) -> None:
    from scale_search import make_search

    config = load_config([CONFIG], [])
    make_search(folder, folder.parent / "work", config, scale * SEARCH_ARCS, SEARCH_UTTERANCES)


def _make_once(folder: Path, make: Callable[[Path, float], None], scale: float) -> None:
    """In a process of its own: what this one holds would count as memory of those it starts."""
    if not folder.is_dir():
        maker = multiprocessing.get_context("spawn").Process(target=_make, args=(folder, make, scale))
        maker.start()
        maker.join()
        assert maker.exitcode == 0, folder


def _make(folder: Path, make: Callable[[Path, float], None], scale: float) -> None:
    with write_folder(folder) as temporary:
        make(temporary, scale)


def steps(folder: Path) -> list[Step]:
    """All steps, in order; the commands are those of the recipe."""
    releases, work, search = folder / "releases", folder / "work", folder / SEARCH
    corpora = work / "manifests" / "corpora"
    found = []
    for name in CORPORA:
        command = ["asrtool", "prepare", name, str(releases), str(corpora / name), *SETTINGS]
        manifest = corpora / name / ("test" if name == "hub5" else "train")
        found.append(Step(name, command, functools.partial(utterances, manifest)))
    found.append(_kaldi_step(folder / KALDI, corpora / KALDI))
    split = _recipe_line(PREPARE.run[1].text, work)
    found.append(Step("split", split, functools.partial(utterances, work / "manifests" / "train")))
    sizes: dict[str, Callable[[], str]] = {
        "lm": lambda: ngrams(work / "lm" / "G.arpa"),
        "graph": functools.partial(graph_size, work / "graph"),
    }
    lines = {stage.name: stage.run[0].text for stage in COMMON if stage.name in LANGUAGE}
    found += [Step(name, _recipe_line(line, work), sizes.get(name, str)) for name, line in lines.items()]
    searched = functools.partial(graph_size, search / "graph")
    found += [Step(command[1], command, searched) for command in search_commands(search, work)]
    return [*found, *further_steps(folder)]


def nnlm_start(folder: Path) -> str:
    """The neural language model on the whole text of the training set, up to its first step; the row."""
    text, out = folder / "work" / "manifests" / "train" / "sentences.txt", folder / "nnlm"
    line = next(stage.run[0].text for stage in COMMON if stage.name == "nnlm")
    command = [*_recipe_line(line, folder / "work"), "--set", "nnlm.num_threads=1"]
    command = [str(Path(sys.executable).with_name("asrtool")), *command[1:]]
    command[command.index(str(folder / "work" / "nnlm"))] = str(out)
    shutil.rmtree(out, ignore_errors=True)
    start = until_first_step(command, out)
    words = sum(len(line.split()) for line in text.open(encoding="utf-8"))
    size = f"{words:,} words"
    return f"| {NNLM} | {start.cpu_s:.1f} | 0.0 | {start.wall_s:.0f} | {start.peak_gib:.2f} | 0.00 | {size} |"


def _kaldi_step(data: Path, manifest: Path) -> Step:
    command = ["asrtool", "prepare", "kaldi", str(data), str(manifest), *SETTINGS]
    return Step(KALDI, command, functools.partial(utterances, manifest))


def search_commands(search: Path, work: Path) -> list[list[str]]:
    """`asrtool tune` and `asrtool decode` of what scale_search.py makes in the folder `search`."""
    folders = {name: work / name for name in ("tokenizer", "lang", "lm")}
    folders |= {name: search / name for name in ("graph", "nnlm")}
    options = [word for name, folder in folders.items() for word in (f"--{name}", str(folder))]
    model, features, out = str(search / "model.pt"), search / "features", search / "out"
    tune = ["asrtool", "tune", model, str(features / "dev"), str(out / "tune"), *options, *SETTINGS]
    tuning = str(out / "tune" / "tuning.json")
    decode = ["asrtool", "decode", model, str(features / "test"), str(out / "decode"), "--tuning", tuning, *options]
    return [tune, [*decode, *SETTINGS]]


def _recipe_line(text: str, work: Path) -> list[str]:
    words = text.replace("--config {config}", "").format(work=work).split()
    return [*words, *SETTINGS]


def measure(step: Step, folder: Path) -> str:
    """Run the command of a row; the row."""
    report = folder / f"{step.name}.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "usage.py"), str(report), *step.command]
    with (folder / f"{step.name}.log").open("w") as log:
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
    took = json.loads(report.read_text(encoding="utf-8"))
    cpu_s = took["cpu_s"] + took["children_cpu_s"]
    return (
        f"| {step.name} | {cpu_s:.1f} | {took['children_cpu_s']:.1f} | {took['wall_s']:.0f} |"
        f" {took['peak_gib']:.2f} | {took['children_peak_gib']:.2f} | {step.size()} |"
    )


def graph_size(folder: Path) -> str:
    """Of a decoding graph with its tables."""
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB"


def utterances(manifest: Path) -> str:
    """How many a folder of manifests holds, and of how many hours."""
    report = json.loads((manifest / "report.json").read_text(encoding="utf-8"))
    return f"{report['num_utterances']:,} utterances, {report['speech_hours']:.0f} h"


def ngrams(arpa: Path) -> str:
    """How many the heading of the file declares."""
    with arpa.open(encoding="utf-8") as file:
        lines = (line for line, _ in zip(file, range(20), strict=False))
        return f"{sum(int(line.split('=')[1]) for line in lines if line.startswith('ngram ')):,} n-grams"


if __name__ == "__main__":
    main()
