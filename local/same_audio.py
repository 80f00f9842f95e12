"""What is in a set to be scored is not trained on, were it at another speed or through another codec."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from asrtool.corpus.manifest import DROPPED, Drop, read_drops, read_manifests, write_manifests
from asrtool.corpus.same_audio import SameAudio, find_same_audio
from asrtool.corpus.sets import read_sets
from asrtool.corpus.settings import Data, Features
from asrtool.files import write_text
from local import same_text

FOUND = "same_audio.tsv"
HEADING = "id\tset\tother id\tother set\tlikeness\tspeed\ttext\tother text\n"


def check_same_audio(manifests: Path, data: Data, features: Features) -> None:
    """Write `manifests`/same_audio.tsv, and leave out of `manifests`/train what a set to be scored has too.

    As data.same_audio says. What sets say alike is in `manifests`/same_text.tsv. Raises AsrtoolError for a missing or
    corrupt manifest, and when nothing is left.
    """
    for name in (FOUND, same_text.FOUND):
        (manifests / name).unlink(missing_ok=True)
    if data.same_audio == "ignore":
        return
    sets = read_sets(manifests)
    same_text.report_same_text(manifests, sets.scored, sets.train)
    found = find_same_audio(manifests, [*sets.scored, sets.train], features)
    write_text(manifests / FOUND, HEADING + "".join(map(_line, found)))
    for (one, other), num in sorted(Counter((pair.one.of_set, pair.other.of_set) for pair in found).items()):
        logging.warning("%d pairs of utterances of %s and %s are one sound: %s", num, one, other, manifests / FOUND)
    leaked = {p.one.segment.id: p for p in found if p.one.of_set == sets.train and p.other.of_set != sets.train}
    if data.same_audio == "drop" and leaked:
        _leave_out(manifests / sets.train, list(leaked.values()))


def _line(pair: SameAudio) -> str:
    names = (pair.one.segment.id, pair.one.of_set, pair.other.segment.id, pair.other.of_set)
    texts = (pair.one.segment.text or "", pair.other.segment.text or "")
    return "\t".join((*names, f"{pair.likeness:.2f}", f"{pair.speed:.3f}", *texts)) + "\n"


def _leave_out(train: Path, leaked: Sequence[SameAudio]) -> None:
    """Write the manifests and the text of the training set anew, without those."""
    recordings, segments = read_manifests(train)
    drops = {
        p.one.segment.id: Drop(p.one.segment.id, f"same audio in {p.other.of_set}", p.other.segment.id) for p in leaked
    }
    kept = [segment for segment in segments if segment.id not in drops]
    gone = [segment for segment in segments if segment.id in drops]
    texts = {}
    for path in sorted(train.glob("sentences*.txt")):
        corpus = path.name.removeprefix("sentences").removesuffix("txt").strip(".")
        of_it = Counter(s.text for s in gone if corpus in ("", (s.custom or {}).get("corpus")))
        texts[path.name] = _without(path.read_text(encoding="utf-8").splitlines(), of_it)
        if corpus and not texts[path.name]:  # no text is as no file: a language model weighs those that are there
            del texts[path.name]
            path.unlink()
    write_manifests(train, recordings, kept, [*read_drops(train / DROPPED), *drops.values()], 1.0, texts)


def _without(lines: Sequence[str], gone: Counter[str | None]) -> str:
    """`lines` without one for each of `gone`."""
    kept = []
    for line in lines:
        if gone[line] > 0:
            gone[line] -= 1
        else:
            kept.append(f"{line}\n")
    return "".join(kept)
