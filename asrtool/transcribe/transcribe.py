"""Recordings to transcripts, by a recogniser that is open."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.decode.parallel import Map, num_cores, process_pool
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.models.acoustic import choose_device
from asrtool.transcribe.audio import SUFFIXES, is_pipe, name_of, open_sound, readable
from asrtool.transcribe.listen import EACH, Listener, choose_channels
from asrtool.transcribe.recogniser import Piece, Recogniser
from asrtool.transcribe.stitch import Heard, moved, stitch
from asrtool.transcribe.transcript import FORMATS, Line, Transcript

Tried = tuple[Transcript | AsrtoolError, float]


def transcribe(recogniser: Recogniser, path: str | Path, channels: str = EACH) -> Transcript:
    """What is said in a file, or on standard input where `path` is ``-``.

    `channels`: ``each``, ``mix``, or numbers from 1 on, as ``1,2``. Raises AsrtoolError where it cannot be read.
    """
    with open_sound(path) as sound:
        chosen = choose_channels(sound, channels)
        listener = Listener(sound, recogniser.features, chosen)
        found = recogniser.words(listener.pieces(), sound.duration_s or 0.0)
    names = [listener.speaker(number) for number in range(len(chosen) or 1)]
    lines = [line for number, name in enumerate(names) for line in _lines(found, name, chosen[number] if chosen else 0)]
    lines.sort(key=lambda line: line.begin_s)
    return Transcript(sound.name, listener.heard_s, len(names), tuple(lines))


def transcribe_all(
    recogniser: Recogniser,
    paths: Sequence[str],
    channels: str,
    forms: Sequence[str],
    out: Path | None,
    at_once: int = 1,
) -> Iterator[str]:
    """Yield the transcript of each file in each of `forms`; where `out` is given, write `out`/NAME.SUFFIX instead.

    So many files `at_once`, each in a forked process, in which the recogniser searches as well. A file that cannot be
    read is skipped, with a line of the log, unless it is the only one. Raises AsrtoolError at the end where some were,
    and before anything is read where two files would be written to one.
    """
    if out:
        _check_names(paths)
    failed = []
    with _transcribing(recogniser, channels, min(at_once, len(paths))) as transcribe_each:
        for path, (found, seconds) in zip(paths, transcribe_each(paths, len(paths)), strict=True):
            if isinstance(found, AsrtoolError):
                if len(paths) == 1:
                    raise found
                logging.error("%s", found)
                failed.append(path)
                continue
            _log(path, found, seconds)
            for form in forms:
                suffix, write = FORMATS[form]
                text = write(found)
                if out:
                    write_text(out / f"{name_of(path)}{suffix}", text)
                else:
                    yield text
    if failed:
        raise AsrtoolError(
            f"{len(failed)} of {len(paths)} files could not be transcribed, {readable(failed[0])} first", "see above"
        )


@contextlib.contextmanager
def _transcribing(recogniser: Recogniser, channels: str, at_once: int) -> Iterator[Map]:
    """Yield a map from paths to what `_try` returns, in order."""
    if at_once == 1:
        yield lambda paths, total: (_try(recogniser, channels, path) for path in paths)
        return

    def in_process(paths: list[str]) -> list[Tried]:
        logging.getLogger().setLevel(logging.WARNING)  # how far each process has come would be lines in no order
        return [_try(recogniser, channels, path) for path in paths]

    with process_pool(in_process, at_once) as pool:
        yield pool


def _try(recogniser: Recogniser, channels: str, path: str) -> Tried:
    """The transcript, or why there is none, and the seconds that it took."""
    start_s = time.monotonic()
    try:
        return transcribe(recogniser, path, channels), time.monotonic() - start_s
    except AsrtoolError as error:
        return error, time.monotonic() - start_s


def _log(path: str, transcript: Transcript, seconds: float) -> None:
    logging.info(
        "%s: %.1f s of %d channels, %d words, real-time factor %.3f",
        readable(path),
        transcript.duration_s,
        transcript.num_channels,
        len(transcript.words),
        seconds / max(transcript.duration_s, 0.01),
    )


def _check_names(paths: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        name = name_of(path)
        if name in seen:
            raise AsrtoolError(f"{seen[name]} and {path} would both be written to {name}", "rename one, or call twice")
        seen[name] = path


def files_at_once(paths: Sequence[str], num_jobs: int) -> int:
    """Of several files one in each of `num_jobs` processes, one a core where that is 0; of one alone, only itself.

    On a GPU, and where one comes through a pipe, they go one after the other, and processes search side by side.
    """
    if any(map(is_pipe, paths)) or choose_device().type != "cpu":
        return 1
    return min(num_jobs or num_cores(), len(paths))


def find_audio(paths: Iterable[str]) -> list[str]:
    """The files among `paths`, and those of audio in folders among them, at any depth; AsrtoolError for none."""
    found: list[str] = []
    for path in paths:
        folder = Path(path)
        if not is_pipe(path) and folder.is_dir():
            inside = sorted(str(each) for each in folder.rglob("*") if each.suffix.lower() in SUFFIXES)
            if not inside:
                raise AsrtoolError(
                    f"{path}: no audio in it, expected files {', '.join(SUFFIXES)}", "name another folder"
                )
            found += inside
        else:
            found.append(path)
    return found


def _lines(found: Iterable[tuple[Piece, tuple[Word, ...]]], speaker: str, channel: int) -> list[Line]:
    pieces = [
        Heard(piece.begin_s, piece.begin_s + piece.duration_s, moved(words, piece.begin_s), piece.overlap_s)
        for piece, words in found
        if piece.speaker == speaker
    ]
    return [Line(channel + 1, heard.begin_s, heard.end_s, heard.words) for heard in stitch(pieces)]
