"""State of the server of `warm.py` before it forks: all modules, and digests of their sources."""

from __future__ import annotations

import contextlib
import gc
import importlib

import torch

from asrtool.recipe import source

gc.disable()  # as in tests/conftest.py
# Imports of a training, torch._dynamo for two strategies: they cost seconds in each new process.
for name in ("torch._dynamo", "matplotlib.figure", "numpy.ma", "scipy.signal", "lhotse", "PIL.Image"):
    importlib.import_module(name)
files = [path.relative_to(source.ROOT) for package in source.PACKAGES for path in (source.ROOT / package).rglob("*.py")]
modules = sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files)
for module in modules:
    with contextlib.suppress(ImportError):  # of a package that is not installed
        importlib.import_module(module)
# Setup of torch and oneDNN in a first step of training: else a third of the CPU time of a toy epoch.
if torch.version.cuda is None:  # elsewhere backward starts threads for a GPU, which do not survive a fork
    torch.nn.LSTM(2, 2)(torch.zeros(2, 1, 2))[0].sum().backward()
source.code_digests((), modules)  # which each command compares or records, unless a source has changed since
gc.freeze()
gc.enable()
