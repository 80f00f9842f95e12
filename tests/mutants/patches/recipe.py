"""Slips in asrtool/recipe."""

from . import Patch

STATE = "asrtool/recipe/state.py"

PATCHES = (
    # Decoding
    Patch(
        "files-that-settings-name-do-not-count",
        "asrtool/recipe/state.py",
        "for path in _listed(values) if path",
        "for path in _listed(values)[:0] if path",
        ("tests/unit/recipe/test_fingerprint.py",),
    ),
    Patch(
        "contents-are-known-by-modification-time-alone",
        "asrtool/recipe/contents.py",
        "{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}",
        "{status.st_mtime_ns}",
        ("tests/unit/recipe/test_contents.py",),
    ),
    Patch(
        "contents-that-may-change-within-a-tick-are-cached",
        "asrtool/recipe/contents.py",
        "old = max(after.st_mtime_ns, after.st_ctime_ns) < now_ns - YOUNG_NS",
        "old = True",
        ("tests/unit/recipe/test_contents.py",),
    ),
    Patch(
        "digests-of-another-process-are-lost",
        "asrtool/recipe/contents.py",
        "{**_load(self._work / CACHE), **new}",
        "{**self._known, **new}",
        ("tests/unit/recipe/test_contents.py",),
    ),
    Patch(
        "audio-that-prepare-finds-is-not-recorded",
        "asrtool/recipe/engine.py",
        "if set(stage.audio_of) & set(stage.makes):",
        "if not stage.makes:",
        ("tests/unit/recipe/test_audio_inputs.py",),
    ),
    Patch(
        "tar-files-of-releases-do-not-count",
        "asrtool/recipe/state.py",
        "for path in releases if path.is_file()",
        "for path in releases[:0]",
        ("tests/unit/recipe/test_fingerprint.py",),
    ),
    Patch(
        "finished-after-a-failure",
        "asrtool/recipe/engine.py",
        '        write_marker(run.work, stage.name, {**unfinished, "failed": True})\n        raise\n',
        "        write_marker(run.work, stage.name, before)\n        raise\n",
        ("tests/unit/recipe/test_engine.py",),
    ),
    Patch(
        "changed-output-is-done",
        STATE,
        'if digest != marker["makes"].get(path):',
        "if not digest:",
        ("tests/unit/recipe/test_engine.py",),
    ),
    Patch(
        "missing-output-unnoticed",
        "asrtool/recipe/engine.py",
        "missing = [path for path in stage.makes if",
        "missing = [path for path in () if",
        ("tests/unit/recipe/test_engine.py",),
    ),
)
