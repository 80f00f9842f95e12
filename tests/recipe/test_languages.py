"""Other languages than English through the whole recipe: Cyrillic, accented Latin and Chinese, said by espeak-ng."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from warm import run_asrtool

from asrtool.lang.tokenizer import Tokenizer
from asrtool.local.mini.espeak import Espeak, Voice

ROOT = Path(__file__).resolve().parents[2]
RATE_HZ = 8000
# Language: accent, rules, words, and what stands between these in the transcripts.
RUSSIAN = ("zle/ru", "unicode", ["молоко", "ёлка", "здравствуйте", "объём", "ночь", "четыре", "спасибо", "хорошо"], " ")
FRENCH = ("roa/fr", "unicode", ["été", "où", "garçon", "naïve", "forêt", "déjà", "élève", "aujourd'hui"], " ")
CHINESE = ("sit/cmn", "characters", [*"一三五六八九好天"], "")
LEARNED = [
    "features.fbank.num_mel_bins=40", "features.speeds=1.0", "features.num_jobs=1",
    "model.lstm.num_layers=1", "model.lstm.hidden_size=64", "model.lstm.dropout=0",
    "model.lstm.conv_channels=0", "model.ctc.consistency=0",
    "train.num_epochs=11", "train.peak_lr=0.007", "train.batch_s=8",
    "decode.methods=greedy,graph", "decode.graph.lm_weights=0.3", "decode.num_jobs=1",
]  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]


def say(folder: Path, language: tuple[str, str, list[str], str]) -> set[str]:
    """Write `folder`/train and test, with texts as a person would write them; returns the words."""
    accent, _, words, between = language
    draw = random.Random(accent)
    voices = [Voice(accent, variant, "M", pitch, rate) for variant, pitch, rate in (("m1", 50, 160), ("f2", 55, 170))]
    with Espeak(7, RATE_HZ) as espeak:
        for part, num in (("train", 160), ("test", 20)):
            for number in range(num):
                said = draw.choices(words, k=draw.randint(2, 4))
                samples, _ = espeak.speak(said, voices[number % 2])
                path = folder / part / f"speaker{number % 2}" / f"{number:03d}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(path, np.pad(samples, RATE_HZ // 10), RATE_HZ)
                path.with_suffix(".txt").write_text(
                    between.join(said).capitalize() + ("!" if between else "。"), "utf-8"
                )
    return set(words)


@pytest.mark.parametrize("language", [RUSSIAN, FRENCH, CHINESE], ids=["russian", "french", "chinese"])
def test_a_language_is_learned(language: tuple[str, str, list[str], str], tmp_path: Path) -> None:
    words = say(tmp_path, language)
    work = tmp_path / "work"
    settings = [f"paths.own_train={tmp_path / 'train'}", f"paths.own_dev={tmp_path / 'test'}"]
    settings += [f"paths.own_test={tmp_path / 'test'}", f"data.text_rules={language[1]}", *LEARNED]
    settings += ["tokenizer.byte_fallback=true"] if language is CHINESE else []
    overrides = [word for setting in settings for word in ("--set", setting)]
    run_asrtool(["run", "--recipe", "recipes/own", "--work", str(work), *overrides], ROOT)
    score = json.loads((work / "score" / "own" / "graph" / "score.json").read_text())["overall"]
    assert score["err"] <= 0.1 * score["words"], score
    assert score["char_err"] <= 0.1 * score["chars"], score
    lines = (work / "decode" / "own" / "greedy.ctm").read_text(encoding="utf-8").splitlines()
    assert len({line.split()[4] for line in lines} & words) >= len(words) - 1
    tokenizer = Tokenizer.load(work / "tokenizer")
    if language is CHINESE:
        assert "<0xE4>" in tokenizer.pieces
        assert [len(tokenizer.encode(word)) for word in words] == [1] * len(words)
        assert (score["chars"], score["char_err"]) == (score["words"], score["err"])
    wer, cer = (
        f"{rate:.1f}" for rate in (100 * score["err"] / score["words"], 100 * score["char_err"] / score["chars"])
    )
    results = (work / "RESULTS.md").read_text(encoding="utf-8")
    assert re.search(rf"\| graph \| 0\.3 \| {wer} \| [^|]+ \| {cer} \|", results)
