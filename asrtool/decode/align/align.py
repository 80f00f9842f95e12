"""Forced alignment: times of the words and tokens of transcripts.

Reads the features and texts of one set, writes `words.ctm`, `tokens.ctm`, `supervisions.jsonl` (of lhotse, with
alignments of words) and `dropped.tsv` (id, reason).
"""

from __future__ import annotations

import functools
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.data.storage.index import Utterance
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.transcripts import is_copy
from asrtool.data.workers.processes import num_cores, torch_threads
from asrtool.decode.acoustic_model import AcousticModel, load_acoustic_model, load_tokenizer
from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.forward import compute_scores, open_features
from asrtool.decode.parallel import cores_left, one_by_one, process_pool
from asrtool.decode.words import Word, is_spoken, place_words, to_confidence
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.tokenizer import Tokenizer
from asrtool.log import progress
from asrtool.models.objectives.topology import Span, Topology
from asrtool.settings.decode import Decode

# Most words have a lower confidence in 123 of 126 texts of another recording and 6 of 128 right ones (an4 0 of 80).
DOUBTFUL = 0.01
Tokenized = Sequence[tuple[str, list[int]]]  # words and their tokens
Item = tuple[np.ndarray, Tokenized | str]  # scores (T, V), and the text or a reason why it has no tokens


@dataclass(frozen=True)
class Aligned:
    """The words of an utterance and their tokens, in order; times from its start."""

    words: tuple[Word, ...]
    tokens: tuple[Word, ...]


def align_utterance(topology: Topology, pieces: Sequence[str], frame_s: float, item: Item) -> Aligned | str:
    """Return the best alignment of the words to the scores, or a reason.

    Tokens are `pieces`, and rows are `frame_s` apart. Tags are aligned and left out of the result.
    """
    path = align_tokens(topology, item)
    if isinstance(path, str):
        return path
    scores_TV, tokenized = item
    spans = topology.spans(path, scores_TV)
    groups = [(text, group) for text, group in group_by_words(spans, tokenized) if is_spoken(text)]
    words = place_words(groups, frame_s, len(scores_TV), topology.margin_s)
    tokens = [
        Word(pieces[token], begin * frame_s, end * frame_s, to_confidence([(token, begin, end, peak)]))
        for _, group in groups
        for token, begin, end, peak in group
    ]
    return Aligned(tuple(words), tuple(tokens))


def align_tokens(topology: Topology, item: Item, least_rows: int = 0) -> list[int] | str:
    """Return the best path of the tokens, a column a row, or a reason."""
    scores_TV, tokenized = item
    if isinstance(tokenized, str):
        return tokenized
    tokens = [token for _, word_tokens in tokenized for token in word_tokens]
    needed = max(topology.rows_needed(tokens), least_rows)
    if needed > len(scores_TV):
        return f"{len(scores_TV)} rows, {needed} needed"
    return topology.align(scores_TV, tokens) if len(scores_TV) else []


def group_by_words(spans: Sequence[Span], tokenized: Tokenized | str) -> list[tuple[str, list[Span]]]:
    """Return each word of an aligned text with the spans of its tokens."""
    assert not isinstance(tokenized, str), "align_tokens returns a reason for it"
    remaining = iter(spans)
    return [(text, list(islice(remaining, len(tokens)))) for text, tokens in tokenized]


def map_aligned(
    work: Callable[[Item], Any],
    acoustic: AcousticModel,
    reader: FeatureReader,
    tokenizer: Tokenizer,
    settings: Decode,
    what: str,
    keep: Callable[[Utterance], bool] = lambda _: True,
) -> Iterator[tuple[Utterance, int, Any]]:
    """Yield utterances of `reader`, their positions, and the results of `work`.

    `work` runs in decode.num_jobs forked processes; `what` is for the log. Utterances that are not to `keep` are
    skipped. Raises AsrtoolError as compute_scores.
    """
    under_way: deque[tuple[Utterance, int]] = deque()

    def items() -> Iterator[Item]:
        max_frames = round(settings.batch_s * 1000 / acoustic.frame_shift_ms)
        for scored in compute_scores(acoustic.model, reader, max_frames):
            if keep(scored.utterance):
                under_way.append((scored.utterance, scored.position))
                yield scored.scores_TV, tokenize(scored.utterance.transcript, tokenizer)

    num_jobs, total = settings.num_jobs or num_cores(), len(reader.index)
    with process_pool(one_by_one(work), num_jobs) as work_map, torch_threads(cores_left(num_jobs)):
        for result in progress(work_map(items(), total), what, total, "utterance"):
            yield *under_way.popleft(), result


