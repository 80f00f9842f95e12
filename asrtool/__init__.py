"""Speech recognition for conversational telephone speech; `import asrtool` loads what is asked for, when it is.

`load` opens a trained recogniser, `prepare` makes manifests of data, `score_hub5`, `score_wer`, `word_errors` and
`character_errors` count errors. docs/guide/python.md has examples. All else is internal and may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asrtool.api import Recogniser, character_errors, load, prepare, word_errors
    from asrtool.errors import AsrtoolError
    from asrtool.score.hub5 import score_hub5
    from asrtool.score.wer import score_wer
    from asrtool.version import __version__

__all__ = [
    "AsrtoolError",
    "Recogniser",
    "__version__",
    "character_errors",
    "load",
    "prepare",
    "score_hub5",
    "score_wer",
    "word_errors",
]
_PLACES = {
    "__version__": "asrtool.version",
    "AsrtoolError": "asrtool.errors",
    "Recogniser": "asrtool.api",
    "character_errors": "asrtool.api",
    "load": "asrtool.api",
    "prepare": "asrtool.api",
    "score_hub5": "asrtool.score.hub5",
    "score_wer": "asrtool.score.wer",
    "word_errors": "asrtool.api",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'asrtool' has no attribute {name!r}, but {', '.join(__all__)}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
