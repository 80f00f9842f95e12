"""Forced alignment: when each word and token of the transcripts was said.

Reads the features and texts of one set, writes `words.ctm`, `tokens.ctm` and `dropped.tsv` (id, reason).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from asrtool.corpus.index import Utterance
from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.forward import compute_posteriors
from asrtool.decode.inputs import check_num_tokens, load_acoustic_model, open_features
from asrtool.decode.parallel import num_cores, process_pool
from asrtool.decode.path import Span, find_spans, viterbi_path
from asrtool.decode.settings import Decode
from asrtool.decode.words import Word, is_spoken, place_words, to_confidence
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.tokenizer import Tokenizer
from asrtool.log import progress
from asrtool.models.criterion import ctc_frames_needed

COPY = re.compile(r"sp[0-9.]+-")  # how the id and the speaker of a speed-perturbed copy begin
Spelled = Sequence[tuple[str, list[int]]]  # words and their tokens


@dataclass(frozen=True)
class Aligned:
    """The words of an utterance and their tokens, in order; times from its begin."""

    words: tuple[Word, ...]
    tokens: tuple[Word, ...]


@dataclass(frozen=True)
class Aligner:
    """`pieces` are the tokens of the posteriors' columns, `frame_s` the time from one row to the next."""

    pieces: Sequence[str]
    frame_s: float

    def __call__(self, item: tuple[np.ndarray, Spelled | str]) -> Aligned | str:
        """The most probable alignment of the words to the log posteriors (T, V), or why there is none.

        Words that could not be spelled come as the reason. Tags and what stands for no speech are aligned as all else,
        and left out of the result.
        """
        log_probs_TV, spelled = item
        if isinstance(spelled, str):
            return spelled
        tokens = [token for _, spelling in spelled for token in spelling]
        if ctc_frames_needed(tokens) > len(log_probs_TV):
            return f"{len(log_probs_TV)} rows, {ctc_frames_needed(tokens)} needed"
        spans = iter(find_spans(viterbi_path(log_probs_TV, tokens), log_probs_TV) if tokens else ())
        groups = [(text, list(islice(spans, len(spelling)))) for text, spelling in spelled]
        groups = [(text, group) for text, group in groups if is_spoken(text)]
        words = place_words(groups, self.frame_s, len(log_probs_TV))
        return Aligned(tuple(words), tuple([self._place(span) for _, group in groups for span in group]))

    def _place(self, span: Span) -> Word:
        token, begin, end, _ = span
        return Word(self.pieces[token], begin * self.frame_s, end * self.frame_s, to_confidence([span]))


def align_run(model: Path, features: Path, tokenizer: Path, out: Path, settings: Decode) -> None:
    """Align the texts of the set `features` to its speech and write the folder `out`.

    A word is spelled as in training. Utterances with fewer rows of posteriors than their tokens need, and those with a
    word that the tokenizer cannot spell, are listed and left out; speed-perturbed copies are passed over, whose times
    are not those of the recording. Raises AsrtoolError when an input is missing or broken, when parts do not belong
    together, and when nothing is left.
    """
    acoustic = load_acoustic_model(model)
    reader = open_features(features, acoustic)
    spelling = Tokenizer.load(tokenizer)
    check_num_tokens(tokenizer, spelling.num_tokens, acoustic)
    utterances: list[Utterance] = []

    def items() -> Iterator[tuple[np.ndarray, Spelled | str]]:
        max_frames = round(settings.batch_s * 1000 / acoustic.frame_shift_ms)
        for posteriors in compute_posteriors(acoustic.model, reader, max_frames):
            if COPY.match(posteriors.utterance.id) and COPY.match(posteriors.utterance.speaker):
                continue
            utterances.append(posteriors.utterance)
            yield posteriors.log_probs_TV, _spell(posteriors.utterance.text, spelling)

    aligner = Aligner(spelling.pieces, acoustic.frame_s)
    with process_pool(aligner, settings.num_jobs or num_cores()) as align_map:
        found = list(progress(align_map(items()), f"align {features.name}", len(reader.index), "utterance"))
    _write(out, utterances, found)


def _spell(text: str, tokenizer: Tokenizer) -> Spelled | str:
    """The words of `text` and their tokens, or which word has none."""
    spelled = []
    for word in text.split():
        try:
            tokens = tokenizer.encode(word)
        except AsrtoolError as error:
            return error.what
        if not tokens:
            return f"{word!r}: no token spells it"
        spelled.append((word, tokens))
    return spelled


def _write(out: Path, utterances: Sequence[Utterance], found: Sequence[Aligned | str]) -> None:
    dropped = [(u.id, reason) for u, reason in zip(utterances, found, strict=True) if isinstance(reason, str)]
    if len(dropped) == len(utterances):
        first = "".join(f", {name}: {reason}" for name, reason in dropped[:1])
        raise AsrtoolError(
            f"{out}: none of {len(utterances)} utterances can be aligned{first}",
            "look whether texts belong to their audio and are spelled as those of the training",
        )
    aligned = [(u, result) for u, result in zip(utterances, found, strict=True) if isinstance(result, Aligned)]
    with write_folder(out, "words.ctm") as folder:
        for name in ("words", "tokens"):
            segments = (
                Segment(u.recording, u.channel, u.start_s, u.duration_s, getattr(result, name)) for u, result in aligned
            )
            (folder / f"{name}.ctm").write_text(format_ctm(segments), encoding="utf-8")
        (folder / "dropped.tsv").write_text(
            "".join(f"{name}\t{reason}\n" for name, reason in dropped), encoding="utf-8"
        )
    logging.info("%s: %d utterances aligned, %d left out, see dropped.tsv", out, len(aligned), len(dropped))
