"""The example of docs/guide/python.md, as it stands there, and that importing asrtool loads nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from toy_work import make_work

import asrtool
from asrtool.bundle.export import export_bundle

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "python.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    export_bundle(make_work(tmp_path / "work"), tmp_path / "swbd.asrtool")
    times = np.arange(8 * 8000) / 8000
    soundfile.write(tmp_path / "call.wav", 0.2 * np.sin(2 * np.pi * 300 * times * (1 + np.sin(times))), 8000)
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(example, "python.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["20.0 %", "25.0 %"]
    assert any(re.fullmatch(r" +[\d.]+ +[\d.]+ [01]\.\d\d .+", line) for line in lines)


def test_all_that_is_public_is_in_the_guide_and_there() -> None:
    for name in asrtool.__all__:
        assert f"`{name}" in PAGE
        assert getattr(asrtool, name) is not None
    assert set(asrtool.__all__) <= set(dir(asrtool))
    with pytest.raises(AttributeError, match="has no attribute 'nothing', but AsrtoolError"):
        asrtool.nothing  # noqa: B018


def test_importing_it_loads_nothing() -> None:
    script = "import asrtool, sys; assert not {'torch', 'lhotse', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)
