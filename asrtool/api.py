"""What `import asrtool` offers: a trained recogniser as an object, and functions beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from asrtool.score.align import align_words
from asrtool.score.characters import Characters, edit_distance
from asrtool.score.result import Counts

if TYPE_CHECKING:
    from asrtool.decode.words import Word
    from asrtool.transcribe.transcript import Transcript


class Recogniser:
    """What `load` returns; close it, or use it as a context manager, when it is not needed any more."""

    def __init__(self, path: str | Path, method: str | None = None, num_jobs: int = 1) -> None:
        """As `load`."""
        from asrtool.bundle.trained import open_trained
        from asrtool.transcribe.recogniser import open_recogniser

        with contextlib.ExitStack() as stack:
            self._trained = stack.enter_context(open_trained(Path(path)))
            self._opened = open_recogniser(self._trained, method, num_jobs)
            self._stack = stack.pop_all()

    def transcribe(self, audio: str | Path, channels: str = "each") -> Transcript:
        """What is said in a file; it has `text`, `words` and `lines`, with times in seconds and confidences.

        `channels`: ``each``, ``mix``, or numbers from 1 on, as ``1,2``. Raises AsrtoolError where it cannot be read.
        """
        from asrtool.transcribe.transcribe import transcribe

        return transcribe(self._opened, audio, channels)

    def align(self, audio: str | Path, text: str, channel: int = 1) -> list[Word]:
        """When each word of `text` is said on a channel of a file, in seconds from its beginning.

        Raises AsrtoolError where it cannot be read, or the text does not fit it.
        """
        from asrtool.transcribe.align import align

        return align(self._opened, audio, text, channel)

    def close(self) -> None:
        """Remove what a bundle was unpacked to."""
        self._stack.close()

    def __enter__(self) -> Recogniser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def load(path: str | Path, method: str | None = None, num_jobs: int = 1) -> Recogniser:
    """Open a bundle of `asrtool export`, or the work folder of a run.

    `method`: its search, by default the one with the fewest errors on dev; `num_jobs`: processes that search, 1 is this
    process. Raises AsrtoolError where it is damaged or not finished, and for a method that it does not have.
    """
    return Recogniser(path, method, num_jobs)


def prepare(data: str | Path, out: str | Path, text_rules: str = "english") -> Path:
    """Manifests of a Kaldi data directory, a table or JSON lines, or whatever data can be; returns `out`.

    `text_rules` as data.text_rules. Raises AsrtoolError where too much cannot be used.
    """
    from asrtool.corpus.settings import Data
    from local.layouts.detect import prepare_any

    prepare_any(Path(data), Path(out), Data(text_rules=text_rules), Path(out).name)
    return Path(out)


def character_errors(reference: str, hypothesis: str) -> Characters:
    """The fewest errors in characters of one text against another, blanks left out. `cer` of them is in percent."""
    ref, hyp = ("".join(text.split()) for text in (reference, hypothesis))
    return Characters(len(ref), edit_distance(ref, hyp))


def word_errors(reference: str | Sequence[str], hypothesis: str | Sequence[str]) -> Counts:
    """Errors of one text against another; words are compared as they stand. `wer` of them is in percent."""
    words = [text.split() if isinstance(text, str) else list(text) for text in (reference, hypothesis)]
    return align_words(*words).counts
