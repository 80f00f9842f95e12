"""Optimizers of torch without the import of its compiler.

`torch.optim` guards `step` and other methods against compilation, and loads torch._dynamo when one is first called,
in 1.6 s of CPU time, two fifths of a process's start. Here the methods are the ones inside the guards. A custom
optimizer that is not `Eager` loads it.
"""

from __future__ import annotations

import inspect

import torch


class Eager(torch.optim.Optimizer):
    """Base class: methods of torch without guards."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(Eager, torch.optim.AdamW):
    """AdamW of torch, to the same bits."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class SGD(Eager, torch.optim.SGD):
    """SGD of torch, to the same bits."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))
