"""Recordings to transcripts, by a recogniser that is open."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.transcribe.audio import PIPE, SUFFIXES, open_sound
from asrtool.transcribe.listen import EACH, Listener, choose_channels
from asrtool.transcribe.recogniser import Piece, Recogniser
from asrtool.transcribe.stitch import Heard, moved, stitch
from asrtool.transcribe.transcript import FORMATS, Line, Transcript


def transcribe(recogniser: Recogniser, path: str | Path, channels: str = EACH) -> Transcript:
    """What is said in a file, or on standard input where `path` is ``-``.

    `channels`: ``each``, ``mix``, or numbers from 1 on, as ``1,2``. Raises AsrtoolError where it cannot be read.
    """
    start_s = time.monotonic()
    with open_sound(path) as sound:
        chosen = choose_channels(sound, channels)
        listener = Listener(sound, recogniser.features, chosen)
        found = recogniser.words(listener.pieces(), sound.duration_s or 0.0)
    names = [listener.speaker(number) for number in range(len(chosen) or 1)]
    lines = [line for number, name in enumerate(names) for line in _lines(found, name, chosen[number] if chosen else 0)]
    lines.sort(key=lambda line: line.begin_s)
    transcript = Transcript(sound.name, listener.heard_s, len(names), tuple(lines))
    seconds = time.monotonic() - start_s
    logging.info(
        "%s: %.1f s of %d channels, %d words, real-time factor %.3f",
        path,
        transcript.duration_s,
        len(names),
        len(transcript.words),
        seconds / max(transcript.duration_s, 0.01),
    )
    return transcript


def transcribe_all(
    recogniser: Recogniser, paths: Sequence[str], channels: str, forms: Sequence[str], out: Path | None
) -> Iterator[str]:
    """Yield the transcript of each file in each of `forms`; where `out` is given, write `out`/NAME.SUFFIX instead.

    A file that cannot be read is skipped, with a line of the log, unless it is the only one. Raises AsrtoolError at
    the end where some were, and before anything is read where two files would be written to one.
    """
    if out:
        _check_names(paths)
    failed = []
    for path in paths:
        try:
            transcript = transcribe(recogniser, path, channels)
        except AsrtoolError as error:
            if len(paths) == 1:
                raise
            logging.error("%s", error)
            failed.append(path)
            continue
        for form in forms:
            suffix, write = FORMATS[form]
            text = write(transcript)
            if out:
                write_text(out / f"{transcript.name}{suffix}", text)
            else:
                yield text
    if failed:
        raise AsrtoolError(
            f"{len(failed)} of {len(paths)} files could not be transcribed, {failed[0]} first", "see above"
        )


def _check_names(paths: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        name = Path(path).stem
        if name in seen:
            raise AsrtoolError(f"{seen[name]} and {path} would both be written to {name}", "rename one, or call twice")
        seen[name] = path


def find_audio(paths: Iterable[str]) -> list[str]:
    """The files among `paths`, and those of audio in folders among them, at any depth; AsrtoolError for none."""
    found: list[str] = []
    for path in paths:
        folder = Path(path)
        if path != PIPE and folder.is_dir():
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
