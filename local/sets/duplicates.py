"""Remove from training what a scored set has, also at another speed or codec."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from asrtool.data.duplicates.same_audio import SameAudio, find_same_audio
from asrtool.data.duplicates.segments import Said
from asrtool.data.manifests.manifest import DROPPED, Drop, read_drops, read_report, read_sorted, write_sorted
from asrtool.data.manifests.sets import LONG, Sets, read_sets
from asrtool.files import write_text
from asrtool.local.sets import repeated_text
from asrtool.settings.data import Data, Features

FOUND = "same_audio.tsv"
HEADING = "id\tset\tother id\tother set\tlikeness\tspeed\ttext\tother text\n"


def check_same_audio(manifests: Path, data: Data, features: Features) -> None:
    """Write `manifests`/same_audio.tsv, and drop duplicates by data.same_audio.

    Training sets are `manifests`/train and `manifests`/long, if there is one. `manifests`/same_text.tsv lists equal
    texts. Raises AsrtoolError for a missing or corrupt manifest, and if nothing is left.
    """
    for name in (FOUND, repeated_text.FOUND):
        (manifests / name).unlink(missing_ok=True)
    if data.same_audio == "ignore":
        return
    sets = read_sets(manifests)
    repeated_text.report_same_text(manifests, sets.scored, sets.train)
    trained = [name for name in (sets.train, LONG) if name == sets.train or (manifests / name).is_dir()]
    found = find_same_audio(manifests, sets.scored, trained, features)
    write_text(manifests / FOUND, HEADING + "".join(map(_line, found)))
    for (one, other), num in sorted(Counter((pair.one.of_set, pair.other.of_set) for pair in found).items()):
        logging.warning("%d pairs of utterances of %s and %s are one sound: %s", num, one, other, manifests / FOUND)
    leaked = {p.one: p for p in found if p.one.of_set in trained and p.other.of_set not in trained}
    if data.same_audio == "drop" and leaked:
        _leave_out(manifests, sets, list(leaked.values()))


def _line(pair: SameAudio) -> str:
    names = (pair.one.id, pair.one.of_set, pair.other.id, pair.other.of_set)
    return "\t".join((*names, f"{pair.likeness:.2f}", f"{pair.speed:.3f}", pair.one.text, pair.other.text)) + "\n"


def _leave_out(manifests: Path, sets: Sets, leaked: Sequence[SameAudio]) -> None:
    """Rewrite the training sets without the duplicates.

    The text of long utterances is in the training set's.
    """
    drops = [Drop(p.one.id, f"same audio in {p.other.of_set}", p.other.id) for p in leaked]
    gone = [p.one for p in leaked]
    _write_without(manifests / sets.train, gone, drops)
    long = [said for said in gone if said.of_set == LONG]
    if long and read_report(manifests / LONG)["num_utterances"] == len(long):
        shutil.rmtree(manifests / LONG)
    elif long:
        _write_without(manifests / LONG, long, [])


def _write_without(folder: Path, gone: Sequence[Said], drops: Sequence[Drop]) -> None:
    """Rewrite manifests and text of a folder without `gone`; list `drops`."""
    recordings, lines = read_sorted(folder)
    ids = {said.id for said in gone if said.of_set == folder.name}
    kept = ((entry, line) for entry, line in lines if entry["id"] not in ids)
    texts = {}
    for path in sorted(folder.glob("sentences*.txt")):
        corpus = path.name.removeprefix("sentences").removesuffix("txt").strip(".")
        said = [f"{one.text}\n".encode() for one in gone if one.text and corpus in ("", one.corpus)]
        if corpus and next(_lines_without(path, said), None) is None:
            path.unlink()  # no text is as no file: a language model weighs those that are there
        else:
            texts[path.name] = _lines_without(path, said)
    write_sorted(folder, recordings, kept, [*read_drops(folder / DROPPED), *drops], 1.0, texts)


def _lines_without(path: Path, gone: Collection[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, leaving out one for each of `gone`."""
    num_gone = Counter(gone)
    with path.open("rb") as file:
        for line in file:
            if num_gone[line] > 0:
                num_gone[line] -= 1
            else:
                yield line
