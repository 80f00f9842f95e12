"""What torch raises where memory runs out."""

from __future__ import annotations

import torch

# Of the allocators of GPU and host, and of cuDNN and cuBLAS.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Of a GPU or of the host."""
    return any(text in str(error) for text in OUT_OF_MEMORY)


def free_unused() -> None:
    """Give back what torch holds of a GPU's memory and does not use."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
