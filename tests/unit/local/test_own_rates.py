"""Own data of several sampling rates, through preparation and features as recipes/own has them."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_releases import read_jsonl, read_manifests

from asrtool.data.features.compute_sets import compute_features
from asrtool.data.storage.index import read_feature_settings
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import prepare_all
from asrtool.local.sets.split import split_manifests
from asrtool.recipe.recipe import load_recipe, load_settings

RATES_HZ = (8000, 16000, 11025, 44100, 16000, 48000)
RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "own"


def test_features_of_the_recipe_are_at_one_rate_and_the_log_says_what_became_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_settings(load_recipe(RECIPE), [], ["features.num_jobs=1", "features.speeds=1.0"])
    for number, rate_hz in enumerate(RATES_HZ):
        path = tmp_path / "corpus" / "own_train" / f"s{number % 3}" / f"u{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, 0.3 * np.sin(2 * np.pi * 1000 * np.arange(2 * rate_hz) / rate_hz), rate_hz)
        path.with_suffix(".txt").write_text("one two")
    shutil.copytree(tmp_path / "corpus" / "own_train", tmp_path / "corpus" / "own_test")
    manifests = tmp_path / "manifests"
    prepare_all(tmp_path / "corpus", manifests, config.data)
    split_manifests(manifests, config.data)
    assert sorted(r.sampling_rate for r in read_manifests(manifests / "own")[0]) == sorted(RATES_HZ)
    with caplog.at_level(logging.INFO):
        compute_features(manifests, tmp_path / "features", config.features)
    assert read_feature_settings(tmp_path / "features").sampling_rate_hz == 16000
    reader = FeatureReader(tmp_path / "features" / "own", "none")
    assert [len(reader.read(i)) for i in range(len(reader.index))] == [200] * len(RATES_HZ)
    loudest = {int(reader.read(i).mean(0).argmax()) for i in range(len(reader.index))}
    assert max(loudest) - min(loudest) <= 1  # the tone is the same at all rates
    where = manifests / "own"
    expected = {
        f"{where}: 1 of 6 recordings have 8000 Hz, resampled to 16000: NOTHING ABOVE 4000 Hz IS IN THEM;"
        " features.sampling_rate_hz=8000 would make all alike": "WARNING",
        f"{where}: 1 of 6 recordings have 11025 Hz, resampled to 16000: NOTHING ABOVE 5512 Hz IS IN THEM": "WARNING",
        f"{where}: 1 of 6 recordings have 44100 Hz, resampled to 16000": "INFO",
        f"{where}: 1 of 6 recordings have 48000 Hz, resampled to 16000": "INFO",
    }
    said = {record.getMessage(): record.levelname for record in caplog.records}
    assert {message: level for message, level in said.items() if message.startswith(f"{where}: ")} == expected
    rates = [entry["sampling_rate"] for entry in read_jsonl(manifests / "train" / "recordings.jsonl.gz")]
    assert f"16000 Hz, as {100 * rates.count(16000) / len(rates):.3g} % of the hours of recordings" in caplog.text
    with pytest.raises(AsrtoolError, match=r"samples a second, expected \d+; .*set features.resample=true"):
        compute_features(manifests, tmp_path / "f", dataclasses.replace(config.features, resample=False))
