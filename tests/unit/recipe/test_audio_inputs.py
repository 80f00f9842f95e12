"""Audio that only manifests name, anywhere on the disk: a stage that reads it is stale where it is another."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
import toy
from toy import states

from asrtool.data.manifests import manifest
from asrtool.recipe.engine import run_stages
from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.state import Run

MANIFEST = "manifests/own/recordings.jsonl"


@pytest.fixture
def run(tmp_path: Path, toy_root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A stage that makes a manifest of audio anywhere, one that reads audio, one that does not."""
    monkeypatch.setattr(manifest, "RECORDINGS", Path(MANIFEST).name)
    sources = []
    for name in ("outside/one.wav", "outside/two.wav", "exp/manifests/audio/three.wav", "exp/four.wav"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        sources.append({"type": "file", "source": str(tmp_path / name)})
    sources[1] = {"type": "url", "source": f"file://{tmp_path}/outside/two.wav#bytes=1-9"}
    sources.append({"type": "url", "source": "https://example.org/five.wav"})
    lines = "".join(json.dumps({"id": "r", "sources": [source]}) + "\n" for source in sources)
    (tmp_path / "table").write_text(lines)
    prepare = Line(f"asrtool join {{work}}/{MANIFEST} {tmp_path}/table")
    features = Line(f"asrtool join {{work}}/features {{work}}/{MANIFEST}")
    text, folder = Line(f"asrtool join {{work}}/lm {{work}}/{MANIFEST}"), ("manifests",)
    stages = (
        Stage("prepare", "One.", makes=folder, audio_of=folder, run=(prepare,)),
        Stage("features", "Two.", needs=folder, makes=("features",), audio_of=folder, run=(features,)),
        Stage("lm", "Three.", needs=folder, makes=("lm",), run=(text,)),
    )
    made = toy.make_run(tmp_path, stages)
    assert run_stages(made, range(3)) == ["prepare", "features", "lm"]
    return made


def replace(path: Path) -> None:
    """Replace a file by another of equal size and time, as `cp -p` or `rsync -t` may."""
    before = path.stat()
    other = path.with_name("other")
    other.write_text(path.read_text().upper())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("name", ["outside/one.wav", "outside/two.wav", "exp/four.wav"])
def test_replaced_audio_is_read_again_by_stages_that_read_audio(run: Run, tmp_path: Path, name: str) -> None:
    assert states(run) == ["done"] * 3
    replace(tmp_path / name)
    changed = "stale audio of manifests changed"
    assert states(run) == [changed, changed, "stale after prepare"]
    assert run_stages(run, range(3)) == ["prepare", "features"]
    assert states(run) == ["done"] * 3


def test_touched_audio_and_the_same_behind_a_link_is_the_same(run: Run, tmp_path: Path) -> None:
    one = tmp_path / "outside" / "one.wav"
    one.touch()
    assert states(run) == ["done"] * 3
    shutil.move(one, tmp_path / "elsewhere.wav")
    one.symlink_to(tmp_path / "elsewhere.wav")
    assert states(run) == ["done"] * 3
    one.unlink()
    assert states(run)[1] == "stale audio of manifests changed"


def test_audio_in_what_a_stage_needs_or_makes_counts_with_that(run: Run, tmp_path: Path) -> None:
    replace(tmp_path / "exp" / "manifests" / "audio" / "three.wav")
    assert states(run)[:2] == ["stale manifests changed since", "stale manifests changed"]


def test_audio_in_a_work_directory_that_was_moved_counts_with_that_folder_as_well(run: Run, tmp_path: Path) -> None:
    """Manifests name it by the place where it was made."""
    moved = dataclasses.replace(run, work=run.work.rename(tmp_path / "moved"))
    assert states(moved) == ["done"] * 3
    replace(tmp_path / "moved" / "four.wav")
    assert states(moved)[0] == "stale audio of manifests changed"


def test_audio_that_a_new_manifest_does_not_name_is_no_input_any_more(run: Run, tmp_path: Path) -> None:
    lines = (tmp_path / "table").read_text().splitlines(keepends=True)
    (tmp_path / "table").write_text(lines[2])
    assert run_stages(run, range(3), force=True) == ["prepare", "features", "lm"]
    assert states(run) == ["done"] * 3


def test_a_manifest_that_cannot_be_read_is_a_change(run: Run) -> None:
    (run.work / MANIFEST).write_text("{")
    assert states(run)[1] == "stale manifests changed"
