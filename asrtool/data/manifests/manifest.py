"""Manifest folders of a corpus, checked and counted, with a list of drops.

A folder holds `recordings.jsonl.gz` and `supervisions.jsonl.gz` (lhotse's), `dropped.tsv` (id, reason, detail) and,
written last, `report.json`. A folder without `report.json` is half-written and is never read.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import itertools
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from asrtool.data.manifests.validator import Entry, ManifestCounts
from asrtool.errors import AsrtoolError, printable
from asrtool.files import check_files, check_writable, mark_files, write_beside, write_text
from asrtool.url import Part, as_url

if TYPE_CHECKING:
    from lhotse import Recording, SupervisionSegment

RECORDINGS = "recordings.jsonl.gz"
SUPERVISIONS = "supervisions.jsonl.gz"
DROPPED = "dropped.tsv"
REPORT = "report.json"
STM, GLM = "ref.stm", "ref.glm"  # reference and mapping rules of a test set
HEADING = "id\treason\tdetail"  # heading of a list of drops

# Faults of the data, which data.bad_fraction limits; other drops are on purpose.
BAD_RECORDING = frozenset({"unusable audio", "unusable transcript", "empty transcript", "no transcript", "no audio"})
BAD_UTTERANCE = frozenset(
    {
        "broken line",
        "bad times",
        "unknown mark-up",
        "unknown characters",
        "no text",
        "no segment",
        "no channel",
        "lost recording",
    }
)

Item = TypeVar("Item")
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Drop:
    """A recording or an utterance that was left out."""

    id: str
    reason: str
    detail: str = ""


def write_manifests(
    out: Path,
    recordings: Iterable[Recording],
    supervisions: Iterable[SupervisionSegment],
    drops: Sequence[Drop],
    bad_fraction: float,
    texts: Mapping[str, str],
) -> None:
    """Sort objects and write them as `write_sorted`, for a corpus that fits in memory."""
    segments = sorted(supervisions, key=lambda s: (s.recording_id, s.start, s.channel, s.id))
    lines = (format_line(s.to_dict()) for s in segments)
    write_sorted(out, [r.to_dict() for r in recordings], lines, drops, bad_fraction, texts)


def write_sorted(
    out: Path,
    recordings: Iterable[Entry],
    lines: Iterable[tuple[Entry, str]],
    drops: Sequence[Drop],
    bad_fraction: float,
    texts: Mapping[str, str | Iterable[bytes | memoryview]],
) -> None:
    """Check both manifests and write the folder `out` with further files `texts`.

    `lines` are utterances with their lines, sorted by recording, start, channel and id; none is kept. `drops` and
    `texts` may grow while they are read. Recordings without a supervision are left out. Raises AsrtoolError if
    nothing is left, more than `bad_fraction` of recordings or utterances have a fault, a manifest is inconsistent, or
    the disk is full; an earlier folder then stays.
    """
    counts = ManifestCounts(recordings, out)
    write_counted(out, counts, (line for entry, line in lines if counts.add(entry)), drops, bad_fraction, texts)


def write_counted(
    out: Path,
    counts: ManifestCounts,
    lines: Iterable[str],
    drops: Sequence[Drop],
    bad_fraction: float,
    texts: Mapping[str, str | Iterable[bytes | memoryview]],
) -> None:
    """Write checked lines, which `counts` has counted after the last one is read."""
    with _refused(out), write_beside(out / SUPERVISIONS) as temporary:
        _write_lines(temporary, lines)
        used = counts.used()
        check_fraction(out, drops, len(used), counts.num_utterances, bad_fraction)
        counts.check_unique(lambda: (entry["id"] for entry in read_lines(temporary, Entry)))
        mark_files(*check_place(out), are_written=False)
        (out / REPORT).unlink(missing_ok=True)
    with write_beside(out / RECORDINGS) as temporary:
        _write_lines(temporary, (format_line(entry)[1] for entry in used))
    for name, text in {DROPPED: format_drops(drops), **texts}.items():
        with write_beside(out / name) as temporary, temporary.open("wb") as file:
            file.writelines([text.encode("utf-8")] if isinstance(text, str) else text)
    dropped = collections.Counter(drop.reason for drop in drops)
    report = {**counts.report(), "dropped": dict(sorted(dropped.items()))}
    write_text(out / REPORT, json.dumps(report, indent=1) + "\n")
    rejected(out).unlink(missing_ok=True)
    logging.info("%s: %s", Path(*out.parts[-2:]), _summary(report))


def with_supervisions(cut: Any, supervisions: Iterable[Mapping[str, Any]]) -> Any:
    """Return a lhotse cut with these supervisions, as stored, in place of its own.

    Their times count from its start, their channels are rows of its audio. Raises AsrtoolError unless it is a cut of
    one recording.
    """
    from lhotse import SupervisionSegment
    from lhotse.cut.data import DataCut
    from lhotse.utils import fastcopy

    if not isinstance(cut, DataCut):
        what = f"{getattr(cut, 'id', 'cuts')}: is a {type(cut).__name__}, expected a cut of one recording"
        raise AsrtoolError(what, "make one of it, as by recording.to_cut() or cuts.save_audios(folder)")
    channels = [cut.channel] if isinstance(cut.channel, int) else cut.channel
    own = {"recording_id": cut.recording_id}
    made = [{**each, **own, "channel": channels[each["channel"]]} for each in supervisions]
    return fastcopy(cut, supervisions=[SupervisionSegment.from_dict(each) for each in made])


def check_apart(source: Path, out: Path) -> None:
    """Raise AsrtoolError if `out` is in the data `source`, and would be read as data.

    A file may have a folder for its manifests beside it.
    """
    if as_url(source):
        return
    data, real = source.resolve(), out.resolve()
    if real == data.parent if data.is_file() else real.is_relative_to(data):
        raise AsrtoolError(
            f"{out}: {'is the folder of' if data.is_file() else 'lies in'} the data {source}, expected the two apart",
            "choose another OUT",
        )


def check_place(out: Path) -> list[Path]:
    """Return the files of the folder `out`.

    Raises AsrtoolError if one is not asrtool's, or the folder cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise AsrtoolError(f"{out}: is no folder, expected one to write", "name another place")
    files = [out / name for name in (RECORDINGS, SUPERVISIONS, DROPPED, REPORT, STM, GLM)]
    check_files(*files)
    check_writable(out / REPORT)
    check_rejected_place(out)
    return files


