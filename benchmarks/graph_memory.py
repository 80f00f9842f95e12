"""Memory of the search processes on a decoding graph of the size that Fisher and Switchboard have.

    .venv/bin/python benchmarks/graph_memory.py --folder /tmp/graph [--arcs 31.3e6] [--jobs 2] [--penalties 0]

The graph is invented, written once as `asrtool graph` writes one: states of a 4-gram with a loop for the blank, an arc
to a shorter history and arcs of tokens at random. Methods graph and rescore (to its n-best lists) search scores that
are invented, too, in the processes of `asrtool decode`; several penalties are what `asrtool tune` opens. PSS counts a
page that N processes share as one N-th in each; peak is the most that was resident, shared pages included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from asrtool.config import Config
from asrtool.corpus.index import Utterance
from asrtool.decode.decoder import start_decoder
from asrtool.decode.forward import Scored
from asrtool.decode.graph import Graph
from asrtool.decode.method import SearchMethod
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.rescore import Rescore
from asrtool.decode.resources import SearchGraph
from asrtool.decode.settings import Decode
from asrtool.decode.words import WordPieces, WordReader
from asrtool.lang.graph_file import ARC, HEADER, KIND, STATE, read_graph
from asrtool.models.ctc_topology import CtcTopology
from asrtool.settings import Choice

ARCS_A_STATE = 5.75  # of HLG of swb2000
NUM_TOKENS, NUM_WORDS = 1000, 45_000
NUM_UTTERANCES, NUM_ROWS = 64, 150  # of 4.5 s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--arcs", type=float, default=31.3e6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--penalties", type=float, nargs="+", default=[0.0])
    options = parser.parse_args()
    if not (options.folder / "HLG.fst").exists():
        maker = multiprocessing.get_context("spawn").Process(target=write_graph, args=(options.folder, options.arcs))
        maker.start()
        maker.join()
    settings = Decode(methods=(Choice.of("search", "graph"), Choice.of("search", "rescore")), num_jobs=options.jobs)
    print(f"{(options.folder / 'HLG.fst').stat().st_size / 1e6:.0f} MB, penalties {options.penalties}")
    measure(options.folder, settings, options.penalties)


def write_graph(folder: Path, num_arcs: float) -> None:
    """HLG.fst; every state is final, and state 0, the empty history, has an arc for each token."""
    random = np.random.default_rng(0)
    num_states = int(num_arcs / ARCS_A_STATE)
    states = np.zeros(num_states, STATE)
    states["final"] = 2.0
    states["num_arcs"] = 2 + random.geometric(1 / (ARCS_A_STATE - 2), num_states)
    states["num_arcs"][0] = NUM_TOKENS
    states["begin"] = np.cumsum(states["num_arcs"]) - states["num_arcs"]
    states["epsilons"] = 1
    source = np.repeat(np.arange(num_states), states["num_arcs"])
    arcs = np.zeros(len(source), ARC)
    key = (source << 10) + random.integers(2, NUM_TOKENS + 1, len(source))
    key.sort()
    arcs["input"] = key & 1023
    arcs["output"] = np.where(random.random(len(source)) < 0.3, random.integers(1, NUM_WORDS, len(source)), 0)
    arcs["cost"] = random.exponential(4.0, len(source))
    arcs["to"] = random.integers(0, num_states, len(source))
    first = states["begin"].astype(np.int64)
    for place, label, to in ((0, 0, np.arange(num_states) // 8), (1, 1, np.arange(num_states))):
        arcs["input"][first + place], arcs["output"][first + place] = label, 0
        arcs["to"][first + place] = to
    arcs["cost"][first + 1] = 0.0
    states["epsilons"][0] = 0, 1
    arcs["input"][:NUM_TOKENS] = np.arange(1, NUM_TOKENS + 1)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "HLG.fst").open("wb") as file:
        file.write(HEADER.pack(*KIND, 1, 0, num_states, len(arcs)))
        states.tofile(file)
        arcs.tofile(file)


def scored() -> Iterator[Scored]:
    """Rows that are sure of a token in one of four, and of the blank in the others."""
    random = np.random.default_rng(1)
    for number in range(NUM_UTTERANCES):
        logits_TV = random.normal(size=(NUM_ROWS, NUM_TOKENS)).astype(np.float32)
        tokens_T = np.where(random.random(NUM_ROWS) < 0.25, random.integers(1, NUM_TOKENS, NUM_ROWS), 0)
        logits_TV[np.arange(NUM_ROWS), tokens_T] += 12
        scores_TV = logits_TV - np.log(np.exp(logits_TV).sum(axis=1, keepdims=True))
        yield Scored(Utterance(f"u{number}", "r", "A", 5.0 * number, 4.5, "s", "", 0, 450), scores_TV, 0.0)


def measure(folder: Path, settings: Decode, penalties: list[float]) -> None:
    """Open the methods, search, and print the memory of each process."""
    start_s = time.process_time()
    words = [f"w{number}" for number in range(NUM_WORDS)]
    reader = WordReader(CtcTopology(), WordPieces([f"\u2581{number}" for number in range(NUM_TOKENS)]), 0.03)
    graph = SearchGraph(folder, read_graph(folder), words)
    resources: Any = SimpleNamespace(graph=graph, word_reader=reader, config=Config(decode=settings))
    methods: dict[str, SearchMethod] = {"graph": Graph("graph", settings.methods[0].settings, resources)}
    methods |= {"rescore": Rescore("rescore", settings.methods[1].settings, resources)}
    for method in methods.values():
        method.open({"word_penalty": penalties})
    print(f"opened after {time.process_time() - start_s:.1f} s of CPU time")
    bases = [DecodingParameters.of("graph", lm_weight=0.5, word_penalty=each, beam=14.0) for each in penalties]
    rescored = DecodingParameters.of("rescore", bases[0], lm_weight=0.5, word_penalty=0.0, beam=14.0, nnlm_weight=0.0)
    acoustic: Any = SimpleNamespace(frame_shift_ms=10.0)
    with start_decoder(acoustic, methods, settings) as decoder:
        decoded = decoder.search(scored(), [*bases, rescored], "search", NUM_UTTERANCES)
        print("| process | PSS MiB | resident MiB | of its own MiB | peak MiB |\n|---|---|---|---|---|")
        for name, process in [("main", os.getpid()), *(("search", p.pid) for p in multiprocessing.active_children())]:
            print(f"| {name} | {' | '.join(f'{value / 1024:.0f}' for value in memory(process))} |")
    rates = ", ".join(f"{each.method} {cpu_s:.1f}" for each, cpu_s in decoded.search_cpu_s.items())
    found = sum(len(each) for each in decoded.words[bases[0]])
    print(f"CPU s: {rates}; {found} words by graph")


def memory(process: int | None) -> list[int]:
    """Proportional, resident, private and peak, in KiB."""
    folder = Path("/proc") / str(process)
    lines = (folder / "smaps_rollup").read_text().splitlines()[1:] + (folder / "status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith("kB")}
    private = int(values["Private_Clean"]) + int(values["Private_Dirty"])
    return [int(values["Pss"]), int(values["Rss"]), private, int(values["VmHWM"])]


if __name__ == "__main__":
    main()
