"""Augmentation of a batch: place and width of masks, and utterances added to others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from trainings import components_of

from asrtool.data.features.cmvn import Cmvn, Moments, write_cmvn
from asrtool.settings.train import SpecAugment, Train
from asrtool.train.batches.augment import BatchAugment, add_utterances, mask_features
from asrtool.train.batches.batch import TrainingBatch, prepare_batch, seed_torch


def masked(lens: list[int], num_bins: int, settings: SpecAugment, seed: int) -> np.ndarray:
    """True where features of ones became zero; (N, T, F)."""
    feats_NTF = np.ones((len(lens), max(lens), num_bins), dtype=np.float32)
    mask_features(feats_NTF, np.array(lens), settings, np.random.default_rng((seed, 0)))
    assert np.isin(feats_NTF, (0, 1)).all()
    return feats_NTF == 0


def augment_of(masks: SpecAugment, views: int = 1) -> BatchAugment:
    return BatchAugment(Train(), masks, Path(), "none", views)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(1, 30), st.integers(0, 3), st.integers(0, 99))
def test_what_is_masked_is_whole_bins_and_whole_frames_of_no_more_than_their_widths(
    lens: list[int], num_bins: int, num_masks: int, seed: int
) -> None:
    masked_NTF = masked(lens, num_bins, SpecAugment(num_masks, 6, num_masks, 9, 0.3), seed)
    for num_frames, masked_TF in zip(lens, masked_NTF, strict=True):
        bins, frames = masked_TF.all(axis=0), masked_TF.all(axis=1)
        assert (masked_TF == (bins[None, :] | frames[:, None])).all()
        if not bins.all():  # else all frames look masked
            assert bins.sum() <= min(num_bins, 6 * num_masks)
            assert frames.sum() <= min(9 * num_masks, 0.3 * num_frames)
            assert not frames[num_frames:].any()


@pytest.mark.parametrize(("settings", "across"), [((1, 4, 0, 0, 0.0), 0), ((0, 0, 1, 4, 0.4), 1)])
def test_every_width_up_to_the_largest_and_every_place_occur(settings: tuple[int, ...], across: int) -> None:
    """Masks are of bins in all frames, and of frames in all bins."""
    widths, firsts, lasts = set(), set(), set()
    for seed in range(400):
        places = masked([12], 12, SpecAugment(*settings), seed)[0].all(axis=across)
        widths.add(int(places.sum()))
        if places.any():
            firsts.add(int(places.argmax()))
            lasts.add(int(np.flatnonzero(places)[-1]))
    assert widths == {0, 1, 2, 3, 4}
    assert firsts == lasts == set(range(12))


def test_a_batch_has_masks_and_dropout_of_its_number_in_the_training() -> None:
    drawn = []
    for seed, number in ((1, 5), (1, 5), (1, 6), (2, 5)):
        lens_N = np.full(3, 50)
        batch = TrainingBatch([], np.ones((3, 50, 8), np.float32), lens_N, torch.zeros(3, 1), torch.ones(3), 1)
        prepare_batch(batch, seed, number, augment_of(SpecAugment()))
        drawn.append((batch.inputs_NT.tobytes(), batch.torch_seed, torch.rand(4).tolist()))
        seed_torch(batch.torch_seed)
        assert torch.rand(4).tolist() == drawn[-1][2]
    assert drawn[0] == drawn[1]
    assert all(len({one[part] for one in drawn}) == 3 for part in (0, 1))


def test_two_views_are_masked_by_draws_of_their_own_and_stay_together_in_pieces() -> None:
    settings, lens_N = SpecAugment(2, 8, 2, 20, 0.9), np.array([30, 50])
    batch = TrainingBatch(
        ["a", "b"], np.ones((2, 50, 8), np.float32), lens_N, torch.ones(2, 3), torch.tensor([1, 3]), 4
    )
    alone = dataclasses.replace(batch, inputs_NT=batch.inputs_NT.copy())
    augment_of(settings)(alone, np.random.default_rng(3))
    augment_of(settings, 2)(batch, np.random.default_rng(3))
    assert batch.others_NT is not None
    assert (batch.inputs_NT == alone.inputs_NT).all()
    assert (batch.others_NT != batch.inputs_NT).any()
    assert (batch.others_NT == 0).any()
    piece = batch.rows(0, 1)
    assert piece.others_NT is not None
    assert (piece.inputs_NT == batch.inputs_NT[:1, :30]).all()
    assert (piece.others_NT == batch.others_NT[:1, :30]).all()


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
    np.testing.assert_allclose(Cmvn(tmp_path, cmvn).global_std(), [expected, expected])


@pytest.mark.parametrize("consistency", [0.0, 0.2])
def test_noise_comes_before_the_masks(toy: Path, toy_config: Path, consistency: float) -> None:
    masks = ["specaugment.num_time_masks=2", "specaugment.max_time_frames=9", "specaugment.max_time_fraction=0.9"]
    settings = ["train.sequence_noise=1", f"model.ctc.consistency={consistency}", *masks]
    components = components_of(toy, toy_config, *settings)
    batch = components.train_set.read(next(iter(components.train_set.plan(0, 0, {}))))
    before_NTF = batch.inputs_NT.copy()
    assert components.augment
    components.augment(batch, np.random.default_rng(4))
    views = [batch.inputs_NT] if batch.others_NT is None else [batch.inputs_NT, batch.others_NT]
    assert len(views) == (2 if consistency else 1)
    for view_NTF in views:
        assert (view_NTF > before_NTF + 0.1).any()
        assert (before_NTF.any(axis=2) & ~view_NTF.any(axis=2)).sum() > 5  # masked frames are all 0
