"""Choose the decoder: processes of this machine, or workers of a cluster."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from asrtool.data.storage.reader import FeatureReader
from asrtool.data.workers.executor import dask_map
from asrtool.decode.cluster import ClusterDecoder, Task, Values
from asrtool.decode.decoder import Decoded, LocalDecoder, Searches, Tried
from asrtool.decode.forward import ScoreFile
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchMethod
from asrtool.settings.schema import DASK


class Decoder(Protocol):
    """The acoustic model and open methods."""

    def decode(self, reader: FeatureReader, parameters: Tried, what: str) -> Decoded:
        """Decode the set of `reader` with each of `parameters`; `what` is for the log."""


@contextlib.contextmanager
def start_decoder(
    methods: Mapping[str, SearchMethod], resources: Resources, values: Values, keep: Path | None = None
) -> Iterator[Decoder]:
    """Open `methods` where decode.executor says, for these `values` of their axes.

    With `keep`, scores of one set are computed once and stored there. Raises AsrtoolError as SearchMethod.open, and
    as dask_map.
    """
    executor = resources.config.decode.executor
    if executor.startswith(DASK):
        task = Task.of(resources, values)
        with dask_map(executor.removeprefix(DASK), "decode.executor") as map_pieces, _scores_in(keep) as kept:
            yield ClusterDecoder(resources.acoustic, methods, task, map_pieces, kept)
        return
    for name, method in methods.items():
        method.open(values[name])
    with tempfile.TemporaryFile(dir=keep) if keep else contextlib.nullcontext() as file:
        scores = ScoreFile(file) if file else None
        yield LocalDecoder(resources.acoustic, Searches(methods), resources.config.decode, scores)


@contextlib.contextmanager
def _scores_in(folder: Path | None) -> Iterator[Path | None]:
    """A folder below `folder` that is gone at the end."""
    if folder is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="scores-", dir=folder) as inner:
        yield Path(inner).absolute()
