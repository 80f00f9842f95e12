"""Decode on the workers of a cluster: a task is a batch of utterances.

A worker reads model, graph and language models when its first task names them, and keeps them; it needs to see the
same files under the same names. Batches are as in a local run, so results are the same.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from asrtool.data.batches import Batch, Lengths, plan_eval
from asrtool.data.storage.index import Utterance
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.workers.executor import keep_open
from asrtool.data.workers.processes import MapPieces, torch_threads
from asrtool.decode.acoustic_model import AcousticModel, Scored, load_searched_model
from asrtool.decode.decoder import Decoded, Hypothesis, ParameterList, Searches
from asrtool.decode.forward import load_batch, open_features, score_batch
from asrtool.decode.parallel import PIECE, pieces_of
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchMethod, make_methods
from asrtool.files import times_digest, write_beside
from asrtool.log import progress
from asrtool.settings.config import Config, to_table

Values = Mapping[str, Mapping[str, Sequence[float]]]  # method -> axis -> the values it can have


@dataclass(frozen=True)
class DecodingTask:
    """Model, folders and settings that a worker opens, and their digest."""

    model: Path
    folders: Mapping[str, Path | None]
    config: Config
    values: Values
    digest: str

    @classmethod
    def of(cls, resources: Resources, values: Values) -> DecodingTask:
        """Return the task of this run; files are identified by size and time."""
        model = resources.acoustic.path.absolute()
        folders = {name: path and path.absolute() for name, path in resources.folders.items()}
        config = resources.config
        files = {str(path): times_digest(path) for path in (model, *folders.values()) if path}
        sections = {name: to_table(getattr(config, name)) for name in ("decode", "lm", "nnlm")}
        digest = hashlib.sha256(json.dumps([files, sections, values], default=list).encode())
        return cls(model, folders, config, values, digest.hexdigest())

    def open(self) -> tuple[AcousticModel, Searches]:
        """Open all parts; AsrtoolError if one is missing, broken, or does not fit."""
        acoustic = load_searched_model(self.model, self.config.decode)
        methods = make_methods(self.config.decode, Resources(acoustic, self.folders, self.config))
        for name, method in methods.items():
            method.open(self.values[name])
        return acoustic, Searches(methods)


@dataclass(frozen=True)
class Part:
    """Batch `number` of the set in `features`, and the place of its scores."""

    features: Path
    digest: str
    number: int
    batch: Batch
    kept: Path | None

    @property
    def name(self) -> str:
        """Title for error messages."""
        return f"batch {self.number} of {self.features}"


@dataclass(frozen=True)
class ClusterDecoder:
    """Decoder on the workers of an executor; its `methods` are not open here.

    Scores are kept in the folder `kept`, which workers see, if given.
    """

    acoustic: AcousticModel
    methods: Mapping[str, SearchMethod]
    task: DecodingTask
    map_pieces: MapPieces
    kept: Path | None = None

    def decode(self, reader: FeatureReader, parameters: ParameterList, what: str) -> Decoded:
        """Decode a set with each of `parameters`; kept scores are of one set."""
        decoded = Decoded.by(parameters)
        max_frames = round(self.task.config.decode.batch_s * 1000 / self.acoustic.frame_shift_ms)
        folder = reader.directory.absolute()
        digest = times_digest(folder)
        batches = enumerate(plan_eval(Lengths.of(reader.index), max_frames))
        parts = (Part(folder, digest, number, batch, self.kept) for number, batch in batches)
        decode = functools.partial(decode_part, task=self.task, parameters=tuple(parameters))
        rows = itertools.chain.from_iterable(self.map_pieces(decode, parts))
        for utterance, cpu_s, chosen in progress(rows, what, len(reader.index), "utterance"):
            decoded.begin(utterance, cpu_s)
            decoded.add(chosen)
        return decoded


def decode_part(
    part: Part, task: DecodingTask, parameters: ParameterList
) -> list[tuple[Utterance, float, list[Hypothesis]]]:
    """Return each utterance of a batch, the CPU seconds of its scores, and its words.

    Runs on a worker, in one thread.
    """
    acoustic: AcousticModel
    searches: Searches
    acoustic, searches = keep_open("decode", task.digest, task.open)
    passes = searches.passes(parameters)
    searches.prepare(list(passes))
    rows = []
    with torch_threads(1), threadpool_limits(1, "blas"):
        for some in pieces_of(_scores(part, acoustic, task.digest), PIECE):
            found = searches([(scored.scores_TV, list(passes)) for scored in some])
            found = searches.complete(found, list(passes), in_main=True)
            for scored, timed in zip(some, found, strict=True):
                rows.append((scored.utterance, scored.cpu_s, list(searches.choose(timed, passes))))
    return rows


def _scores(part: Part, acoustic: AcousticModel, digest: str) -> Iterator[Scored]:
    """Yield the scores of a batch; the first worker computes kept ones."""
    path = part.kept and part.kept / f"{part.number}.pickle"
    if path and path.exists():
        yield from pickle.loads(path.read_bytes())
        return
    open_set = functools.partial(open_features, part.features, acoustic, on_worker=True)
    reader: FeatureReader = keep_open("features", f"{part.features} {part.digest} {digest}", open_set)
    scored = list(score_batch(acoustic.model, reader, *load_batch(reader, part.batch)))
    if path:
        with write_beside(path) as temporary:
            temporary.write_bytes(pickle.dumps([dataclasses.replace(each, cpu_s=0.0) for each in scored]))
    yield from scored
