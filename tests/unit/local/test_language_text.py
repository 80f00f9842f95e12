"""The language model of a corpus against one of all that is said in it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from lhotse import AudioSource, Recording, SupervisionSegment
from small_releases import make_data

from asrtool.data.manifests.manifest import write_manifests
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.ngram.model import NgramLm
from asrtool.local.sets.split import split_manifests
from asrtool.local.text.references import NO_RULES_GLM
from asrtool.settings.lang import Lm

BACKCHANNELS = {"yeah": 0.2, "uh-huh": 0.1, "mhm": 0.1}  # as fractions of the utterances
NUM_CALLS, NUM_UTTERANCES = 40, 60
MAX_DUPLICATES = 30  # 2,400 utterances instead of Switchboard's 260,000


def talk(random_: random.Random) -> Iterator[str]:
    """Utterances without end: sentences that hardly recur, and back-channels as often as BACKCHANNELS says."""
    said, rest = list(BACKCHANNELS), 1 - sum(BACKCHANNELS.values())
    while True:
        text = random_.choices([*said, ""], [*BACKCHANNELS.values(), rest])[0]
        numbers = (min(int(random_.paretovariate(0.6)), 999) for _ in range(random_.randint(2, 12)))
        yield text or " ".join("".join("abcdefghij"[int(digit)] for digit in f"{number:03}") for number in numbers)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Manifests of a corpus that was split, and `raw.txt`, what is said in it outside the conversations of dev."""
    root = tmp_path_factory.mktemp("spoken")
    texts = talk(random.Random(3))
    segments = [
        SupervisionSegment(f"c{call:02}-{i}", f"c{call:02}", 2.0 * i, 1.5, 0, next(texts), speaker=f"s{call}")
        for call in range(NUM_CALLS)
        for i in range(NUM_UTTERANCES)
    ]
    recordings = [Recording(id_, [AudioSource("file", [0], "/x.wav")], 8000, 8000 * 200, 200.0) for id_ in
                  sorted({s.recording_id for s in segments})]  # fmt: skip
    for folder in ("swbd/train", "hub5/test"):
        write_manifests(
            root / "corpora" / folder, recordings, segments, [], 0.0, {"ref.stm": "\n", "ref.glm": NO_RULES_GLM}
        )
    data = make_data(("swbd",), max_duplicates=MAX_DUPLICATES, dev_minutes=4)
    split_manifests(root, data)
    dev = Counter((root / "dev" / "sentences.txt").read_text().splitlines())
    raw = Counter(str(s.text) for s in segments) - dev
    (root / "raw.txt").write_text("".join(f"{text}\n" for text in raw.elements()))
    return root


def model_of(text: Path, arpa: Path) -> NgramLm:
    build_lm([text], arpa, Lm(order=3))
    return NgramLm(read_arpa(arpa))


def test_the_model_is_that_of_the_raw_text(spoken: Path, tmp_path: Path) -> None:
    counts = Counter((spoken / "raw.txt").read_text().splitlines())
    assert min(counts[word] for word in BACKCHANNELS) > 3 * MAX_DUPLICATES
    ours, raw = model_of(spoken / "train", tmp_path / "G.arpa"), model_of(spoken / "raw.txt", tmp_path / "raw.arpa")
    for sentence in (spoken / "dev" / "sentences.txt").read_text().splitlines():
        assert ours.log_prob(sentence.split()) == pytest.approx(raw.log_prob(sentence.split()), abs=1e-5)
