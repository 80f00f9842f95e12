"""The examples of docs/guide/python.md, as they stand there, and that importing asrtool loads nothing."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lhotse
import numpy as np
import pytest
import soundfile
import torch
from toy_work import make_work

import asrtool
from asrtool.bundle.export import export_bundle

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "python.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    export_bundle(make_work(tmp_path / "work"), tmp_path / "swbd.asrtool")
    times = np.arange(8 * 8000) / 8000
    for name in ("call.wav", "a.wav"):
        soundfile.write(tmp_path / name, 0.2 * np.sin(2 * np.pi * 300 * times * (1 + np.sin(times))), 8000)
    monkeypatch.chdir(tmp_path)
    calls = lhotse.CutSet.from_cuts([lhotse.Recording.from_file("call.wav").to_cut()])
    calls.to_file("cuts.jsonl.gz")
    (tmp_path / "exp" / "lm").mkdir(parents=True)
    unigrams = "".join(f"-1.0\t{word}\n" for word in ("<s>", "</s>", "<unk>"))
    Path("exp/lm/G.arpa").write_text(f"\\data\\\nngram 1=3\n\n\\1-grams:\n{unigrams}\n\\end\\\n")
    first, *others = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict[str, Any] = {"lhotse": lhotse, "torch": torch}
    exec(compile(first, "python.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["20.0 %", "25.0 %"]
    assert any(re.fullmatch(r" +[\d.]+ +[\d.]+ [01]\.\d\d .+", line) for line in lines)
    with asrtool.load("swbd.asrtool") as names["recogniser"]:
        for other in others:
            exec(compile(other, "python.md", "exec"), names)
        words = names["recogniser"].transcribe("call.wav").text.split()
    transcribed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert transcribed[:2] == ["a", "audio"]
    assert [float(number) for number in transcribed[-2:]] == pytest.approx([-6 * math.log(10), 10])
    (cut,) = lhotse.CutSet.from_file("recognised.jsonl.gz")
    assert " ".join(each.text for each in cut.supervisions) == " ".join(words)
    assert names["scores"].shape[1] == names["lengths"][0]


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
