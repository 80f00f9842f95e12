"""Fisher and Switchboard-1 as one corpus, as Kaldi's recipe of that name has them."""

from __future__ import annotations

import heapq
from itertools import chain
from pathlib import Path

from asrtool.data.manifests.manifest import read_sorted, write_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.corpus import Corpus as Base
from asrtool.settings.data import Data


class Corpus(Base):
    """Fisher and Switchboard, 2,000 hours, as one corpus with one text.

    data.train = ["swbd", "fisher"] has a text each, which lm.mix can weigh.
    """

    name = "fisher_swbd"
    title = "Fisher and Switchboard-1"
    releases = (*Fisher.releases, *Swbd.releases)
    roles = ("train",)
    in_mini = True
    train_hours = Fisher.train_hours + Swbd.train_hours
    shortened_samples = Fisher.shortened_samples

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train, and the manifests of both below `out`/parts."""
        folders = [out / "parts" / name for name in (Fisher.name, Swbd.name)]
        for part, folder in zip((Fisher(), Swbd()), folders, strict=True):
            part.prepare(corpus, folder, data)
        recordings, lines = zip(*(read_sorted(folder / "train") for folder in folders), strict=True)
        write_sorted(out / "train", chain(*recordings), heapq.merge(*lines, key=_place), [], data.bad_fraction, {})


def _place(item: tuple[Entry, str]) -> tuple[str, float, int, str]:
    entry, _ = item
    return entry["recording_id"], entry["start"], entry["channel"], entry["id"]
