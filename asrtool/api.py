"""Python interface of `import asrtool`: a trained recogniser and functions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from asrtool.errors import AsrtoolError
from asrtool.url import as_url

if TYPE_CHECKING:
    import numpy as np

    from asrtool.decode.words import Word
    from asrtool.lang.ngram.model import NgramLm
    from asrtool.lang.tokenizer import Tokenizer
    from asrtool.models.acoustic import AcousticModel
    from asrtool.transcribe.audio import AudioInput
    from asrtool.transcribe.recogniser import Recogniser as Opened
    from asrtool.transcribe.transcript import Transcript


class Recogniser:
    """Recogniser that `load` returns; close it, or use it as a context manager.

    Audio is the path of a file, samples with their rate in Hz as in ``(samples, 8000)``, or a cut of lhotse. Samples
    are an array or a tensor, (S,) or (channels, S), in [-1, 1] or whole numbers of 16 or 32 bits. Raises AsrtoolError
    if audio cannot be read.
    """

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

    def transcribe(self, audio: AudioInput, channels: str | int = "each") -> Transcript:
        """Transcribe a recording; the result has `text`, `words` and `lines`.

        Times are in seconds. `channels`: ``each``, ``mix``, or numbers from 1 on, as ``1,2``.
        """
        from asrtool.transcribe.transcribe import transcribe

        return transcribe(self._opened(), audio, str(channels))

    def transcribe_all(self, audio: Iterable[AudioInput], channels: str | int = "each") -> Iterator[Transcript]:
        """Yield the transcript of each recording in order; short ones share batches."""
        from asrtool.transcribe.transcribe import read_transcript, transcribe_several

        return map(read_transcript, transcribe_several(self._opened(), audio, str(channels)))

    def transcribe_cuts(self, cuts: Iterable[Any]) -> Iterator[Any]:
        """Yield lhotse cuts with recognised supervisions and their word alignments."""
        from asrtool.data.manifests.manifest import with_supervisions
        from asrtool.transcribe.transcript import supervisions

        cuts, audio = itertools.tee(cuts)
        for cut, transcript in zip(cuts, self.transcribe_all(audio), strict=True):
            yield with_supervisions(cut, supervisions(transcript))

    def align(self, audio: AudioInput, text: str, channel: int = 1) -> list[Word]:
        """Align `text` to a channel of a recording; returns words with times in seconds.

        The text is normalised by data.text_rules of the training. Raises AsrtoolError if the text does not fit the
        recording.
        """
        return self.align_transcript(audio, text, channel).words

    def align_transcript(self, audio: AudioInput, text: str, channel: int = 1) -> Transcript:
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
        if not words.strip():
            raise AsrtoolError(f"{text!r}: has no words", "write all that is said in the recording")
        return align(opened, audio, words, channel)

    @property
    def model(self) -> AcousticModel:
        """Acoustic model, a torch.nn.Module: features (N, T, F) and lengths (N,), int64.

        It returns the scores of tokens, (N, T', V), and their lengths.
        """
        return self._opened().acoustic.model

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model: `encode` of a text, and `pieces` by token."""
        return self._opened().tokenizer

    def features(self, audio: AudioInput, channel: int = 1) -> np.ndarray:
        """Return the model's input for a channel, (T, F) float32, normalised."""
        from asrtool.transcribe.transcribe import features_of

        return features_of(self._opened(), audio, channel)

    def close(self) -> None:
        """Remove the folder of an unpacked bundle."""
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


def load(path: str | Path, method: str | None = None, num_jobs: int = 1) -> Recogniser:
    """Open a bundle, its name in $ASRTOOL_MODELS, or the work folder of a run.

    `method`: its search, by default the one with the fewest errors on dev; `num_jobs`: processes that search, 1 is this
    process. Raises AsrtoolError if it is damaged or not finished, and for a method that it does not have.
    """
    return Recogniser(path, method, num_jobs)


def from_bundle(path: str | Path) -> AcousticModel:
    """Return the acoustic model of a bundle or work folder, as `Recogniser.model`.

    No search is loaded. Raises AsrtoolError if it is damaged or not finished.
    """
    from asrtool.bundle.trained import open_trained
    from asrtool.decode.acoustic_model import load_acoustic_model

    with open_trained(Path(path)) as trained:
        return load_acoustic_model(trained.model).model


def load_lm(path: str | Path) -> NgramLm:
    """Open an n-gram language model in ARPA format, such as ``lm/G.arpa`` of a run.

    It has `log_prob` of a sentence and `perplexity` of sentences. Raises AsrtoolError for a malformed file.
    """
    from asrtool.lang.ngram.arpa import read_arpa
    from asrtool.lang.ngram.model import NgramLm

    return NgramLm(read_arpa(Path(path)))


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
