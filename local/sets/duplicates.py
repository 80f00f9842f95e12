"""Speech and long texts that a scored set shares with training.

The same audio, also at another speed or codec, is removed from training; the same words, such as prompts, are listed.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from asrtool.data.duplicates.same_audio import SameAudio, UtteranceText, find_same_audio
from asrtool.data.manifests.manifest import (
    DROPPED,
    Drop,
    read_batches,
    read_drops,
    read_report,
    read_sorted,
    write_sorted,
)
from asrtool.data.manifests.sets import LONG, Sets, read_sets
from asrtool.files import write_text
from asrtool.settings.data import Data, Features

SAME_TEXT = "same_text.tsv"
TEXT_HEADING = "id\tset\ttext\ttimes in train\n"
MIN_WORDS = 8  # shorter utterances occur in any conversation


def report_same_text(manifests: Path, scored: Sequence[str], train: str) -> None:
    """Write `manifests`/same_text.tsv: long scored utterances said in training.

    Only utterances of MIN_WORDS count. The log counts them; nothing is left out. Raises AsrtoolError for a missing
    or corrupt manifest.
    """
    texts = [(name, id_, text) for name in scored for id_, text in _texts(manifests / name)]
    long = [item for item in texts if len(item[2].split()) >= MIN_WORDS]
    times = dict.fromkeys((text for _, _, text in long), 0)
    for _, text in _texts(manifests / train):
        if text in times:
            times[text] += 1
    found = [item for item in long if times[item[2]]]
    lines = (f"{id_}\t{name}\t{text}\t{times[text]}\n" for name, id_, text in found)
    write_text(manifests / SAME_TEXT, TEXT_HEADING + "".join(lines))
    num_long = Counter(name for name, _, _ in long)
    for name, num in Counter(name for name, _, _ in found).items():
        logging.warning(
            "%d of %d utterances of %s with %d words or more are said in training, too: %s",
            num, num_long[name], name, MIN_WORDS, manifests / SAME_TEXT,
        )  # fmt: skip


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    _, batches = read_batches(folder)
    yield from ((entry["id"], entry.get("text") or "") for entries in batches for entry in entries)


SAME_AUDIO = "same_audio.tsv"
AUDIO_HEADING = "id\tset\tother id\tother set\tlikeness\tspeed\ttext\tother text\n"


def check_same_audio(manifests: Path, data: Data, features: Features) -> None:
    """Write `manifests`/same_audio.tsv, and drop duplicates by data.same_audio.

    Training sets are `manifests`/train and `manifests`/long, if there is one. `manifests`/same_text.tsv lists equal
    texts. Raises AsrtoolError for a missing or corrupt manifest, and if nothing is left.
    """
    for name in (SAME_AUDIO, SAME_TEXT):
        (manifests / name).unlink(missing_ok=True)
    if data.same_audio == "ignore":
        return
    sets = read_sets(manifests)
    report_same_text(manifests, sets.scored, sets.train)
    trained = [name for name in (sets.train, LONG) if name == sets.train or (manifests / name).is_dir()]
    found = find_same_audio(manifests, sets.scored, trained, features)
    listed = manifests / SAME_AUDIO
    write_text(listed, AUDIO_HEADING + "".join(map(_line, found)))
    leaked = {p.one: p for p in found if p.one.set_name in trained and p.other.set_name not in trained}
    drops = data.same_audio == "drop"
    advice = f"; {'they are left' if drops else '--set data.same_audio=drop leaves them'} out of training"
    for (one, other), pairs in itertools.groupby(sorted(found, key=_sets_of), _sets_of):
        same = list(pairs)
        logging.warning(
            "%d of %d utterances of %s are in %s, too, the first is %s, there %s: %s%s",
            len({pair.other for pair in same}), read_report(manifests / other)["num_utterances"], other, one,
            same[0].other.id, same[0].one.id, listed,
            advice if same[0].one in leaked else "; leave one of each pair out",
        )  # fmt: skip
    if drops and leaked:
        _leave_out(manifests, sets, list(leaked.values()))


def _sets_of(pair: SameAudio) -> tuple[str, str]:
    return pair.one.set_name, pair.other.set_name


def _line(pair: SameAudio) -> str:
    names = (pair.one.id, pair.one.set_name, pair.other.id, pair.other.set_name)
    return "\t".join((*names, f"{pair.similarity:.2f}", f"{pair.speed:.3f}", pair.one.text, pair.other.text)) + "\n"


def _leave_out(manifests: Path, sets: Sets, leaked: Sequence[SameAudio]) -> None:
    """Rewrite the training sets without the duplicates.

    The text of long utterances is in the training set's.
    """
    drops = [Drop(p.one.id, f"same audio in {p.other.set_name}", p.other.id) for p in leaked]
    gone = [p.one for p in leaked]
    _write_without(manifests / sets.train, gone, drops)
    long = [one for one in gone if one.set_name == LONG]
    if long and read_report(manifests / LONG)["num_utterances"] == len(long):
        shutil.rmtree(manifests / LONG)
    elif long:
        _write_without(manifests / LONG, long, [])


def _write_without(folder: Path, gone: Sequence[UtteranceText], drops: Sequence[Drop]) -> None:
    """Rewrite manifests and text of a folder without `gone`; list `drops`."""
    recordings, lines = read_sorted(folder)
    ids = {one.id for one in gone if one.set_name == folder.name}
    kept = ((entry, line) for entry, line in lines if entry["id"] not in ids)
    texts = {}
    for path in sorted(folder.glob("sentences*.txt")):
        corpus = path.name.removeprefix("sentences").removesuffix("txt").strip(".")
        removed = [f"{one.text}\n".encode() for one in gone if one.text and corpus in ("", one.corpus)]
        if corpus and next(_lines_without(path, removed), None) is None:
            path.unlink()  # an empty file would count: a language model weighs existing files
        else:
            texts[path.name] = _lines_without(path, removed)
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
