"""Error rates between two plain texts, as files or in Python.

Words are compared as they are. A file is one of these:

- lhotse supervisions or cuts (``.jsonl``, ``.jsonl.gz``)
- trn: more than half of the lines end in ``(ID)``
- Kaldi's text: each line begins with what seems to be an id, or both files have the same first words, each once, in
  another order
- lines that are matched by their number
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asrtool.errors import AsrtoolError
from asrtool.score.align import align_words
from asrtool.score.lines import Location, read_text, split, to_lines
from asrtool.score.result import BY_LINE, BY_UTTERANCE, Result, Segment, edit_distance

# An id has an inner - or _, or letters and digits, or is a long number; no plain text begins so in every line.
_KALDI = re.compile(r"[ \t]*([^ \t]+[-_][^ \t]+|(?=[^ \t]*\d)[^\W\d][^ \t]*|0\d+|\d{4,})([ \t].*|)")
_LINE = "line "  # and its number: id of a plain line
_TRN = re.compile(r"(.*)\(([^() \t]+)\)[ \t]*")


class Utterance(NamedTuple):
    id: str
    speaker: str
    text: str


def wer(reference: str | Sequence[str], hypothesis: str | Sequence[str]) -> float:
    """Return the word error rate of a text, or of a list of sentences.

    Raises AsrtoolError for lists of different lengths, and if the reference has no words.
    """
    counts = _score_texts(reference, hypothesis).overall
    return _rate(counts.err, counts.num_words, "words")


def cer(reference: str | Sequence[str], hypothesis: str | Sequence[str]) -> float:
    """Return the character error rate without blanks, of texts as for `wer`."""
    pairs = [("".join(ref.split()), "".join(hyp.split())) for ref, hyp in _paired(reference, hypothesis)]
    return _rate(sum(edit_distance(*pair) for pair in pairs), sum(len(ref) for ref, _ in pairs), "characters")


def _rate(errors: int, num: int, unit: str) -> float:
    if not num:
        raise AsrtoolError(f"the reference has no {unit}", "count a whole test set at once, not each sentence")
    return errors / num


def _score_texts(reference: object, hypothesis: object) -> Result:
    pairs = enumerate(_paired(reference, hypothesis), 1)
    segments = [
        Segment(f"{_LINE}{n}", "all", (), ref, align_words(ref.split(), hyp.split())) for n, (ref, hyp) in pairs
    ]
    return Result(tuple(segments), {}, BY_LINE)


def _paired(reference: object, hypothesis: object) -> list[tuple[str, str]]:
    both = reference, hypothesis
    one, other = ([each] if isinstance(each, str) or not isinstance(each, Sequence) else list(each) for each in both)
    if isinstance(reference, str) != isinstance(hypothesis, str) or not all(isinstance(s, str) for s in one + other):
        kinds = " and ".join(type(each).__name__ for each in both)
        raise AsrtoolError(f"reference and hypothesis are {kinds}", "give two texts, or two lists of sentences")
    if len(one) != len(other):
        what = f"{len(one)} sentences of reference, {len(other)} of hypothesis"
        raise AsrtoolError(what, "give one for each, empty if nothing was recognised")
    return list(zip(one, other, strict=True))


def score_wer(ref: Path | str | Sequence[str], hyp: Path | str | Sequence[str]) -> Result:
    """Align each utterance of a file with the one of the same id in another.

    Or each sentence of a list with the one of the same place. Raises AsrtoolError for a malformed file, for an id that
    only one file has, and for lists of different lengths.
    """
    if not (isinstance(ref, Path | str) and isinstance(hyp, Path | str)):
        return _score_texts(ref, hyp)
    references, hypotheses = read_utterances(ref), read_utterances(hyp)
    by_word = [_by_first_word(utterances) for utterances in (references, hypotheses)]
    if by_word[0].keys() == by_word[1].keys() and [*by_word[0]] != [*by_word[1]]:
        references, hypotheses = by_word
    for one, other, path in ((references, hypotheses, hyp), (hypotheses, references, ref)):
        missing = [key for key in one if key not in other]
        if missing:
            raise AsrtoolError(
                f"{path}: {len(missing)} of {len(one)} utterances are missing, the first is {missing[0]}",
                "give texts of the same utterances; one without words needs its line too",
            )
    segments = [
        Segment(key, one.speaker, (), one.text, align_words(split(one.text), split(hypotheses[key].text)))
        for key, one in references.items()
    ]
    are_lines = all(segment.id.startswith(_LINE) for segment in segments)
    return Result(tuple(segments), {}, BY_LINE if are_lines else BY_UTTERANCE)


def _by_first_word(utterances: dict[str, Utterance]) -> dict[str, Utterance]:
    """Return plain lines by their first words, or nothing.

    Return nothing if a word occurs twice, or if utterances have ids.
    """
    lines = [line.text.strip(" \t").split(None, 1) for id_, line in utterances.items() if id_.startswith(_LINE)]
    by_word = {words[0]: _with_speaker(words[0], "".join(words[1:])) for words in lines if words}
    return by_word if len(by_word) == len(utterances) else {}


def read_utterances(path: Path | str) -> dict[str, Utterance]:
    """Read the utterances of a manifest, trn, Kaldi's text or plain text by id."""
    path = Path(path)
    utterances: dict[str, Utterance] = {}
    for line, utterance in _read_manifest(path) if ".jsonl" in path.suffixes else _read_text(path):
        if utterance.id in utterances:
            Location(path, line).fail(f"second line for {utterance.id}", "each id once")
        utterances[utterance.id] = utterance
    if not utterances:
        raise AsrtoolError(f"{path}: no utterance", "expected .jsonl, .jsonl.gz, trn, ID TEXT or plain lines")
    return utterances


