"""A decoding graph of the size that Fisher and Switchboard have, invented, in the file that `asrtool graph` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asrtool.lang.graph_file import ARC, HEADER, KIND, STATE

ARCS_A_STATE = 5.75  # of HLG of swb2000


def write_graph(folder: Path, num_arcs: float, num_tokens: int, num_words: int) -> None:
    """HLG.fst: states of a 4-gram with a loop for the blank, an arc to a shorter history and arcs of tokens at random.

    Every state is final, and state 0, the empty history, has an arc for each of at most 1,023 tokens.
    """
    random = np.random.default_rng(0)
    num_states = int(num_arcs / ARCS_A_STATE)
    states = np.zeros(num_states, STATE)
    states["final"] = 2.0
    states["num_arcs"] = 2 + random.geometric(1 / (ARCS_A_STATE - 2), num_states)
    states["num_arcs"][0] = num_tokens
    states["begin"] = np.cumsum(states["num_arcs"]) - states["num_arcs"]
    states["epsilons"] = 1
    source = np.repeat(np.arange(num_states), states["num_arcs"])
    arcs = np.zeros(len(source), ARC)
    key = (source << 10) + random.integers(2, num_tokens + 1, len(source))
    key.sort()
    arcs["input"] = key & 1023
    arcs["output"] = np.where(random.random(len(source)) < 0.3, random.integers(1, num_words - 4, len(source)), 0)
    arcs["cost"] = random.exponential(4.0, len(source))
    arcs["to"] = random.integers(0, num_states, len(source))
    first = states["begin"].astype(np.int64)
    for place, label, to in ((0, 0, np.arange(num_states) // 8), (1, 1, np.arange(num_states))):
        arcs["input"][first + place], arcs["output"][first + place] = label, 0
        arcs["to"][first + place] = to
    arcs["cost"][first + 1] = 0.0
    states["epsilons"][0] = 0, 1
    arcs["input"][:num_tokens] = np.arange(1, num_tokens + 1)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "HLG.fst").open("wb") as file:
        file.write(HEADER.pack(*KIND, 1, 0, num_states, len(arcs)))
        states.tofile(file)
        arcs.tofile(file)
