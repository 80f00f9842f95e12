"""Which parts of a model neighbouring devices compute."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from asrtool.models.acoustic import Encoder, build_model
from asrtool.models.encoders.stages import Part, run_parts, split_evenly
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice


def smallest_largest(sizes: Sequence[int], num: int) -> int:
    """Of all ways to cut, by trying them."""
    ways = itertools.combinations(range(1, len(sizes)), num - 1)
    groups = ([sizes[i:j] for i, j in itertools.pairwise((0, *way, len(sizes)))] for way in ways)
    return min(max(map(sum, group)) for group in groups if all(map(sum, group)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 5))
def test_the_largest_group_is_as_small_as_any_way_to_cut_makes_it(sizes: list[int], num: int) -> None:
    num = min(num, sum(size > 0 for size in sizes))
    if num:
        groups = [sizes[cut] for cut in split_evenly(sizes, num)]
        assert list(itertools.chain(*groups)) == sizes
        assert len(groups) == num
        assert all(map(sum, groups))
        assert max(map(sum, groups)) == smallest_largest(sizes, num)


@pytest.mark.parametrize(
    ("name", "values"), [("lstm", {}), ("lstm", {"conv_channels": 4}), ("deepspeech2", {}), ("conformer", {})]
)
def test_the_parts_of_an_encoder_have_all_its_weights_once(name: str, values: dict[str, int]) -> None:
    encoder = build_model(Model(encoder=Choice.of("encoder", name, num_layers=3, **values)), 16, 20).encoder
    parts = encoder.parts()
    weights = [weight for part in parts for module in part.modules for weight in module.parameters()]
    assert {id(weight) for weight in weights} == {id(weight) for weight in encoder.parameters()}
    assert len(weights) == len(list(encoder.parameters()))
    assert sum(part.num_weights() for part in parts) == sum(weight.numel() for weight in weights)
    assert sum(part.num_weights() > 0 for part in parts) >= 3


class Whole(Encoder):
    """Says nothing of parts."""

    def __init__(self) -> None:
        super().__init__()
        self.subsampling, self.output_size = 1, 2
        self.linear = nn.Linear(3, 2)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(feats_NTF), feat_lens_N


def test_an_encoder_that_says_nothing_of_parts_is_one() -> None:
    encoder, feats_NTF, lens_N = Whole(), torch.randn(2, 4, 3), torch.tensor([4, 2])
    (part,) = encoder.parts()
    assert part.num_weights() == 8
    hidden_NTC, lens = run_parts([part], feats_NTF, lens_N)
    assert torch.equal(hidden_NTC, encoder(feats_NTF, lens_N)[0])
    assert lens is lens_N


def test_parts_are_computed_in_order() -> None:
    parts = [Part(lambda x: (x + 1,)), Part(lambda x: (x * 10,))]
    assert run_parts(parts, torch.tensor(1))[0] == 20