def check_rejected_place(out: Path) -> None:
    """Raise AsrtoolError if another file has the place of the list of drops."""
    path = rejected(out)
    if path.exists() and not path.read_bytes().startswith(HEADING.encode()):
        what = f"{path}: exists, is no list of rejected utterances by asrtool, and could be replaced by one"
        raise AsrtoolError(what, "choose another OUT, or move that file")


def write_rejected(out: Path, drops: Iterable[Drop]) -> Path:
    """Write the list of drops beside `out`; return its path.

    Raises as `check_rejected_place`.
    """
    check_rejected_place(out)
    write_text(rejected(out), format_drops(drops))
    return rejected(out)


@contextlib.contextmanager
def _refused(out: Path) -> Iterator[None]:
    """Remove a new folder `out` if nothing could be written."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # it holds something, or was not made
            out.rmdir()
        raise


def format_line(entry: Entry) -> tuple[Entry, str]:
    """Return `entry` with its line in a manifest."""
    return entry, _ENCODER.encode(entry) + "\n"


def check_fraction(out: Path, drops: Sequence[Drop], num_recordings: int, num_utterances: int, limit: float) -> None:
    """Raise AsrtoolError if nothing is left, or as `check_faults` for `limit`.

    The numbers count remaining ones. The list of drops is then written beside `out`.
    """
    units = (("recordings", BAD_RECORDING, num_recordings), ("utterances", BAD_UTTERANCE, num_utterances))
    for unit, reasons, num_good in units:
        bad = [drop for drop in drops if drop.reason in reasons]
        check_faults(out, drops, bad, num_good, unit, "data.bad_fraction", limit)
    if not num_utterances:
        raise AsrtoolError(f"{out}: not one usable utterance", f"see the reasons in {write_rejected(out, drops)}")


def check_faults(
    out: Path, drops: Sequence[Drop], bad: Sequence[Drop], num_good: int, unit: str, setting: str, limit: float
) -> None:
    """Raise AsrtoolError if the ids of `bad` exceed the fraction `limit`, or are all.

    A limit above 0 allows one: of less than a hundred, one is more than 1 %. On an error `drops` are written beside
    `out`, otherwise the log names the first fault.
    """
    num = len({drop.id for drop in bad})
    allowed = max(int(limit * (num + num_good)), int(limit > 0))
    found = f"{out}: {num} of {num + num_good} {unit} cannot be used"
    first = f"the first is {bad[0].id}: {bad[0].reason}: {bad[0].detail}" if bad else ""
    if bad and not num_good:
        raise AsrtoolError(f"{found}; {first}", f"fix what {write_rejected(out, drops)} lists")
    if num > allowed:
        raise AsrtoolError(
            f"{found}, and {setting} = {limit:g} allows {allowed}; {first}",
            f"fix what {write_rejected(out, drops)} lists, or raise {setting}",
        )
    if bad:
        logging.warning("%s; %s", found, first)


def rejected(out: Path) -> Path:
    """Return the path of the list of drops if `out` was not written."""
    return out.with_name(f"{out.name}.{DROPPED}")


def format_drops(drops: Iterable[Drop]) -> str:
    """Format dropped.tsv: a heading, then a line a drop without tabs and line feeds."""
    rows = [HEADING] + ["\t".join((d.id, d.reason, " ".join(d.detail.split()))) for d in drops]
    return printable("\n".join(rows)) + "\n"


def move_paths(directory: Path, before: Path, after: Path) -> None:
    """Rename file paths below `before`, which will move, to below `after`."""
    old, new = (_ENCODER.encode(f"{os.path.abspath(path)}{os.sep}")[:-1] for path in (before, after))  # from a quote on
    lines = [line.replace(old, new) for line in _read(directory / RECORDINGS, str)]
    with write_beside(directory / RECORDINGS) as temporary:
        _write_lines(temporary, lines)
    drops = (directory / DROPPED).read_text(encoding="utf-8")
    write_text(directory / DROPPED, drops.replace(f"{before}{os.sep}", f"{after}{os.sep}"))


def read_drops(path: Path) -> list[Drop]:
    """Read the drops of a dropped.tsv."""
    return [Drop(*line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def read_sorted(directory: Path) -> tuple[list[Entry], Iterator[tuple[Entry, str]]]:
    """Return the recordings of a folder, and an iterator of utterances with lines.

    Raises AsrtoolError naming the file and line of a fault, of utterances while they are read.
    """
    recordings = _read_recordings(directory)
    counts = ManifestCounts(recordings, directory)

    def utterances() -> Iterator[tuple[Entry, str]]:
        for entries, lines in _batches(directory, counts.add):
            yield from zip(entries, lines, strict=True)
        counts.check_unique(lambda: (entry["id"] for entry in read_lines(directory / SUPERVISIONS, Entry)))

    return recordings, utterances()


def read_batches(directory: Path) -> tuple[list[Entry], Iterator[list[Entry]]]:
    """Read as `read_sorted` without lines, in batches; the caller checks ids."""
    recordings = _read_recordings(directory)
    return recordings, (entries for entries, _ in _batches(directory, ManifestCounts(recordings, directory).check))


def _read_recordings(directory: Path) -> list[Entry]:
    expected = read_report(directory).get("num_recordings")
    recordings = list(read_lines(directory / RECORDINGS, Entry))
    _check_number(directory / RECORDINGS, len(recordings), expected)
    return recordings


def _batches(directory: Path, check: Callable[[Entry], object]) -> Iterator[tuple[list[Entry], list[str]]]:
    """Yield utterances with their lines; to decode many at once is twice as fast."""
    path, number, lines = directory / SUPERVISIONS, 0, read_again(directory)
    while some := list(itertools.islice(lines, 100)):
        try:
            entries = _DECODER.decode(f"[{','.join(some)}]")
            if len(entries) != len(some):
                raise ValueError(f"{len(entries)} entries in {len(some)} lines")
            for entry in entries:
                check(entry)
        except (ValueError, KeyError, TypeError):
            collections.deque(read_lines(path, check), maxlen=0)  # the error names the line
            raise
        yield entries, some
        number += len(entries)
    _check_number(path, number, read_report(directory).get("num_utterances"))


def read_again(directory: Path) -> Iterator[str]:
    """Return the lines of a folder's utterances, which were checked before."""
    return _read(directory / SUPERVISIONS, str)


