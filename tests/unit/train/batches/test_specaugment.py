"""Masks are where and as wide as they may be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from asrtool.settings.train import SpecAugment, Train
from asrtool.train.batches.augment import BatchAugment, mask_features
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
def test_masks_keep_to_their_widths(lens: list[int], num_bins: int, num_masks: int, seed: int) -> None:
    settings = SpecAugment(num_masks, 6, num_masks, 9, 0.3)
    masked_NTF = masked(lens, num_bins, settings, seed)
    for n, num_frames in enumerate(lens):
        whole_bins = masked_NTF[n].all(axis=0).sum()
        whole_frames = masked_NTF[n].all(axis=1).sum()
        if whole_bins == num_bins:  # every bin masked: frames all look masked
            continue
        assert whole_bins <= min(num_bins, 6 * num_masks)
        assert whole_frames <= min(9 * num_masks, 0.3 * num_frames)
        assert not masked_NTF[n, num_frames:][:, ~masked_NTF[n].all(axis=0)].any()


@given(st.integers(0, 999))
def test_what_is_masked_is_whole_bins_and_whole_frames(seed: int) -> None:
    masked_TF = masked([80], 40, SpecAugment(2, 8, 2, 10, 0.5), seed)[0]
    bins, frames = masked_TF.all(axis=0), masked_TF.all(axis=1)
    assert (masked_TF == (bins[None, :] | frames[:, None])).all()


@pytest.mark.parametrize(("settings", "across"), [((1, 4, 0, 0, 0.0), 0), ((0, 0, 1, 4, 0.4), 1)])
def test_every_width_up_to_the_largest_and_every_place_occur(settings: tuple[int, ...], across: int) -> None:
    """Of bins, masked in all frames, and of frames, masked in all bins."""
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
