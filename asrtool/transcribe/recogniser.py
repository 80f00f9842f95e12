"""Recogniser with loaded model and search: pieces of audio to words.

Letters in names: N pieces of a batch, T frames, F features of a frame, S samples.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from asrtool.bundle.trained import TrainedRecogniser
from asrtool.data.batches import Lengths, pad_feats, plan_eval
from asrtool.data.features.cmvn import Cmvn, Moments, add_moments
from asrtool.data.features.feature_type import FeatureType, NumpyFilterbank, frames_of
from asrtool.data.storage.index import Utterance
from asrtool.decode.acoustic_model import AcousticModel, Scored, check_scores, load_searched_model
from asrtool.decode.decoder import LocalDecoder, Results, Searches
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import bases_first, make_methods, read_tuning
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.log import progress
from asrtool.models.files.onnx_file import BATCH_S, OnnxNetwork
from asrtool.settings.data import Features
from asrtool.settings.toml_files import load_section
from asrtool.transcribe.segments import Piece

GROUP_S = 600.0  # seconds of speech normalised at once, and sorted by length into batches
PIECE_S = 5.0  # mean length of a piece, to estimate their number


@dataclass
class SpeakerNormaliser:
    """Normalisation by all pieces of each speaker so far."""

    cmvn: Cmvn
    moments: dict[str, Moments] = field(default_factory=dict)

    def update(self, pieces: Iterable[Piece]) -> None:
        """Add the statistics of the next pieces."""
        for piece in pieces:
            add_moments(self.moments, {piece.speaker: Moments.of(piece.feats_TF)})
        for speaker, moments in self.moments.items():
            self.cmvn.learn(speaker, moments)


@dataclass(frozen=True)
class Recogniser:
    """Model and search of a trained recogniser, with a method and its parameters."""

    origin: TrainedRecogniser
    acoustic: AcousticModel
    features: Features
    decoder: LocalDecoder
    parameters: DecodingParameters

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model."""
        folder = self.origin.folders["tokenizer"]
        assert folder is not None, "every search has read it"
        return Tokenizer.load(folder)

    @cached_property
    def extractor(self) -> FeatureType:
        """Feature type of the model."""
        if isinstance(self.acoustic.network, OnnxNetwork):
            return NumpyFilterbank(self.features)
        loaded: FeatureType = self.features.type.load()(self.features)
        return loaded

    @cached_property
    def _apply(self) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, list[int]]]:
        """Function from a padded batch and its lengths to scores and rows."""
        if isinstance(self.acoustic.network, OnnxNetwork):
            return self.acoustic.network.apply
        from asrtool.decode.forward import apply_model
        from asrtool.models.acoustic import choose_device

        device = choose_device()
        return functools.partial(apply_model, self.acoustic.model.to(device).eval(), device=device)

    def frames(self, samples_S: np.ndarray, rate_hz: int) -> np.ndarray:
        """Return frames (T, F) of samples (S,), resampled if needed, not normalised."""
        return frames_of(samples_S, rate_hz, self.features, self.extractor)

    def words(self, pieces: Iterable[Piece], duration_s: float | None) -> list[tuple[Piece, tuple[Word, ...]]]:
        """Return each piece with its words, in order; times count from its start.

        `duration_s` of the recording is for the progress bar: the number of pieces is known only at the end.
        """
        kept: list[Piece] = []

        def shown(results: Results) -> Results:
            total_s = None if duration_s is None else math.ceil(duration_s)
            return progress(results, "recognise", total_s, "second", lambda done: kept[done - 1].end_s)

        total = max(1, int(duration_s / PIECE_S)) if duration_s is not None else 0
        decoded = self.decoder.search(self.scored(_noted(pieces, kept)), [self.parameters], total, shown)
        return list(zip(kept, decoded.words[self.parameters], strict=True))

    def search(self, scores_TV: np.ndarray) -> tuple[Word, ...]:
        """Search the scores of one piece in this process; return its words."""
        method = self.decoder.searches.methods[self.parameters.method]
        (found,) = method.complete([method.search(scores_TV, method.first_pass(self.parameters))])
        (words,) = method.choose(found, [self.parameters])
        return words

    def scored(self, pieces: Iterable[Piece]) -> Iterator[Scored]:
        """Yield the scores of pieces in order; AsrtoolError for one with NaN."""
        normaliser = SpeakerNormaliser(Cmvn(self.origin.cmvn_folder, self.features.cmvn))
        number = 0
        for group in _groups(pieces, GROUP_S):
            normaliser.update(group)
            inputs = [normaliser.cmvn.normalise(piece.speaker, piece.feats_TF) for piece in group]
            for piece, scores_TV in zip(group, self.compute_scores(inputs), strict=True):
                check_scores(scores_TV, f"{piece.speaker} at {piece.begin_s:.1f} s")
                fields = piece.begin_s, piece.duration_s, piece.speaker, "", 0, len(piece.feats_TF)
                utterance = Utterance(f"{piece.speaker}-{number}", piece.speaker, "A", *fields)
                yield Scored(utterance, scores_TV, 0.0, number)
                number += 1

    def compute_scores(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Compute scores in batches of similar length."""
        scores: list[np.ndarray] = [np.zeros(0)] * len(inputs)
        batch_s = self.decoder.settings.batch_s
        if isinstance(self.acoustic.network, OnnxNetwork):
            batch_s = min(batch_s, BATCH_S)
        max_frames = round(batch_s * 1000 / self.acoustic.frame_shift_ms)
        lengths = Lengths(np.array([len(feats_TF) for feats_TF in inputs]), np.zeros(1, np.int64))
        for batch in plan_eval(lengths, max_frames):
            scores_NTV, rows = self._apply(*pad_feats([inputs[i] for i in batch.indices]))
            for n, i in enumerate(batch.indices):
                scores[i] = scores_NTV[n, : rows[n]]
        return scores


def open_recogniser(trained: TrainedRecogniser, method: str | None = None, num_jobs: int = 0) -> Recogniser:
    """Open a recogniser with a search `method`, by default the best one on dev.

    `num_jobs` processes search, one a core if 0. Raises AsrtoolError for an unknown method, and if a file is missing
    or broken.
    """
    name = method or trained.best_method()
    config = trained.config
    known = [chosen.name for chosen in config.decode.methods]
    if name not in known:
        what = f"{trained.origin}: has no search method {name}, but {', '.join(known)}"
        raise AsrtoolError(what, "choose one of these with --method")
    settings = dataclasses.replace(config.decode, num_jobs=num_jobs)
    acoustic = load_searched_model(trained.model, settings)
    methods = make_methods(settings, Resources(acoustic, trained.folders, config))
    chosen = read_tuning(trained.tuning, methods)
    used = {name: methods[name]}
    for group in reversed(bases_first(methods)):
        used |= {each.name: each for each in group if any(each.name == other.based_on for other in used.values())}
    for each in used.values():
        each.open({axis: [value] for axis, value in chosen[each.name].items})
    features = load_section("features", acoustic.info["features"], str(trained.model))
    searches = Searches(used)
    searches.prepare([used[name].first_pass(chosen[name])])
    return Recogniser(trained, acoustic, features, LocalDecoder(acoustic, searches, settings), chosen[name])


def _noted(pieces: Iterable[Piece], into: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces; add them to `into` without their features."""
    for piece in pieces:
        into.append(dataclasses.replace(piece, feats_TF=piece.feats_TF[:0]))
        yield piece


def _groups(pieces: Iterable[Piece], min_s: float) -> Iterator[list[Piece]]:
    """Yield groups of pieces of at least `min_s`; the last one may be shorter."""
    group: list[Piece] = []
    for piece in pieces:
        group.append(piece)
        if sum(each.duration_s for each in group) >= min_s:
            yield group
            group = []
    if group:
        yield group
