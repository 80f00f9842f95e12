"""Commands read the model file, bundle, run and checkpoint of an older release.

tests/old_files.py made them.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch
from old_files import write_tones
from warm import run_asrtool

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "old_files.tar.gz"
LAST_STEP = 140  # of the training
SAVED_STEP = 133  # of the last checkpoint before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the recordings, the run `exp` and the bundle `old.asrtool`."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path)
    write_tones(tmp_path / "data")
    return tmp_path


def run(line: str, folder: Path) -> str:
    return run_asrtool(line.split(), folder)


def words_of(ctm: Path) -> list[list[str]]:
    """Return all columns but the confidence, which depends on the processor."""
    return [line.split()[:5] for line in ctm.read_text().splitlines()]


def weights_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = torch.load(checkpoint, weights_only=True)["weights"]
    return weights


def test_a_model_file_decodes_to_the_same_words(folder: Path) -> None:
    tables = "--tuning exp/tune/tuning.json --tokenizer exp/tokenizer --lang exp/lang --lm exp/lm --graph exp/graph"
    line = f"decode exp/average/model.pt exp/features new {tables} --config exp/config/decode.toml"
    run(line, folder)
    for method in ("greedy", "graph"):
        assert words_of(folder / f"new/own/{method}.ctm") == words_of(folder / f"exp/decode/own/{method}.ctm")


def test_a_bundle_transcribes(folder: Path) -> None:
    assert "was removed" not in run("transcribe old.asrtool data/test --out texts", folder)
    for path in (folder / "data" / "test").glob("*.txt"):
        assert (folder / "texts" / path.name).read_text() == path.read_text()


def test_a_run_continues_with_its_settings_and_its_finished_training(folder: Path) -> None:
    before = (folder / f"exp/train/checkpoints/step-{LAST_STEP:08}.pt").read_bytes()
    run("run --work exp --stage train --stop-stage score", folder)
    assert (folder / f"exp/train/checkpoints/step-{LAST_STEP:08}.pt").read_bytes() == before
    errors = json.loads((folder / "exp/score/own/graph/score.json").read_text())["overall"]
    assert (errors["words"], errors["sub"] + errors["del"] + errors["ins"]) == (12, 0)


def test_a_training_resumes_from_a_checkpoint_and_ends_with_the_same_weights(folder: Path) -> None:
    last = folder / f"exp/train/checkpoints/step-{LAST_STEP:08}.pt"
    expected = weights_of(last)
    last.unlink()
    (folder / "exp/train/train.json").unlink()
    output = run("train exp/features exp/tokenizer exp/train --config exp/config/train.toml", folder)
    assert f"after step {SAVED_STEP}," in output
    torch.testing.assert_close(weights_of(last), expected)
