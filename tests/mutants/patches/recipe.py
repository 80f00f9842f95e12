"""Slips in asrtool/recipe."""

from . import Patch

PATCHES = (
    # Decoding
    Patch(
        "files-that-settings-name-do-not-count",
        "asrtool/recipe/state.py",
        "for path in named if path",
        "for path in named[:0]",
        ("tests/unit/recipe/test_fingerprint.py",),
    ),
    Patch(
        "contents-are-known-by-modification-time-alone",
        "asrtool/recipe/contents.py",
        "return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]",
        "return [status.st_size, status.st_mtime_ns, 0, 0]",
        ("tests/unit/recipe/test_contents.py",),
    ),
    Patch(
        "contents-that-may-change-within-a-tick-are-cached",
        "asrtool/recipe/contents.py",
        "kept = before == _stamp(file) and max(before[1:3]) < now_ns - YOUNG_NS",
        "kept = True",
        ("tests/unit/recipe/test_contents.py",),
    ),
    Patch(
        "digests-of-another-process-are-lost",
        "asrtool/recipe/contents.py",
        "self._read() | self._cached | new",
        "self._cached | new",
        ("tests/unit/recipe/test_contents.py",),
    ),
    Patch(
        "tar-files-of-releases-do-not-count",
        "asrtool/recipe/state.py",
        "for path in paths if path.is_file()",
        "for path in paths[:0]",
        ("tests/unit/recipe/test_fingerprint.py",),
    ),
)
