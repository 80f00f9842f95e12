"""What tuning hands to decoding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asrtool.decode.trial import Trial, format_trials, read_trials
from asrtool.errors import AsrtoolError

TRIALS = (
    Trial("greedy"),
    Trial("beam", 0.5, -0.5, 16.0),
    Trial("graph", 0.8, 0.0, 14.0),
    Trial("rescore", 0.3, 0.5, 14.0, 0.4),
)


def test_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(format_trials(TRIALS))
    assert list(read_trials(path, ("greedy", "beam", "graph", "rescore")).values()) == list(TRIALS)
    assert list(read_trials(path, ("graph", "graph"))) == ["graph"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tuning, expected JSON with methods"),
        ("[]", "no tuning, expected JSON with methods"),
        ("{}", "no tuning, expected JSON with methods"),
        ('{"methods": []}', "nothing on method graph"),
        ('{"methods": {"beam": {}}}', "nothing on method graph"),
        ('{"methods": {"graph": {"lm_weight": 1}}}', "graph has .*expected a number for each of beam, lm_weight, word"),
        ('{"methods": {"graph": {"lm_weight": "1", "word_penalty": 0, "beam": 1}}}', "graph has .* expected a number"),
        ('{"methods": {"graph": 3}}', "graph has 3, expected a number"),
    ],
)
def test_a_file_that_is_no_tuning_is_one_line_that_names_the_command(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(text)
    with pytest.raises(AsrtoolError, match=rf"tuning\.json: {message}.*; run `asrtool tune`"):
        read_trials(path, ("graph",))


def test_a_missing_tuning_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"cannot be read, No such file.*; run `asrtool tune`"):
        read_trials(tmp_path / "tuning.json", ("graph",))


def test_only_what_a_method_weighs_is_written() -> None:
    assert json.loads(format_trials(TRIALS))["methods"]["greedy"] == {}
    assert "nnlm_weight" not in json.loads(format_trials(TRIALS))["methods"]["graph"]