def align_run(model: Path, features: Path, tokenizer: Path, out: Path, settings: Decode) -> None:
    """Align the texts of the set `features` and write the folder `out`.

    A word has the tokens of training. Utterances with too few rows, or with a word without tokens, are listed and
    left out; copies at other speeds are skipped. Raises AsrtoolError if an input is missing or broken, parts do not
    belong together, or nothing is left.
    """
    acoustic = load_acoustic_model(model)
    reader = open_features(features, acoustic)
    loaded = load_tokenizer(tokenizer, acoustic)
    aligner = functools.partial(align_utterance, acoustic.topology, loaded.pieces, acoustic.frame_s)
    what = f"align {features.name}"
    found = map_aligned(aligner, acoustic, reader, loaded, settings, what, lambda utterance: not is_copy(utterance))
    _write(out, [(utterance, result) for utterance, _, result in found])


def is_doubtful(words: Sequence[Word]) -> bool:
    """Return whether most words are so improbable that they may not have been said."""
    return sum(word.confidence < DOUBTFUL for word in words) > len(words) / 2


def tokenize(text: str, tokenizer: Tokenizer) -> Tokenized | str:
    """Return the words of `text` with tokens, or the word that has none."""
    tokenized = []
    for word in text.split():
        try:
            tokens = tokenizer.encode(word)
        except AsrtoolError as error:
            return error.what
        if not tokens:
            return f"{word!r}: the tokenizer has no tokens for it"
        tokenized.append((word, tokens))
    return tokenized


def _write(out: Path, found: Sequence[tuple[Utterance, Aligned | str]]) -> None:
    dropped = [(utterance.id, result) for utterance, result in found if isinstance(result, str)]
    if len(dropped) == len(found):
        first = "".join(f", {name}: {reason}" for name, reason in dropped[:1])
        raise AsrtoolError(
            f"{out}: none of {len(found)} utterances can be aligned{first}",
            "look whether texts belong to their audio and have the tokens of the training",
        )
    aligned = [(utterance, result) for utterance, result in found if isinstance(result, Aligned)]
    with write_folder(out, "words.ctm") as folder:
        for name in ("words", "tokens"):
            segments = (
                Segment(u.recording, u.channel, u.start_s, u.duration_s, getattr(result, name)) for u, result in aligned
            )
            (folder / f"{name}.ctm").write_text(format_ctm(segments), encoding="utf-8")
        with (folder / "supervisions.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(_supervision(*each), ensure_ascii=False)}\n" for each in aligned)
        (folder / "dropped.tsv").write_text(
            "".join(f"{name}\t{reason}\n" for name, reason in dropped), encoding="utf-8"
        )
    logging.info("%s: %d utterances aligned, %d left out, see dropped.tsv", out, len(aligned), len(dropped))
    if doubtful := [utterance.id for utterance, result in aligned if is_doubtful(result.words)]:
        what = "%s: most words of %d of %d utterances have a confidence below %g, the first is %s: see if they are said"
        logging.warning(what, out, len(doubtful), len(aligned), DOUBTFUL, doubtful[0])


def _supervision(utterance: Utterance, result: Aligned) -> dict[str, Any]:
    words = [
        [word.text, round(utterance.start_s + word.begin_s, 3), round(word.end_s - word.begin_s, 3), word.confidence]
        for word in result.words
    ]
    return {
        "id": utterance.id,
        "recording_id": utterance.recording,
        "start": utterance.start_s,
        "duration": utterance.duration_s,
        "channel": ord(utterance.channel) - ord("A"),
        "text": utterance.text,
        "speaker": utterance.speaker,
        "alignment": {"word": words},
    }
