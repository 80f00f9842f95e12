"""The decoding graph as arrays, read from the file that kaldifst writes (OpenFst's ConstFst of StdArc)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.lang.graph import load_graph

HEADER = struct.Struct("<ii5si8siiQqqq")  # ..., flags, properties, start, number of states, number of arcs
STATE = np.dtype([("final", "<f4"), ("begin", "<u4"), ("num_arcs", "<u4"), ("epsilons", "<u4", 2)])
ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("to", "<i4")])


@dataclass(frozen=True)
class GraphArrays:
    """`states` (STATE, shape S) and `arcs` (ARC, by the state they leave); costs are negative natural logarithms."""

    start: int
    states: np.ndarray
    arcs: np.ndarray


def read_graph(directory: Path) -> GraphArrays:
    """Map ``HLG.fst`` in `directory` to memory; AsrtoolError when it is missing or broken."""
    load_graph(directory)  # a file that is missing or broken is told of there
    path = directory / "HLG.fst"
    with open(path, "rb") as file:
        start, num_states, num_arcs = HEADER.unpack(file.read(HEADER.size))[-3:]
    states = np.memmap(path, STATE, "r", HEADER.size, (num_states,))
    arcs = np.memmap(path, ARC, "r", HEADER.size + states.nbytes, (num_arcs,))
    return GraphArrays(start, np.asarray(states), np.asarray(arcs))  # a memmap is slow to take slices of