def _check_number(path: Path, found: int, expected: int | None) -> None:
    if found != expected:
        raise AsrtoolError(f"{path}: {found} lines, expected {expected} as in {REPORT}", "make the manifest again")


def read_lines(path: Path, parse: Callable[[dict[str, Any]], Item]) -> Iterator[Item]:
    """Yield the items of a manifest (.jsonl or .jsonl.gz).

    Raises AsrtoolError naming the file and line of a fault.
    """
    return _read(path, lambda line: parse(parse_line(line)))


def parse_line(line: str) -> Entry:
    """Return the entry of a line; raises ValueError for anything else on it."""
    entry, end = _DECODER.raw_decode(line)  # json.loads takes half as long again
    if not isinstance(entry, dict):
        raise ValueError(f"found {line.strip()[:20]!r}, expected an entry")
    if line[end:].strip():
        raise ValueError(f"found {line[end:].strip()[:20]!r} after an entry")
    return entry


def _read(path: Path, parse: Callable[[str], Item]) -> Iterator[Item]:
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                yield parse(line)
                number += 1
    except FileNotFoundError as error:
        raise AsrtoolError(f"{path}: missing", "make the manifest again") from error
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise AsrtoolError(
            f"{path}: corrupt after line {number}: {type(error).__name__}: {error}", "make the manifest again"
        ) from error


