"""Speech recognition for conversational telephone speech.

`load` opens a trained recogniser, `from_bundle` its network, `load_lm` a language model; `prepare` makes manifests of
data; `wer`, `cer`, `score_wer` and `score_hub5` count errors. See docs/guide/python.md. All else is internal.

Rooms, in the order of the data:

- `cli` commands; `recipe` stages and their engine; `settings` all settings, TOML files, registry
- `local` corpora, layouts and text rules; `data` manifests, audio, features and their storage
- `lang` tokens, n-grams, decoding graphs; `models` encoders, objectives, language models
- `distributed` strategies and learners; `train` loop, batches, checkpoints; `jobs` trainings on Slurm and Kubernetes
- `decode` search, alignment, tuning; `score` NIST's scoring; `report` results as pages and figures
- `transcribe` audio files to transcripts; `bundle` a recogniser as one file; `predict` theory, simulation, estimates
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asrtool.api import Recogniser, from_bundle, load, load_lm, prepare
    from asrtool.errors import AsrtoolError
    from asrtool.score.hub5 import score_hub5
    from asrtool.score.wer import cer, score_wer, wer
    from asrtool.version import __version__

__all__ = [
    "AsrtoolError",
    "Recogniser",
    "__version__",
    "cer",
    "from_bundle",
    "load",
    "load_lm",
    "prepare",
    "score_hub5",
    "score_wer",
    "wer",
]
_PLACES = {
    "__version__": "asrtool.version",
    "AsrtoolError": "asrtool.errors",
    "Recogniser": "asrtool.api",
    "cer": "asrtool.score.wer",
    "from_bundle": "asrtool.api",
    "load": "asrtool.api",
    "load_lm": "asrtool.api",
    "prepare": "asrtool.api",
    "score_hub5": "asrtool.score.hub5",
    "score_wer": "asrtool.score.wer",
    "wer": "asrtool.score.wer",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'asrtool' has no attribute {name!r}, but {', '.join(__all__)}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
