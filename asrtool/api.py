"""Python interface of `import asrtool`: a trained recogniser and functions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from asrtool.errors import AsrtoolError
from asrtool.score.align import align_words
from asrtool.score.result import Characters, Counts, edit_distance
from asrtool.url import as_url

if TYPE_CHECKING:
    from asrtool.decode.words import Word
    from asrtool.transcribe.recogniser import Recogniser as Opened
    from asrtool.transcribe.transcript import Transcript


class Recogniser:
    """Recogniser that `load` returns; close it, or use it as a context manager."""

    def __init__(self, path: str | Path, method: str | None = None, num_jobs: int = 1) -> None:
        """Open a recogniser; see `load`."""
        if num_jobs < 1:
            raise AsrtoolError(f"num_jobs is {num_jobs}, expected 1 or more", "leave it out for this process alone")
        from asrtool.bundle.trained import open_trained
        from asrtool.transcribe.recogniser import open_recogniser

        with contextlib.ExitStack() as stack:
            self._trained = stack.enter_context(open_trained(Path(path)))
            self._recogniser = open_recogniser(self._trained, method, num_jobs)
            self._stack = stack.pop_all()
        self._is_open = True

    def transcribe(self, audio: str | Path, channels: str | int = "each") -> Transcript:
        """Transcribe a file; the result has `text`, `words` and `lines`.

        Times are in seconds. `channels`: ``each``, ``mix``, or numbers from 1 on, as ``1,2``. Raises AsrtoolError if
        the file cannot be read.
        """
        from asrtool.transcribe.transcribe import transcribe

        return transcribe(self._opened(), _path(audio), str(channels))

    def align(self, audio: str | Path, text: str, channel: int = 1) -> list[Word]:
        """Align `text` to a channel of a file; returns words with times in seconds.

        The text is normalised by data.text_rules of the training. Raises AsrtoolError if the file cannot be read, or
        the text does not fit it.
        """
        return self.align_transcript(audio, text, channel).words

    def align_transcript(self, audio: str | Path, text: str, channel: int = 1) -> Transcript:
        """Align as `align`, and return a transcript, which has many output forms."""
        from asrtool.local.text.own_text import text_rule
        from asrtool.local.text.text_rules import Unusable
        from asrtool.transcribe.transcribe import align

        opened = self._opened()
        if not isinstance(text, str):
            raise AsrtoolError(f"the text is of type {type(text).__name__}, expected str", "join its words by blanks")
        try:
            words = text_rule(self._trained.config.data)(text)
        except Unusable as error:
            raise AsrtoolError(f"{text!r}: {error.reason}: {error.detail}", "write it as it is said") from error
        return align(opened, _path(audio), words, channel)

    def close(self) -> None:
        """Remove what a bundle was unpacked to."""
        self._is_open = False
        self._stack.close()

    def _opened(self) -> Opened:
        if not self._is_open:
            raise AsrtoolError(f"{self._trained.origin}: was closed", "load it again, or use it before it is closed")
        return self._recogniser

    def __enter__(self) -> Recogniser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _path(audio: object) -> str | Path:
    if isinstance(audio, str | Path):
        return audio
    raise AsrtoolError(
        f"audio is of type {type(audio).__name__}, expected the path of a file",
        "write samples to a file, as with soundfile.write(path, samples, rate)",
    )


def load(path: str | Path, method: str | None = None, num_jobs: int = 1) -> Recogniser:
    """Open a bundle of `asrtool export`, or the work folder of a run.

    `method`: its search, by default the one with the fewest errors on dev; `num_jobs`: processes that search, 1 is this
    process. Raises AsrtoolError where it is damaged or not finished, and for a method that it does not have.
    """
    return Recogniser(path, method, num_jobs)


def prepare(data: str | Path, out: str | Path, text_rules: str = "english") -> Path:
    """Write manifests of data in any supported layout; returns `out`.

    `text_rules` as data.text_rules. Raises AsrtoolError if too much cannot be used, and for an `out` in the data.
    """
    from asrtool.local.layouts.detect import check_out, prepare_any
    from asrtool.settings.data import Data

    if not Path(data).exists() and not as_url(data):
        raise AsrtoolError(
            f"{data}: no such file or folder", "name data in one of the layouts of docs/guide/corpora.md"
        )
    check_out(Path(data), Path(out))
    try:
        settings = Data(text_rules=text_rules)
    except ValueError as error:
        raise AsrtoolError(str(error), "see data.text_rules in docs/guide/settings.md") from error
    prepare_any(Path(data), Path(out), settings, Path(out).name)
    return Path(out)


def character_errors(reference: str | Sequence[str], hypothesis: str | Sequence[str]) -> Characters:
    """Count character errors of texts as for `word_errors`, without blanks.

    Its `cer` is in percent.
    """
    pairs = (("".join(ref.split()), "".join(hyp.split())) for ref, hyp in _paired(reference, hypothesis))
    return sum((Characters(len(ref), edit_distance(ref, hyp)) for ref, hyp in pairs), Characters())


def word_errors(reference: str | Sequence[str], hypothesis: str | Sequence[str]) -> Counts:
    """Count word errors of a sentence, or of a list of sentences.

    Words are compared as they are. The result's `wer` is in percent. Raises AsrtoolError for anything else.
    """
    pairs = _paired(reference, hypothesis)
    return sum((align_words(ref.split(), hyp.split()).counts for ref, hyp in pairs), Counts())


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
