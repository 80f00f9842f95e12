"""Read the decoding graph (OpenFst's ConstFst of StdArc), also as arrays.

kaldifst follows a damaged file out of its memory, so the file is checked here first.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np

from asrtool.errors import AsrtoolError

HEADER = struct.Struct("<ii5si8siiQqqq")  # ..., flags, properties, start, number of states, number of arcs
KIND = (2125659606, 5, b"const", 8, b"standard", 2, 0)  # magic number, types, version, flags
STATE = np.dtype([("final", "<f4"), ("begin", "<u4"), ("num_arcs", "<u4"), ("epsilons", "<u4", 2)])
PROPERTIES = 1  # properties of a graph with other costs: countable states, unknown weights
CHUNK_ARCS = 2**20  # 16 MiB
ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("to", "<i4")])


@dataclass(frozen=True)
class GraphArrays:
    """Graph file mapped to memory: `states` (STATE, shape S) and `arcs` (ARC).

    Arcs are sorted by the state they leave. Costs are negative natural logarithms.
    """

    path: Path
    start: int
    states: np.ndarray
    arcs: np.ndarray
    mapped: mmap.mmap

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield all arcs in chunks, so that only one chunk is in memory."""
        for first in range(0, len(self.arcs), CHUNK_ARCS):
            yield self.arcs[first : first + CHUNK_ARCS]
            self.release_pages()

    def release_pages(self) -> None:
        """Release the mapped pages of the file until it is read again (on Linux)."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


def read_graph(directory: Path | str) -> GraphArrays:
    """Map ``HLG.fst`` in `directory` to memory.

    Raises AsrtoolError if it is missing or broken: cut, or with an impossible state, label or weight.
    """
    path = Path(directory) / "HLG.fst"
    if not path.is_file():
        raise AsrtoolError(f"{path}: no decoding graph", "run `asrtool graph` first")
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
    *kind, _, start, num_states, num_arcs = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
    end_of_states = HEADER.size + num_states * STATE.itemsize
    if (
        tuple(kind) != KIND
        or not (0 <= start < num_states and num_arcs > 0)
        or end_of_states + num_arcs * ARC.itemsize != path.stat().st_size
    ):
        raise _broken_graph(path)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    states = np.frombuffer(mapped, STATE, num_states, HEADER.size)
    arcs = np.frombuffer(mapped, ARC, num_arcs, end_of_states)
    graph = GraphArrays(path, start, states, arcs, mapped)
    if not (_are_states(states, num_arcs) and all(_are_arcs(some, num_states) for some in graph.chunks())):
        raise _broken_graph(path)
    return graph


def load_fst(graph: GraphArrays, word_penalty: float = 0.0) -> kaldifst.StdConstFst:
    """Load `graph` for kaldifst, adding `word_penalty` to arcs that write a word.

    It is in memory once, also for processes forked later. A changed graph is written to a temporary file first, since
    kaldifst reads files only. Raises AsrtoolError if the file cannot be written or read.
    """
    if word_penalty == 0:
        return _load(graph.path)
    with tempfile.TemporaryDirectory(prefix="asrtool-graph-") as folder:
        path = Path(folder) / graph.path.name
        try:
            write_with_penalty(graph, word_penalty, path)
        except OSError as error:
            what = f"{path}: a graph with a word penalty cannot be written, {error.strerror}"
            raise AsrtoolError(what, "free some space, or name another folder: TMPDIR=FOLDER asrtool ...") from error
        return _load(path)


def _load(path: Path) -> kaldifst.StdConstFst:
    graph = kaldifst.StdConstFst.read(str(path))
    if graph is None:
        raise _broken_graph(path)
    return graph


def write_with_penalty(graph: GraphArrays, word_penalty: float, path: Path) -> None:
    """Copy the file of `graph`, costs changed, a chunk of arcs at a time."""
    with path.open("wb") as file:
        file.write(HEADER.pack(*KIND, PROPERTIES, graph.start, len(graph.states), len(graph.arcs)))
        graph.states.tofile(file)
        for some in graph.chunks():
            arcs = some.copy()
            arcs["cost"][arcs["output"] > 0] += np.float32(word_penalty)
            arcs.tofile(file)


def _broken_graph(path: Path) -> AsrtoolError:
    """Return the error for a file that is no graph, or is cut off."""
    return AsrtoolError(f"{path}: not a complete graph", "run `asrtool graph` again")


def _are_states(states: np.ndarray, num_arcs: int) -> bool:
    """Return whether each state's arcs follow the arcs of the state before it."""
    ends = np.cumsum(states["num_arcs"], dtype=np.int64)
    return bool(
        ends[-1] == num_arcs
        and (states["begin"] == ends - states["num_arcs"]).all()
        and (states["epsilons"] <= states["num_arcs"][:, None]).all()
        and (states["final"] > -np.inf).all()  # not NaN either
    )


def _are_arcs(arcs: np.ndarray, num_states: int) -> bool:
    return bool(
        min(arcs[name].min() for name in ("input", "output", "to")) >= 0
        and arcs["to"].max() < num_states
        and (arcs["cost"] > -np.inf).all()
    )
