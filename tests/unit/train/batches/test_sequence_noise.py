"""Utterances of a batch that are added to others of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asrtool.data.features.cmvn import Cmvn, Moments, write_cmvn
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.augment import add_utterances
from asrtool.train.train import build_components

STD_F = np.array([0.5, 1.0, 2.0], dtype=np.float32)
LENS_N = np.array([5, 3, 4, 5])


def batch_of() -> np.ndarray:
    feats_NTF = np.random.default_rng(1).standard_normal((4, 5, 3)).astype(np.float32)
    for n, num in enumerate(LENS_N):
        feats_NTF[n, num:] = 0
    return feats_NTF


def test_energies_of_another_utterance_are_added_to_each() -> None:
    clean_NTF, noisy_NTF = batch_of(), batch_of()
    add_utterances(noisy_NTF, LENS_N, 1.0, 0.4, STD_F, np.random.default_rng(7))
    energies_NTF = np.exp(clean_NTF.astype(np.float64) * STD_F)
    for n, num in enumerate(LENS_N):
        found_TF = np.exp(noisy_NTF[n].astype(np.float64) * STD_F)
        sums = []
        for other in set(range(4)) - {n}:
            shared = min(num, LENS_N[other])
            expected_TF = energies_NTF[n].copy()
            expected_TF[:shared] += 0.4 * energies_NTF[other, :shared]
            sums.append(expected_TF)
        assert any(np.allclose(found_TF, expected_TF, rtol=1e-4) for expected_TF in sums)
        assert (noisy_NTF[n, num:] == 0).all()


def test_so_many_utterances_are_changed_and_each_other_one_is_chosen() -> None:
    changed, partners = 0, set()
    for seed in range(200):
        noisy_NTF = np.zeros((4, 2, 1), dtype=np.float32)
        noisy_NTF[:, :, 0] = np.log([[1.0], [10.0], [100.0], [1000.0]])
        add_utterances(noisy_NTF, np.full(4, 2), 0.3, 1.0, np.ones(1, np.float32), np.random.default_rng(seed))
        sums = np.exp(noisy_NTF[:, 0, 0].astype(np.float64)).round(3)
        for n, value in enumerate(sums):
            added = round(value - 10**n)
            if added:
                changed += 1
                partners.add((n, added))
    assert 0.25 < changed / 800 < 0.35
    assert partners == {(n, 10**other) for n in range(4) for other in range(4) if n != other}


def test_an_utterance_that_is_alone_stays_as_it_is() -> None:
    feats_NTF = batch_of()[:1]
    add_utterances(feats_NTF, LENS_N[:1], 1.0, 0.4, STD_F, np.random.default_rng(7))
    np.testing.assert_array_equal(feats_NTF, batch_of()[:1])


@pytest.mark.parametrize(("cmvn", "expected"), [("speaker", 2.0), ("utterance", 2.0), ("global", 2.0), ("none", 1.0)])
def test_the_scale_is_that_of_the_training_set(tmp_path: Path, cmvn: str, expected: float) -> None:
    everyone = Moments.of(np.array([[1.0, 3.0], [5.0, 7.0]]))
    write_cmvn(tmp_path, {}, everyone)
    np.testing.assert_allclose(Cmvn(tmp_path, cmvn).scale_of_all(), [expected, expected])


@pytest.mark.parametrize("consistency", [0.0, 0.2])
def test_noise_comes_before_the_masks(toy: Path, toy_config: Path, consistency: float) -> None:
    masks = ["specaugment.num_time_masks=2", "specaugment.max_time_frames=9", "specaugment.max_time_fraction=0.9"]
    settings = ["train.sequence_noise=1", f"model.ctc.consistency={consistency}", *masks]
    components = build_components(toy / "features", toy / "tokenizer", load_config([toy_config], settings))
    batch = components.train_set.read(next(iter(components.train_set.plan(0, 0, {}))))
    before_NTF = batch.inputs_NT.copy()
    assert components.augment
    components.augment(batch, np.random.default_rng(4))
    views = [batch.inputs_NT] if batch.others_NT is None else [batch.inputs_NT, batch.others_NT]
    assert len(views) == (2 if consistency else 1)
    for view_NTF in views:
        assert (view_NTF > before_NTF + 0.1).any()
        assert (before_NTF.any(axis=2) & ~view_NTF.any(axis=2)).sum() > 5  # masked frames are all 0
