"""Scored utterances whose words also occur in training, such as prompts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asrtool.data.manifests.manifest import read_batches
from asrtool.files import write_text

FOUND = "same_text.tsv"
HEADING = "id\tset\ttext\ttimes in train\n"
LEAST_WORDS = 8  # what is shorter is said again in any conversation


@dataclass(frozen=True)
class Scored:
    """An utterance to be scored."""

    id: str
    of_set: str
    text: str


def report_same_text(manifests: Path, scored: Sequence[str], train: str) -> None:
    """Write `manifests`/same_text.tsv: long scored utterances said in training.

    Only utterances of LEAST_WORDS count. The log counts them; nothing is left out. Raises AsrtoolError for a missing
    or corrupt manifest.
    """
    utterances = [
        Scored(id_, name, text) for name in scored for id_, text in _texts(manifests / name) if _is_long(text)
    ]
    times = dict.fromkeys((utterance.text for utterance in utterances), 0)
    for _, text in _texts(manifests / train):
        if text in times:
            times[text] += 1
    found = [utterance for utterance in utterances if times[utterance.text]]
    lines = ("\t".join((one.id, one.of_set, one.text, str(times[one.text]))) + "\n" for one in found)
    write_text(manifests / FOUND, HEADING + "".join(lines))
    for name in scored:
        num, num_all = (sum(one.of_set == name for one in some) for some in (found, utterances))
        if num:
            logging.warning(
                "%d of %d utterances of %s with %d words or more are said in training, too: %s",
                num, num_all, name, LEAST_WORDS, manifests / FOUND,
            )  # fmt: skip


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    _, batches = read_batches(folder)
    yield from ((entry["id"], entry.get("text") or "") for entries in batches for entry in entries)


def _is_long(text: str) -> bool:
    return len(text.split()) >= LEAST_WORDS
