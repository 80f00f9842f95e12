"""Score utterance by utterance: each is a file of its own in stm and ctm.

Such an stm begins with MARK. A file is called RECORDING/UTTERANCE. These and speakers are escaped, since NIST's
scorer splits lines at blanks, takes some signs for mark-up, and ignores case.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from asrtool.score.result import BY_UTTERANCE, Result

MARK = ";; SCORED UTTERANCE BY UTTERANCE\n"
SUFFIX = ".utterances"  # suffix of the hypothesis, beside the ctm of the recordings

_UNSAFE = re.compile(rb"[^a-z0-9_.-]")
_ESCAPED = re.compile(b"=([0-9a-f]{2}|)")  # an empty name is a lone sign


def escape(name: str) -> str:
    """Escape a name for stm and ctm.

    Bytes other than a-z, 0-9, ``_``, ``.`` and ``-`` become ``=`` and two digits.
    """
    return _UNSAFE.sub(lambda match: b"=%02x" % match[0][0], name.encode()).decode() or "="


def unescape(name: str) -> str:
    """Return the name that `escape` turned into this."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode()).decode()


def file_of(recording: str, utterance: str) -> str:
    """Return the file name of an utterance in stm and ctm."""
    return f"{escape(recording)}/{escape(utterance)}"


def is_of_utterances(ref: Path) -> bool:
    """Return whether the files of an stm are utterances."""
    return ref.is_file() and ref.read_bytes().startswith(MARK.encode())


def with_names(result: Result, ref: Path) -> Result:
    """Return `result` with the original names if `ref` is by utterance."""
    if not is_of_utterances(ref):
        return result
    segments = []
    for segment in result.segments:
        recording, utterance = map(unescape, segment.file.split("/"))
        segments.append(segment._replace(id=utterance, speaker=unescape(segment.speaker), file=recording))
    segments.sort(key=lambda segment: (segment.file, segment.channel, segment.start_s or 0, segment.id))
    return dataclasses.replace(result, segments=tuple(segments), scored=BY_UTTERANCE)
