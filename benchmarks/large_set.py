"""A feature set of the size of Fisher and Switchboard, invented: all but the features of most shards is there.

Utterances have lengths, words, speakers and copies at three speeds as Fisher has them. Of the features only those are
written that the first batches of a training need; the rest of the set is what the features stage writes beside them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from asrtool.data.batches import Lengths, plan_epoch
from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.manifests.manifest import DROPPED, format_drops
from asrtool.data.storage.index import INDEX, Utterance, format_line, write_feature_settings, write_index
from asrtool.data.storage.index_columns import pack, writing_columns
from asrtool.data.storage.shard import write_shard
from asrtool.data.storage.transcripts import write_transcripts
from asrtool.lang.tokenizer import train_tokenizer
from asrtool.settings.data import Features

FEATURES = Features()
SPEEDS = (1.0, 0.9, 1.1)
NUM_WORDS = 45_000  # of the language, by Zipf's law
WORDS_A_SECOND = 3.3  # of speech
A_CALL = 200  # utterances, of two speakers
CORPORA = {"fisher": 0.8, "librispeech": 0.1, "swbd": 0.1}  # of the utterances, in storage order
SYLLABLES = tuple(consonant + vowel for consonant in "bdfghklmnprstvwz" for vowel in "aeiou")
VOCAB_SIZE = 2000
NUM_DEV = 200
BATCH_S = 120  # of the training that the features are for
SEED = 1  # of that training
NUM_WINDOWS = 2  # of shards whose features are there


def write_set(work: Path, num: int) -> None:
    """Features of `num` utterances, all speeds together, with a development set; and a tokenizer."""
    said = list(draw(num // len(SPEEDS)))
    sentences = work / "sentences.txt"
    sentences.write_text("\n".join(text for _, text in said[:20_000]) + "\n", encoding="utf-8")
    train_tokenizer(sentences, work / "tokenizer", VOCAB_SIZE)
    train, dev = work / "features" / "train", work / "features" / "dev"
    train.mkdir(parents=True)
    dev.mkdir()
    one = Moments.of(np.random.default_rng(0).standard_normal((1000, FEATURES.num_features)).astype(np.float32))
    num_frames = write_train(train, said)
    (train / DROPPED).write_text(format_drops([]), encoding="utf-8")
    write_cmvn(train, dict.fromkeys(speakers(len(said)), one), one)
    write_read_shards(train, said, num_frames)
    of_dev = list(islice(utterances(said, 1.0, 0), NUM_DEV))
    write_index(dev, write_shard(dev, 0, ((one, noise(one)) for one in of_dev), FEATURES))
    write_transcripts(dev, ((one.id, text) for one, (_, text) in zip(of_dev, said, strict=False)))
    write_cmvn(dev, {}, one)
    write_feature_settings(work / "features", FEATURES)


def draw(num: int) -> Iterator[tuple[float, str]]:
    """Seconds and text of each utterance, always the same.

    3 s in the mean and 20 s at most, lognormal as tests/unit/distributed/test_decodes.py has them.
    """
    random = np.random.default_rng(1)
    words = ["".join(random.choice(SYLLABLES, size)) for size in random.integers(1, 4, NUM_WORDS)]
    as_objects = np.array(words, dtype=object)
    for begin in range(0, num, 10_000):
        durations_s = random.lognormal(0.65, 0.95, 10_000).clip(0.3, 20)
        for duration_s in durations_s[: num - begin].tolist():
            size = max(1, int(WORDS_A_SECOND * duration_s))
            yield duration_s, " ".join(as_objects[np.exp(random.random(size) * np.log(NUM_WORDS)).astype(int) - 1])


def utterances(said: Sequence[tuple[float, str]], speed: float, first_shard: int) -> Iterator[Utterance]:
    """Copies of all at one speed."""
    prefix = "" if speed == 1 else f"sp{speed:g}-"
    names, ends = list(CORPORA), np.cumsum([*CORPORA.values()]) * len(said)
    corpora = np.searchsorted(ends[:-1], np.arange(len(said)), side="right").tolist()
    for i, (duration_s, _) in enumerate(said):
        call, side, place = f"fe_03_{i // A_CALL:05d}", "AB"[i % 2], i % A_CALL
        yield Utterance(
            f"{prefix}{call}-{side}-{place:03d}", call, side, 3.0 * place / speed, round(duration_s / speed, 3),
            f"{prefix}{call}-{side}", None, first_shard + i // FEATURES.shard_cuts,
            int(100 * duration_s / speed), names[corpora[i]],
        )  # fmt: skip


def all_utterances(said: Sequence[tuple[float, str]]) -> Iterator[Utterance]:
    """All at one speed, then all at the next, in storage order."""
    for copy, speed in enumerate(SPEEDS):
        yield from utterances(said, speed, copy * -(-len(said) // FEATURES.shard_cuts))


def speakers(num: int) -> list[str]:
    """Of all copies."""
    names = [f"fe_03_{call:05d}-{side}" for call in range(-(-num // A_CALL)) for side in "AB"]
    return [f"{'' if speed == 1 else f'sp{speed:g}-'}{name}" for speed in SPEEDS for name in names]


def write_train(directory: Path, said: Sequence[tuple[float, str]]) -> np.ndarray:
    """Index, texts and their columns, as the features stage writes them; the frames of each utterance."""
    num_frames = []
    with writing_columns(directory) as columns, open(directory / INDEX, "wb") as index:
        for number, of_shard in itertools.groupby(all_utterances(said), lambda one: one.shard):
            shard = list(of_shard)
            lines = "".join(map(format_line, shard)).encode()
            index.write(lines)
            columns.add(number, pack(shard), lines)
            num_frames += [utterance.num_frames for utterance in shard]
    listed = zip(utterances(said, 1.0, 0), said, strict=True)
    write_transcripts(directory, ((utterance.id, text) for utterance, (_, text) in listed))
    return np.array(num_frames)


def write_read_shards(directory: Path, said: Sequence[tuple[float, str]], num_frames: np.ndarray) -> None:
    """The shards that the first batches of an epoch are from."""
    per_copy, cuts = -(-len(said) // FEATURES.shard_cuts), FEATURES.shard_cuts
    first = np.concatenate([copy * len(said) + np.arange(0, len(said), cuts) for copy in range(len(SPEEDS))])
    max_frames = int(BATCH_S * 1000 / FEATURES.frame_shift_ms)
    plan = plan_epoch(Lengths(num_frames, first), max_frames, SEED, 0)
    batches = itertools.takewhile(lambda batch: batch.window < NUM_WINDOWS, plan)
    rows = np.unique(np.concatenate([batch.indices for batch in batches]))
    for number in np.unique(np.searchsorted(first, rows, side="right") - 1).tolist():
        copy, place = divmod(number, per_copy)
        begin = place * cuts
        of_copy = islice(utterances(said, SPEEDS[copy], copy * per_copy), begin, min(begin + cuts, len(said)))
        write_shard(directory, number, ((one, noise(one)) for one in of_copy), FEATURES)


def noise(utterance: Utterance) -> np.ndarray:
    """Features (T, F)."""
    random = np.random.default_rng(utterance.num_frames)
    return random.standard_normal((utterance.num_frames, FEATURES.num_features)).astype(np.float32)
