"""Device and number format of a model's computation."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from asrtool.models.acoustic import choose_device
from asrtool.models.files.torch_file import IS_TORCH_1

CPU_INFO = Path("/proc/cpuinfo")
BF16_FLAGS = {"avx512_bf16", "amx_bf16"}
MAJOR_WITH_BF16 = 8  # major compute capability of a GPU: Ampere


@dataclass(frozen=True)
class Precision:
    """Device and format of matrix products; weights and losses stay float32."""

    device: torch.device
    name: str  # fp32, bf16 or fp16

    def autocast(self) -> AbstractContextManager[object]:
        """Compute matrix products in this format inside the context."""
        half = torch.float16 if self.name == "fp16" else torch.bfloat16
        return torch.autocast(self.device.type, half, enabled=self.name != "fp32")

    def prepare_process(self) -> None:
        """Turn off oneDNN's LSTM for formats that it lacks on this CPU.

        torch's own kernel is slow but has them.
        """
        if self.device.type != "cpu" or self.name == "fp32":
            return
        if self.name == "fp16" or not self._onednn_has_lstm():
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
            logging.warning(
                "%s is emulated on this CPU, many times slower than fp32; train.precision=auto takes the faster one",
                self.name,
            )

    def _onednn_has_lstm(self) -> bool:
        # Found by a training step: torch calls oneDNN on any CPU, and only a private function lists its kernels.
        with torch.random.fork_rng(devices=[]), self.autocast():
            try:
                nn.LSTM(1, 1)(torch.zeros(1, 1, 1))[0].sum().backward()
            except RuntimeError:
                return False
        return True


def choose_precision(name: str) -> Precision:
    """Choose `fp32`, `bf16` or `fp16`; `auto` is bf16 if the device computes it.

    A GPU is used if torch finds one.
    """
    device = choose_device()
    if name == "auto":
        name = "bf16" if has_bf16(device) else "fp32"
    return Precision(device, name)


def has_bf16(device: torch.device) -> bool:
    """Return whether `device` computes bf16 products faster than fp32 ones."""
    if device.type == "cuda":
        # Not by torch.cuda.is_bf16_supported(), which is true of a V100, since that emulates bf16.
        return torch.version.hip is not None or torch.cuda.get_device_capability()[0] >= MAJOR_WITH_BF16
    if IS_TORCH_1:  # its layer normalisation on a CPU takes no bf16 beside weights of fp32
        return False
    try:
        return has_bf16_flag(CPU_INFO.read_text(encoding="utf-8"))
    except OSError:  # not Linux
        return False


def has_bf16_flag(cpu_info: str) -> bool:
    """Return whether /proc/cpuinfo lists bf16 products; other CPUs emulate them."""
    flags = [line.partition(":")[2].split() for line in cpu_info.splitlines() if line.startswith("flags")]
    return any(BF16_FLAGS & set(words) for words in flags)


if IS_TORCH_1:
    from torch.nn.utils.stateless import functional_call
else:
    from torch.func import functional_call  # type: ignore[assignment]

__all__ = ["functional_call"]


# Messages of the allocators of GPU and host, and of cuDNN and cuBLAS.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error is out of memory, on a GPU or the host."""
    return any(text in str(error) for text in OUT_OF_MEMORY)


def free_unused() -> None:
    """Free the unused GPU memory that torch holds."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
