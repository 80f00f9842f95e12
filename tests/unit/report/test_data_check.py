"""`asrtool check`: faults planted in a folder of sounds are found, and nothing else is."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from commands import error_of, run_command
from scipy.signal import resample_poly

from asrtool.cli.main import cli
from asrtool.data.audio.quality import Measures, Unreadable
from asrtool.data.manifests.manifest import Drop, format_drops, read_drops, rejected
from asrtool.files import MARK
from asrtool.report.data_check import LISTED, MIN_UTTERANCES, check_rejected, find
from asrtool.settings.data import Features

RATE_HZ = 16000
GOOD = Measures("u", "r", "s", 3.0, RATE_HZ, 36, -6.0, -20.0, -60.0, 0.0, 8000.0)
NUM = 30
Change = Callable[[np.ndarray], np.ndarray]  # of the samples of an utterance


def found(*changes: dict[str, object]) -> dict[str, list[int]]:
    """Findings in NUM good utterances and one with each of `changes` -> count and total."""
    good = [dataclasses.replace(GOOD, id=f"u{i}", characters=30 + i % 10) for i in range(NUM)]
    changed = [dataclasses.replace(GOOD, id=f"x{i}", **change) for i, change in enumerate(changes)]  # type: ignore[arg-type]
    return {f.what: [f.count, f.total] for f in find([*good, *changed], [], [], NUM, Features())}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"speech_db": -70.0, "noise_db": -80.0}, "silence instead of speech"),
        ({"duration_s": 1.4}, "more text than fits the audio"),
        ({"characters": 15}, "more audio than fits the text"),
        ({"clipped": 0.01}, "clipped"),
        ({"noise_db": -25.0}, "noise near the level of speech"),
        ({"speech_db": -50.0}, "very quiet"),
        ({"duration_s": 0.1, "characters": 1}, "shorter than 0.2 s"),
    ],
)
def test_each_fault_is_found_alone(change: dict[str, object], what: str) -> None:
    assert found() == {}
    assert found(change) == {what: [1, NUM + 1]}


def test_paths_below_manifests_are_relative_since_the_folder_may_be_temporary(tmp_path: Path) -> None:
    drops = [Drop("u", "unusable audio", f"{tmp_path}/some/u.wav: cut off")]
    rejected(tmp_path / "some").write_text(format_drops(drops), encoding="utf-8")
    text, _ = check_rejected(tmp_path / "some", None)
    assert "| u.wav: cut off |" in text
    assert str(tmp_path) not in text


def test_how_fast_people_speak_is_known_of_enough_utterances_only() -> None:
    assert found({"characters": 0}) == {}
    cut = dataclasses.replace(GOOD, id="cut", duration_s=1.0)
    assert find([GOOD] * (MIN_UTTERANCES - 2) + [cut], [], [], 1, Features()) == []
    assert [f.count for f in find([GOOD] * (MIN_UTTERANCES - 1) + [cut], [], [], 1, Features())] == [1]


def test_other_rates_and_sound_of_a_lower_rate_are_found_with_the_setting_that_helps() -> None:
    narrow = [dataclasses.replace(GOOD, bandwidth_hz=3900.0)] * 5
    (finding,) = find([*narrow, GOOD], [], [], 6, Features())
    assert finding.what == "nothing above 3900 Hz in audio of 16000 Hz"
    assert "features.sampling_rate_hz = 8000" in finding.advice
    assert finding.count == 5
    other = dataclasses.replace(GOOD, sampling_rate_hz=8000, bandwidth_hz=4000.0)
    assert found({"sampling_rate_hz": 8000, "bandwidth_hz": 4000.0}) == {
        "another sampling rate than the usual 16000 Hz": [1, NUM + 1]
    }
    assert find([other] * 3, [], [], 3, Features()) == []


def test_settings_that_are_set_are_no_advice() -> None:
    narrow = [dataclasses.replace(GOOD, bandwidth_hz=3900.0)] * 5
    others = [dataclasses.replace(GOOD, sampling_rate_hz=8000, bandwidth_hz=4000.0)]
    for features, of_rates, of_band in (
        (Features(sampling_rate_hz=0), "features.resample = true, as", "set features.resample = true, features.samp"),
        (
            Features(sampling_rate_hz=0, resample=True),
            "all are brought to one rate",
            "set features.sampling_rate_hz = 8000",
        ),
        (
            Features(sampling_rate_hz=8000, resample=True),
            "all are brought to one rate",
            "it was recorded at a lower rate",
        ),
    ):
        rates, band = find([*narrow, *others], [], [], 6, features)
        assert rates.advice.startswith(of_rates)
        assert of_band in band.advice
    assert "set" not in band.advice


def test_what_cannot_be_read_or_was_set_aside_comes_first() -> None:
    drops = [Drop("a", "no audio"), Drop("b", "no audio", "gone"), Drop("c", "empty")]
    findings = find([dataclasses.replace(GOOD, clipped=0.5)], [Unreadable("r", "cut")], drops, 9, Features())
    assert [f.what for f in findings] == [
        "set aside: no audio",
        "set aside: empty",
        "audio that cannot be read to its end",
        "clipped",
    ]
    assert [(f.count, f.total) for f in findings[:3]] == [(2, 12), (1, 12), (1, 9)]


def test_faults_planted_in_a_folder_are_found_with_the_file_and_nothing_else_is(tmp_path: Path) -> None:
    faults: dict[int, tuple[str, Change]] = {
        3: ("more text than fits the audio", lambda samples: samples[: len(samples) // 5 * 2]),
        5: ("silence instead of speech", lambda samples: samples / 10000),
        7: ("clipped", lambda samples: np.clip(100 * samples, -0.5, 0.5)),
    }
    folder = write_pairs(tmp_path / "data", NUM, "flac", {number: change for number, (_, change) in faults.items()})
    cut = folder / "u09.flac"
    cut.write_bytes(cut.read_bytes()[:5000])
    result = run_command("check", folder, tmp_path / "out")
    rows = [line.strip("| ").split(" | ") for line in result.stdout.splitlines() if line.startswith("|")]
    expected = {what: [f"1 of {NUM - 1}", f"u{number:02}"] for number, (what, _) in faults.items()}
    expected |= {"set aside: unusable audio": [f"1 of {NUM}", "u09"]}
    aside = rows.index(["set aside for a fault", "reason", "detail"])
    assert {what: [count, example.partition(":")[0]] for what, count, example, _ in rows[2:aside]} == expected
    assert [row[:2] for row in rows[aside + 2 : rows.index(["what there is"])]] == [["u09", "unusable audio"]]
    page = (tmp_path / "out/check.md").read_text(encoding="utf-8")
    assert result.stdout in page
    for name in re.findall(r"\]\((.*?)\)", page):
        assert (tmp_path / "out" / name).stat().st_size > 50, name
    assert len((tmp_path / "out/utterances.tsv").read_text().splitlines()) == NUM  # a heading, and one is not readable


def write_pairs(folder: Path, num: int, kind: str = "wav", faults: Mapping[int, Change] | None = None) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(num):
        samples = sounds_like_speech(rng)
        samples = faults[number](samples) if faults and number in faults else samples
        soundfile.write(folder / f"u{number:02}.{kind}", samples, RATE_HZ)
        (folder / f"u{number:02}.txt").write_text("word " * 6)
    return folder


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def run_check(*words: object, caplog: pytest.LogCaptureFixture) -> str:
    """Return the output; no temporary path is named in it."""
    with caplog.at_level(logging.INFO):
        result = CliRunner().invoke(cli, ["check", *map(str, words)])
    said = f"{result.output}{result.exception or ''}{caplog.text}"
    assert "asrtool-check-" not in said
    assert result.exit_code == (1 if result.exception else 0)
    return f"{result.stdout}{result.exception or ''}"


def test_what_prepare_would_refuse_is_reported_with_all_that_it_sets_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_pairs(tmp_path / "data", NUM)
    for name in ("u03", "u07"):
        halve(folder / f"{name}.wav")
    soundfile.write(folder / "u09.wav", np.zeros((RATE_HZ, 2)), RATE_HZ)
    (folder / "u11.txt").write_text("room 42")
    said = run_check(folder, tmp_path / "out", caplog=caplog)
    rows = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("|")]
    assert ["set aside: unusable audio", f"3 of {NUM}"] in [row[:2] for row in rows]
    assert ["set aside: unknown characters", f"1 of {NUM}"] in [row[:2] for row in rows]
    begin = rows.index(["set aside for a fault", "reason", "detail"])
    listed = rows[begin + 2 : begin + 6]
    assert [row[:2] for row in listed] == [
        *([f"u{number}", "unusable audio"] for number in ("03", "07", "09")),
        ["u11", "unknown characters"],
    ]
    assert listed[0][2].startswith(f"{folder}/u03.wav: cut off: ")
    assert ["utterances", f"{NUM - 4}"] in rows
    assert said in (tmp_path / "out/check.md").read_text(encoding="utf-8")
    drops = read_drops(tmp_path / "out" / "dropped.tsv")
    assert [[drop.id, drop.reason, drop.detail] for drop in drops] == listed


def test_data_without_one_usable_utterance_has_a_report_and_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_pairs(tmp_path / "data", LISTED + 5)
    for path in folder.glob("*.wav"):
        halve(path)
    said = run_check(folder, tmp_path / "out", caplog=caplog)
    assert said.count(": cut off: ") == LISTED + 1  # and an example
    assert "So are 5 more; dropped.tsv in OUT has all." in said
    assert said.endswith(f"{folder}: not one usable utterance; correct what is set aside or cannot be read")
    assert len(read_drops(tmp_path / "out" / "dropped.tsv")) == LISTED + 5
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "check.md", "dropped.tsv"]


def test_audio_that_a_command_wrote_is_named_by_the_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_pairs(tmp_path / "data", 3)
    soundfile.write(folder / "u01.wav", np.zeros((RATE_HZ, 2)), RATE_HZ)
    (folder / "wav.scp").write_text("".join(f"u{i:02} cat {folder}/u{i:02}.wav |\n" for i in range(3)))
    for name, value in (("text", "one two"), ("utt2spk", "s")):
        (folder / name).write_text("".join(f"u{i:02} {value}\n" for i in range(3)))
    said = run_check(folder, caplog=caplog)
    assert re.search(
        rf"\| u01 \| unusable audio \| cat {folder}/u01.wav: 2 channels, expected 1 channel; mix the channels", said
    )


def test_data_that_cannot_be_read_are_an_error_that_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x.txt").write_text("hello")
    said = run_check(data, tmp_path / "out", caplog=caplog)
    assert said.startswith(f"{data}: no audio file with a text beside it")
    assert not (tmp_path / "out").exists()
    entries = {
        "recordings": {"id": "r", "sources": [], "sampling_rate": 8000, "num_samples": 8000, "duration": 9.0},
        "supervisions": {"id": "u", "recording_id": "r", "start": 0, "duration": 1, "channel": 0, "text": "a"},
    }
    folder = tmp_path / "lhotse"
    folder.mkdir()
    for name, entry in entries.items():
        (folder / f"{name}.jsonl").write_text(2 * (json.dumps(entry) + "\n"))
    said = run_check(folder, caplog=caplog)
    assert said.startswith(f"{folder}: two recordings are r")


def test_a_folder_of_manifests_is_listened_to_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    narrow = resample_poly(sounds_like_speech(np.random.default_rng(1))[::2], 2, 1)
    soundfile.write(folder / "a.wav", narrow, RATE_HZ)
    (folder / "a.txt").write_text("one two")
    run_command("prepare", "folder", folder, tmp_path / "m")
    there, prepared = (run_command("check", path).stdout for path in (folder, tmp_path / "m"))
    assert there == prepared
    assert "features.resample = true, features.sampling_rate_hz = 8000" in there


def sounds_like_speech(rng: np.random.Generator) -> np.ndarray:
    """Bursts of noise with pauses, for three seconds or so."""
    bursts = np.repeat(rng.permutation([0.05] * 8 + [0.0005] * 4), rng.integers(3500, 5000))
    return np.asarray(bursts * rng.normal(0, 1, len(bursts)), dtype=np.float32)


def test_a_place_that_would_not_be_replaced_is_named_before_anything_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    monkeypatch.setattr("asrtool.local.layouts.detect.prepare_any", None)
    error = error_of("check", tmp_path / "data", tmp_path / "other")
    assert "other: holds other files and would be replaced" in str(error)