def read_report(directory: Path) -> dict[str, Any]:
    """Read report.json, which proves that the folder is complete.

    Raises AsrtoolError if it is missing (the folder is missing or half-written) or unreadable.
    """
    path = directory / REPORT
    if not path.is_file():
        state = "half-written, it has no report.json" if directory.is_dir() else "no such folder of manifests"
        raise AsrtoolError(f"{directory}: {state}", "run the prepare stage first")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(report, dict):
            raise ValueError(f"found {str(report)[:20]!r}, expected an entry")
    except ValueError as error:
        raise AsrtoolError(f"{path}: broken JSON: {error}", "make the manifest again") from error
    return report


def _summary(report: Mapping[str, Any]) -> str:
    dropped = ", ".join(f"{num} {reason}" for reason, num in report["dropped"].items()) or "nothing"
    counts = {unit: report[f"num_{unit}s"] for unit in ("recording", "utterance", "speaker")}
    found = ", ".join(f"{num} {unit}{'s' * (num != 1)}" for unit, num in counts.items())
    return f"{found}, {report['speech_hours']:.2f} h of speech; dropped: {dropped}"


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    # No file name and no time in the header: the same manifest is the same bytes. Level 3 takes half the time of 6, and
    # 9 % more room.
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=3, fileobj=raw, mtime=0) as file,
    ):
        lines = iter(lines)
        while some := "".join(itertools.islice(lines, 500)):
            file.write(some.encode("utf-8"))


def audio_files(recording: Entry) -> list[str]:
    """Return the files of a recording that are on disk; the whole file of a part."""
    found = [(source["type"], source["source"]) for source in recording["sources"]]
    paths = [name if kind == "file" else Part.parse(name).path for kind, name in found if kind in ("file", "url")]
    return [str(path) for path in paths if path]


def audio_files_below(folder: Path) -> Iterator[str]:
    """Yield the audio files of all manifests at or below `folder`.

    Raises AsrtoolError for a corrupt manifest.
    """
    for manifest in sorted(folder.rglob(RECORDINGS)):
        for paths in read_lines(manifest, audio_files):
            yield from paths