def _read_text(path: Path) -> Iterator[tuple[int, Utterance]]:
    """Yield the number of the line of each utterance, and the utterance."""
    lines = {n: line for n, line in enumerate(to_lines(read_text(path)), 1) if not line.startswith(";;")}
    spoken = {n: line for n, line in lines.items() if line.strip(" \t")}
    trn = {n: match for n, line in spoken.items() if (match := _TRN.fullmatch(line))}
    if 2 * len(trn) > len(spoken):
        for n, line in spoken.items():
            if n not in trn:
                Location(path, n).fail(f"{line!r} does not end in an id, as most lines do", "TEXT (ID)")
            yield n, _with_speaker(trn[n][2], trn[n][1])
        return
    kaldi = {n: match for n, line in spoken.items() if (match := _KALDI.fullmatch(line))}
    if len(kaldi) == len(spoken) > 1:
        for n, match in kaldi.items():
            yield n, _with_speaker(match[1], match[2])
        return
    for number, (n, line) in enumerate(lines.items(), 1):
        yield n, Utterance(f"{_LINE}{number}", "all", line)


def _with_speaker(id_: str, text: str) -> Utterance:
    return Utterance(id_, id_.partition("-")[0].partition("_")[0], text)


def _read_manifest(path: Path) -> Iterator[tuple[int, Utterance]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number, has_text = 0, False
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                for supervision in _supervisions(json.loads(line)):
                    has_text = has_text or "text" in supervision
                    yield number, _utterance(supervision)
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error}", "check the path and that the file is whole") from error
    except (ValueError, EOFError, zlib.error, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise AsrtoolError(
            f"{path}:{number or 1}: no lhotse manifest ({error})", "expected JSON lines with id, speaker and text"
        ) from error
    if number and not has_text:  # lhotse leaves out a text that is None, and recordings have none
        raise AsrtoolError(f"{path}: no text in the whole manifest", "expected supervisions or cuts with their text")


def _supervisions(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the supervisions of a cut, of a mixed cut's tracks, or the entry itself."""
    if "tracks" in entry:
        return [found for track in entry["tracks"] for found in track["cut"].get("supervisions", ())]
    supervisions: list[dict[str, Any]] = entry.get("supervisions", [entry])
    return supervisions


def _utterance(supervision: dict[str, Any]) -> Utterance:
    fields = supervision["id"], supervision.get("speaker") or "all", supervision.get("text") or ""
    for name, value in zip(Utterance._fields, fields, strict=True):
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}")
        value.encode()  # half of a surrogate pair could not be written
    return Utterance(*fields)
