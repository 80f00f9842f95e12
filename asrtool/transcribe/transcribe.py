"""Recordings to transcripts, by a recogniser that is open."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from asrtool.bundle.trained import TrainedRecogniser
from asrtool.data.features.cmvn import Cmvn
from asrtool.data.workers.processes import num_cores
from asrtool.decode.parallel import Map, process_pool
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.files import check_files, check_writable, make_folder_of, mark_files, write_text
from asrtool.log import plural, progress
from asrtool.transcribe.audio import SUFFIXES, AudioInput, is_pipe, name_of, open_sound, readable
from asrtool.transcribe.overlap import Recognised, join_overlaps, shifted
from asrtool.transcribe.recogniser import GROUP_S, Recogniser, SpeakerNormaliser
from asrtool.transcribe.segments import EACH, Piece, RecordingReader, channel_row, choose_channels
from asrtool.transcribe.transcript import FORMATS, Line, Transcript, named_text

Outcome = Transcript | AsrtoolError
TOGETHER_S = 0.4 * GROUP_S  # twice this and overlaps are normalised as one group, so each recording as if alone


@dataclass(frozen=True)
class Audio:
    """File to transcribe, and its name below --out without suffix."""

    path: str
    name: str

    def target(self, out: Path, form: str) -> Path:
        """Return the output path of one form of its transcript."""
        return out / f"{self.name}{FORMATS[form][0]}"


def transcribe(recogniser: Recogniser, audio: AudioInput, channels: str = EACH) -> Transcript:
    """Transcribe a file, standard input for ``-``, or samples.

    `channels`: ``each``, ``mix``, or numbers from 1 on, as ``1,2``. Raises AsrtoolError if it cannot be read.
    """
    (found,) = transcribe_several(recogniser, [audio], channels)
    return read_transcript(found)


def read_transcript(found: Outcome) -> Transcript:
    """Return a transcript of `transcribe_several`; raises its error."""
    if isinstance(found, AsrtoolError):
        raise found
    return found


def transcribe_several(recogniser: Recogniser, audio: Iterable[AudioInput], channels: str = EACH) -> Iterator[Outcome]:
    """Yield transcripts or errors in order; short recordings share batches."""
    waiting: list[tuple[RecordingReader, Iterable[Piece]] | AsrtoolError] = []
    waiting_s = 0.0
    for number, each in enumerate(audio, 1):
        try:
            with open_sound(each) as sound:
                chosen = choose_channels(sound, channels)
                reader = RecordingReader(sound, recogniser.frames, chosen, f"{number}:")
                if (sound.duration_s or math.inf) * (len(chosen) or 1) > TOGETHER_S:
                    yield from _outcomes(recogniser, waiting)
                    waiting, waiting_s = [], 0.0
                    yield from _outcomes(recogniser, [(reader, reader.pieces())])
                    continue
                pieces = list(reader.pieces())
                waiting.append((reader, pieces))
                waiting_s += sum(piece.duration_s for piece in pieces)
        except AsrtoolError as error:
            waiting.append(error)
        if waiting_s >= TOGETHER_S:
            yield from _outcomes(recogniser, waiting)
            waiting, waiting_s = [], 0.0
    yield from _outcomes(recogniser, waiting)


def _outcomes(
    recogniser: Recogniser, recordings: Sequence[tuple[RecordingReader, Iterable[Piece]] | AsrtoolError]
) -> Iterator[Outcome]:
    """Yield the transcript, or the error, of each recording in order."""
    read = [each for each in recordings if not isinstance(each, AsrtoolError)]
    try:
        found: Iterator[Outcome] = iter([*_transcripts(recogniser, read)])
    except AsrtoolError as error:
        found = iter([error] * len(read))
    for each in recordings:
        yield each if isinstance(each, AsrtoolError) else next(found)


def _transcripts(
    recogniser: Recogniser, recordings: Sequence[tuple[RecordingReader, Iterable[Piece]]]
) -> Iterator[Transcript]:
    """Yield the transcript of each recording; all of their pieces are searched first."""
    if not recordings:
        return
    durations = [reader.sound.duration_s for reader, _ in recordings]
    total_s = None if None in durations else sum(duration_s or 0.0 for duration_s in durations)
    found = recogniser.words(itertools.chain.from_iterable(pieces for _, pieces in recordings), total_s)
    for reader, _ in recordings:
        channels = reader.channels or (0,)
        names = [reader.speaker(number) for number in range(len(channels))]
        lines = [line for name, channel in zip(names, channels, strict=True) for line in _lines(found, name, channel)]
        lines.sort(key=lambda line: line.begin_s)
        sound = reader.sound
        yield Transcript(
            sound.name, reader.audio_s, tuple(channel + 1 for channel in channels), tuple(lines), sound.path
        )


def transcribe_all(
    recogniser: Recogniser,
    audio: Sequence[Audio],
    channels: str,
    forms: Sequence[str],
    out: Path | None,
    at_once: int = 1,
) -> Iterator[str]:
    """Yield the transcripts of files in each of `forms`; or write them to `out`.

    Lines of text begin with the name of their file if there are several.

    `at_once` files are transcribed side by side, each in a forked process. A file that cannot be read is skipped and
    logged, unless it is the only one. Raises AsrtoolError at the end if some were skipped.
    """
    paths = [each.path for each in audio]
    nums = Counter(Path(each.name).name for each in audio)
    failed = []
    with _transcribing(recogniser, channels, min(at_once, len(paths))) as transcribe_each:
        results = transcribe_each(paths, len(paths))
        if len(paths) > 1:
            results = progress(results, "transcribe", len(paths), "file")
        for each, found in zip(audio, results, strict=True):
            if isinstance(found, AsrtoolError):
                if len(paths) == 1:
                    raise found
                logging.error("%s", found)
                failed.append(each.path)
                continue
            counts = plural(len(found.channels), "channel"), plural(len(found.words), "word")
            logging.info("%s: %.1f s of %s, %s", readable(each.path), found.duration_s, *counts)
            if nums[Path(each.name).name] > 1:  # x.wav in two folders, which a ctm must distinguish
                found = replace(found, name=readable(each.name))
            for form in forms:
                text = FORMATS[form][1](found)
                if out:
                    write_text(each.target(out, form), text)
                    mark_files(each.target(out, form))
                else:
                    yield named_text(found) if form == "text" and len(paths) > 1 else text
    if failed:
        raise AsrtoolError(
            f"{len(failed)} of {len(paths)} files could not be transcribed, {readable(failed[0])} first", "see above"
        )


@contextlib.contextmanager
def _transcribing(recogniser: Recogniser, channels: str, at_once: int) -> Iterator[Map]:
    """Yield a map from paths to transcripts or errors, in order."""
    if at_once == 1:
        yield lambda paths, total: transcribe_several(recogniser, paths, channels)
        return

    def in_process(paths: list[str]) -> list[Outcome]:
        logging.getLogger().setLevel(logging.WARNING)  # else the progress of all processes is logged in random order
        return [*transcribe_several(recogniser, paths, channels)]

    with process_pool(in_process, at_once) as pool:
        yield pool


def files_at_once(trained: TrainedRecogniser, audio: Sequence[Audio], num_jobs: int) -> int:
    """Return the number of files that are transcribed side by side.

    Several files take one of `num_jobs` processes each (one a core if 0). On a GPU, or if one is a pipe, files go one
    after the other, and processes search side by side.
    """
    if any(is_pipe(each.path) for each in audio) or trained.uses_gpu:
        return 1
    return min(num_jobs or num_cores(), len(audio))


def find_audio(paths: Iterable[str]) -> list[Audio]:
    """Find audio files among `paths` and in folders among them; AsrtoolError for none.

    Names include the sub-folders of the given folder.
    """
    found: list[Audio] = []
    for path in paths:
        if is_pipe(path) or not os.path.isdir(path):
            found.append(Audio(path, name_of(path)))
            continue
        inside = sorted(each for each in Path(path).rglob("*") if each.suffix.lower() in SUFFIXES)
        if not inside:
            raise AsrtoolError(f"{path}: no audio in it, expected files {', '.join(SUFFIXES)}", "name another folder")
        found += [Audio(str(each), str(each.relative_to(path).with_suffix(""))) for each in inside]
    nums = Counter(each.name for each in found)  # names of several files keep their suffixes
    return [replace(each, name=each.name + Path(each.path).suffix) if nums[each.name] > 1 else each for each in found]


def check_out(out: Path, audio: Sequence[Audio], forms: Sequence[str]) -> None:
    """Make the folders that `transcribe_all` writes to.

    Raises AsrtoolError if two transcripts would go to one file, if a file not written by asrtool would be replaced,
    such as a manual transcript, and if none can be written.
    """
    seen: dict[str, str] = {}
    for each in audio:
        if each.name in seen:
            what = f"{readable(seen[each.name])} and {readable(each.path)} would both be written to {each.name}"
            raise AsrtoolError(what, "name it once, or name the folder above both, whose sub-folders are kept")
        seen[each.name] = each.path
    targets = [each.target(out, form) for each in audio for form in forms]
    check_files(*targets)
    for target in targets:
        make_folder_of(target)
    check_writable(out / "transcripts")


def _lines(found: Iterable[tuple[Piece, tuple[Word, ...]]], speaker: str, channel: int) -> list[Line]:
    pieces = [
        Recognised(piece.begin_s, piece.end_s, shifted(words, piece.begin_s), piece.overlap_s)
        for piece, words in found
        if piece.speaker == speaker
    ]
    return [Line(channel + 1, each.begin_s, each.end_s, each.words) for each in join_overlaps(pieces)]


def whole_channel(recogniser: Recogniser, audio: AudioInput, channel: int) -> Piece:
    """Read a channel, from 1 on, as one piece, so memory grows with its length."""
    with open_sound(audio) as sound:
        row = channel_row(sound, channel)
        samples_S = np.concatenate([np.zeros(0, np.float32), *(block_CS[row] for block_CS in sound.blocks)])
        feats_TF = recogniser.frames(samples_S, sound.sampling_rate_hz)
    return Piece(sound.name, 0.0, len(samples_S) / sound.sampling_rate_hz, 0.0, feats_TF)


def features_of(recogniser: Recogniser, audio: AudioInput, channel: int) -> np.ndarray:
    """Return frames (T, F) of a channel, from 1 on, normalised as its only speaker."""
    piece = whole_channel(recogniser, audio, channel)
    normaliser = SpeakerNormaliser(Cmvn(recogniser.origin.cmvn_folder, recogniser.features.cmvn))
    normaliser.update([piece])
    return normaliser.cmvn.normalise(piece.speaker, piece.feats_TF)


def align(recogniser: Recogniser, audio: AudioInput, text: str, channel: int) -> Transcript:
    """Align `text` to a channel, from 1 on; returns one line with times of words.

    The channel is computed at once, so memory grows with its length. Raises AsrtoolError if the file cannot be read,
    a word has no tokens, or the recording is too short for the text.
    """
    from asrtool.decode.align.align import DOUBTFUL, align_utterance, is_doubtful, tokenize

    piece = whole_channel(recogniser, audio, channel)
    (scored,) = recogniser.scored([piece])
    acoustic, item = recogniser.acoustic, (scored.scores_TV, tokenize(text, recogniser.tokenizer))
    found = align_utterance(acoustic.topology, recogniser.tokenizer.pieces, acoustic.frame_s, item)
    name = readable(audio) if isinstance(audio, str | Path) else piece.speaker
    if isinstance(found, str):
        raise AsrtoolError(f"{name}: cannot be aligned: {found}", "check that text and recording belong together")
    words = tuple(found.words)
    if is_doubtful(words):
        what = "%s: most words have a confidence below %g: check that text and recording belong together"
        logging.warning(what, name, DOUBTFUL)
    line = Line(channel, words[0].begin_s, words[-1].end_s, words)
    return Transcript(piece.speaker, piece.end_s, (channel,), (line,))
