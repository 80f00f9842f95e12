"""Every example of docs/guide/extending.md and docs/how-to/new-*.md, in a package outside asrtool, on the ci recipe."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from warm import run_asrtool

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "recipes" / "swbd" / "conf" / "ci.toml"
MAX_LINES = 40
PAGES = [ROOT / "docs" / "guide" / "extending.md", *sorted((ROOT / "docs" / "how-to").glob("new-*.md"))]
EXAMPLES = dict(
    example
    for page in PAGES
    for example in re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```\n", page.read_text(encoding="utf-8"), re.DOTALL)
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all examples in it."""
    home = tmp_path_factory.mktemp("extending")
    for name, text in EXAMPLES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    (home / "my_parts" / "__init__.py").touch()
    return home


def asrtool(home: Path, *words: str | Path, set: list[str] | None = None) -> str:
    """Standard error and output of a command that sees the package."""
    overrides = [word for setting in set or [] for word in ("--set", setting)]
    return run_asrtool([*map(str, words), *overrides], home)


@pytest.fixture(scope="module")
def work(home: Path) -> Path:
    """A work directory of the ci recipe up to the tokenizer."""
    words = ("run", "--recipe", "swbd", "--config", "ci", "--work", "work", "--stop-stage", "tokenizer")
    asrtool(home, *words, set=["features.num_jobs=1"])  # more would import torch once more
    return home / "work"


def train(home: Path, work: Path, out: str, *settings: str, learners: int = 1) -> list[dict[str, object]]:
    """The lines of metrics.jsonl of a training of two epochs."""
    words = ["train", work / "features", work / "tokenizer", out, "--config", CONF, "--num-learners", str(learners)]
    asrtool(home, *words, set=list(settings))
    return [json.loads(line) for line in (home / out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def dev_losses(lines: list[dict[str, object]]) -> list[float]:
    return [float(str(line["loss"])) for line in lines if line["kind"] == "dev"]


def test_no_example_is_long() -> None:
    assert len(EXAMPLES) == 11
    for name, text in EXAMPLES.items():
        assert text.count("\n") <= MAX_LINES, name


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("encoder", ["model.encoder=my_parts.encoder:Convolutions", "model.Convolutions.channels=32"]),
        ("optimizer", ["train.optimizer=my_parts.optimizer:lion", "train.peak_lr=0.0003"]),
    ],
)
def test_a_component_trains(home: Path, work: Path, name: str, settings: list[str]) -> None:
    first, last = dev_losses(train(home, work, name, *settings))
    assert last < first


def test_an_objective_trains_and_reports_its_figure(home: Path, work: Path) -> None:
    lines = train(home, work, "objective", "model.objective=my_parts.objective:CautiousCtc")
    first, last = dev_losses(lines)
    assert last < first
    assert all("entropy" in line for line in lines if line["kind"] in ("train", "dev"))


def test_a_strategy_trains_and_its_learners_are_equal_where_they_have_taken_the_mean(home: Path, work: Path) -> None:
    """Learners synchronise after every second step and take the mean after every fourth."""
    settings = ["distributed.strategy=my_parts.strategy:local_sgd", "distributed.local_sgd.every=4"]
    lines = train(home, work, "strategy", *settings, "train.batch_s=15", "train.save_every_steps=2", learners=2)
    first, last = dev_losses(lines)
    assert last < first
    apart, equal, *_ = [float(str(line["consensus_distance"])) for line in lines if line["kind"] == "learners"]
    assert equal < 1e-6 < apart


def test_learners_of_a_gossip_strategy_exchange_with_the_partners_it_chooses(home: Path, work: Path) -> None:
    strategy = "distributed.strategy=my_parts.exponential:exponential"
    train(home, work, "gossip", strategy, "train.num_epochs=8", "train.batch_s=15", learners=4)
    hops = {
        (partner - rank) % 4
        for rank in range(4)
        for line in (home / "gossip" / "learners" / f"{rank}.jsonl").read_text(encoding="utf-8").splitlines()
        for partner in json.loads(line)["partners"]
    }
    assert hops == {1, 2}


@pytest.fixture(scope="module")
def recordings(home: Path, work: Path) -> Path:
    """Releases of the corpora of the examples, cut out of the mini corpus."""
    from lhotse import RecordingSet, SupervisionSet

    releases = home / "releases"
    for name, source in (("radio", "train"), ("interviews", "hub5")):
        folder = releases / name
        folder.mkdir(parents=True)
        manifests = work / "manifests" / source
        of_recording = {r.id: r for r in RecordingSet.from_file(manifests / "recordings.jsonl.gz")}
        turns = []
        for segment in SupervisionSet.from_file(manifests / "supervisions.jsonl.gz"):
            if not segment.text:
                continue
            side = f"{segment.recording_id}-{segment.channel}"
            samples, rate = soundfile.read(of_recording[segment.recording_id].sources[0].source, dtype="int16")
            mono: np.ndarray = samples[:, segment.channel]
            if name == "radio":
                turns.append(f"{side}\t{segment.speaker}\t{segment.start}\t{segment.end}\t{segment.text}\n")
                soundfile.write(folder / f"{side}.wav", mono, rate)
            else:
                cut = mono[round(segment.start * rate) : round(segment.end * rate)]
                soundfile.write(folder / f"{segment.id}.wav", cut, rate)
                (folder / f"{segment.id}.txt").write_text(segment.text, encoding="utf-8")
        if turns:
            (folder / "turns.tsv").write_text("".join(turns), encoding="utf-8")
    return releases


def test_a_recipe_has_corpus_test_set_features_search_and_stage_of_ones_own(home: Path, recordings: Path) -> None:
    recipe = home / "recipes" / "mine"
    (recipe / "conf").mkdir()
    shutil.copy(CONF, recipe / "conf" / "mine.toml")
    settings = [
        "data.train=my_parts.radio:Radio", "data.test=my_parts.interviews:Interviews", "train.batch_s=15",
        f"paths.radio={recordings / 'radio'}", f"paths.interviews={recordings / 'interviews'}",
        "features.type=my_parts.features:LogSpectrum", "features.LogSpectrum.num_features=48",
        "decode.methods=greedy,my_parts.search:Sure",
    ]  # fmt: skip
    said = asrtool(home, "run", "--recipe", recipe, "--work", "mine", set=settings)
    results = (home / "mine" / "RESULTS.md").read_text(encoding="utf-8")
    assert "Interviews" in results
    assert "| my_parts.search:Sure |" in results
    assert "stage 2 count: finished" in said
    number, word = (home / "mine" / "counts.tsv").read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert int(number) > 1
    assert word
    features = json.loads((home / "mine" / "features" / "features.json").read_text(encoding="utf-8"))
    assert features["LogSpectrum"]["num_features"] == 48
    tuning = json.loads((home / "mine" / "tune" / "tuning.json").read_text(encoding="utf-8"))
    assert tuning["methods"]["my_parts.search:Sure"]["confidence"] in (0.0, 0.2, 0.4)
    listed = asrtool(home, "run", "--recipe", recipe, "--work", "mine", "--list", set=settings)
    states = {line.split()[1]: line.split()[2] for line in listed.splitlines()[1:]}
    assert {states[name] for name in ("count", "features", "train", "decode", "report")} == {"done"}
