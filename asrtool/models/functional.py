"""`functional_call`, a module computed with other weights than its own, by whichever torch this is."""

from __future__ import annotations

from asrtool.models.torch_file import IS_TORCH_1

if IS_TORCH_1:
    from torch.nn.utils.stateless import functional_call
else:
    from torch.func import functional_call  # type: ignore[assignment]

__all__ = ["functional_call"]
