"""Memory of `asrtool tune` and `asrtool decode` on a decoding graph of the size that Fisher and Switchboard have.

    python benchmarks/graph_memory.py --folder /tmp/search --work /tmp/asrtool-scale/1/work [--arcs 31.3e6] [--jobs 2]

WORK has tokenizer, lang and lm of that size, as `make bench-scale` leaves them. The rest is invented, once, in the
folder (scale_search.py). The commands run with the configuration swb2000, all four methods and the neural language
model. All processes are looked at four times a second. PSS counts a page that N processes share as one N-th in each; a
page of a file counts as well, though the system may take it back.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from scale import ROOT, SETTINGS, search_commands

from asrtool.files import write_folder
from asrtool.settings.toml_files import load_config

POLL_S = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--arcs", type=float, default=31.3e6)
    parser.add_argument("--utterances", type=int, default=8, help="of 4.5 s, in dev and in test")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    work = options.work.absolute()
    if not options.folder.is_dir():
        arguments = (options.folder, work, options.arcs, options.utterances)
        maker = multiprocessing.get_context("spawn").Process(target=make, args=arguments)
        maker.start()
        maker.join()
        assert maker.exitcode == 0
    print("| | process | peak MiB | largest PSS MiB | of its own MiB | CPU s |\n|---|---|---|---|---|---|", flush=True)
    given = [word for each in [f"decode.num_jobs={options.jobs}", *options.settings] for word in ("--set", each)]
    for command in search_commands(options.folder.absolute(), work):
        watch([*command, *given], options.folder / f"{command[1]}.log")


def make(folder: Path, work: Path, num_arcs: float, num_utterances: int) -> None:
    from scale_search import make_search

    with write_folder(folder) as temporary:
        make_search(temporary, work, load_config([Path(SETTINGS[1])], []), num_arcs, num_utterances)


def watch(words: list[str], log: Path) -> None:
    """Run a command; print the most that its main process and its search processes had."""
    most: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    main_line = "from asrtool.cli.main import main; main()"
    with log.open("w") as file:
        command = subprocess.Popen([sys.executable, "-c", main_line, *words[1:]], cwd=ROOT, stdout=file, stderr=file)
    children: dict[int, float] = {}
    while command.poll() is None:
        for process in (command.pid, *children_of(command.pid)):
            kind = "main" if process == command.pid else "search"
            if found := memory(process):
                most[kind] = [max(pair) for pair in zip(most[kind], found, strict=True)]
                if kind == "search":
                    children[process] = found[-1]
        time.sleep(POLL_S)
    for kind, values in most.items():
        peak, pss, private, cpu_s = values
        cpu_s = cpu_s if kind == "main" else sum(children.values())
        print(f"| {words[1]} | {kind} | {peak:.0f} | {pss:.0f} | {private:.0f} | {cpu_s:.0f} |", flush=True)
    assert command.returncode == 0, log.read_text()


def children_of(process: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))
    except FileNotFoundError:
        return []


def memory(process: int) -> list[float]:
    """Peak resident, proportional and private MiB, and CPU seconds; nothing of a process that has ended."""
    folder = Path("/proc") / str(process)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()[1:] + (folder / "status").read_text().splitlines()
        ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
    except (FileNotFoundError, ProcessLookupError):
        return []
    values = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith("kB")}
    if "Pss" not in values or "VmHWM" not in values:
        return []
    return [
        values["VmHWM"], values["Pss"], values["Private_Clean"] + values["Private_Dirty"],
        sum(map(int, ticks)) / 100,
    ]  # fmt: skip


if __name__ == "__main__":
    main()
