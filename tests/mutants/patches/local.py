"""Slips in local."""

from . import Patch

PATCHES = (
    Patch(
        "a-tar-cut-off-is-whole",
        "local/tars.py",
        "            _check_end(tar)\n",
        "",
        ("tests/unit/local/test_tars.py",),
    ),
    Patch(
        "sides-of-a-pipe-swapped",
        "local/layouts/wav_scp.py",
        "Entry(path, recording, channel - 1, 2)",
        "Entry(path, recording, 2 - channel, 2)",
        ("tests/unit/local/test_kaldi_pipes.py",),
    ),
    Patch(
        "case-of-names-counts",
        "local/releases.py",
        "PurePath(here.lower(), name.lower())",
        "PurePath(here, name)",
        ("tests/unit/local/test_collect.py",),
    ),
    Patch(
        "long-utterances-of-dev-are-cut-to-train-on",
        "local/part.py",
        "wanted = [part.is_training & ~(part.columns",
        "wanted = [~(part.columns",
        ("tests/unit/local/test_split.py",),
    ),
)
