from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from asrtool.distributed.world import World
from asrtool.models import precision
from asrtool.models.precision import Precision, choose_precision
from asrtool.settings.train import Train
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.loop.build import fix_threads_and_precision

REFUSAL = "could not create a primitive descriptor for the LSTM forward propagation primitive"


@pytest.mark.parametrize(
    ("cpu_info", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 sse\n", "bf16"),
        ("processor\t: 0\nflags\t\t: fpu amx_bf16\n", "bf16"),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\nbugs\t: avx512_bf16\n", "fp32"),
        ("", "fp32"),
    ],
)
def test_auto_follows_the_processor(tmp_path, monkeypatch, cpu_info: str, expected: str) -> None:
    (tmp_path / "cpuinfo").write_text(cpu_info, encoding="utf-8")
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_precision("auto").name == expected
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "not Linux")
    assert choose_precision("auto").name == "fp32"


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 0), "fp32"), ((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")]
)
def test_auto_never_chooses_bf16_that_a_gpu_emulates(monkeypatch, capability: tuple[int, int], expected: str) -> None:
    """A V100 has compute capability 7.0; by default torch says of it that bf16 is supported."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert choose_precision("auto").name == expected


@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_matrix_products_are_computed_in_the_chosen_format(monkeypatch, name: str, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with choose_precision(name).autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_an_lstm_is_computed_in_each_format_on_any_cpu(name: str) -> None:
    """oneDNN has no LSTM in fp16, and none in bf16 on a CPU with AVX2 alone; torch calls it all the same."""
    chosen, lstm = Precision(torch.device("cpu"), name), nn.LSTM(3, 4)
    before = torch.get_rng_state()
    chosen.prepare_process()
    assert torch.equal(torch.get_rng_state(), before)
    with chosen.autocast():
        lstm(torch.ones(5, 2, 3))[0].float().sum().backward()
    assert lstm.weight_hh_l0.grad.isfinite().all()


class Refused(torch.autograd.Function):
    """An LSTM whose backward pass alone is refused."""

    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(REFUSAL)


def has_it(values: torch.Tensor) -> torch.Tensor:
    return values.clone()


def has_none(values: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(REFUSAL)


@pytest.mark.parametrize(("answer", "is_used"), [(has_it, True), (has_none, False), (Refused.apply, False)])
def test_onednn_is_used_for_bf16_where_it_trains_an_lstm_in_it(
    monkeypatch, caplog, answer: Callable[[torch.Tensor], torch.Tensor], is_used: bool
) -> None:
    class Lstm(nn.LSTM):
        def forward(self, values: torch.Tensor, hx: object = None) -> tuple[torch.Tensor, None]:
            return answer(values * self.weight_ih_l0[0, 0]), None

    monkeypatch.setattr(nn, "LSTM", Lstm)
    torch.backends.mkldnn.enabled = True
    Precision(torch.device("cpu"), "bf16").prepare_process()
    assert torch.backends.mkldnn.enabled is is_used
    assert ("bf16 is emulated on this CPU" in caplog.text) is not is_used


def test_what_auto_chose_when_training_began_stays(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("flags : avx512_bf16", encoding="utf-8")
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    state, begun = State(), State(precision="fp32", num_threads=1)
    assert fix_threads_and_precision(Train(num_threads=1), begun, World()).name == "fp32"
    assert fix_threads_and_precision(Train(num_threads=1), state, World()).name == state.precision == "bf16"
    assert fix_threads_and_precision(Train(num_threads=1, precision="fp32"), state, World()).name == "fp32"
