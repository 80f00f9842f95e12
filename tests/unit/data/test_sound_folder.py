"""Folders of noise and of impulse responses: what is read, and a line for each kind that is of no use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.data.augment.sound_folder import digest_of_sounds, list_sounds, open_sounds
from asrtool.errors import AsrtoolError

KEY = "augment.noise_dir"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sounds, one of two channels in a folder below, and a file that is none."""
    random = np.random.default_rng(0)
    (tmp_path / "deep").mkdir()
    soundfile.write(tmp_path / "b.flac", 0.1 * random.standard_normal(900), 8000)
    soundfile.write(tmp_path / "deep" / "a.WAV", 0.1 * random.standard_normal((500, 2)), 8000)
    (tmp_path / "README").write_text("noise", encoding="utf-8")
    return tmp_path


def test_a_stretch_is_that_of_the_first_channel_and_goes_round_at_the_end(folder: Path) -> None:
    b, a = open_sounds(folder, KEY, 8000)
    expected, _ = soundfile.read(a.path, dtype="float32")
    assert (b.num_samples, a.num_samples) == (900, 500)
    np.testing.assert_array_equal(a.read(20, 100), expected[20:120, 0])
    np.testing.assert_array_equal(
        a.read(450, 1100), np.concatenate([expected[450:], expected, expected, expected])[:1100, 0]
    )


def test_a_sound_of_one_sample_is_opened_no_more_than_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(folder / "b.flac", [0.25], 8000)
    b, _ = open_sounds(folder, KEY, 8000)
    opened, read = [], soundfile.read
    monkeypatch.setattr(soundfile, "read", lambda *args, **more: opened.append(args) or read(*args, **more))
    np.testing.assert_array_equal(b.read(0, 1000), np.full(1000, 0.25, np.float32))
    assert len(opened) == 2


def test_the_digest_knows_names_and_sizes(folder: Path) -> None:
    before = digest_of_sounds(folder, KEY)
    assert digest_of_sounds(folder, KEY) == before
    soundfile.write(folder / "b.flac", np.full(2000, 0.1), 8000)
    second = digest_of_sounds(folder, KEY)
    (folder / "b.flac").rename(folder / "c.flac")
    assert len({before, second, digest_of_sounds(folder, KEY)}) == 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", r"augment\.noise_dir: .*gone is no folder that exists; name a folder"),
        ("no sound", r"augment\.noise_dir: .* has no sound file, expected some of \*\.wav"),
        ("rate", r"augment\.noise_dir: .*c\.wav has 16000 samples a second, expected 8000; convert the folder"),
        ("garbage", r"augment\.noise_dir: .*c\.wav cannot be read: .*; remove or repair it"),
        ("silent", r"augment\.noise_dir: .*c\.wav is silent; remove it"),
        ("no samples", r"augment\.noise_dir: .*c\.wav is silent; remove it"),
        ("not numbers", r"augment\.noise_dir: .*c\.wav has samples that are no numbers; remove or repair it"),
    ],
)
def test_a_folder_that_is_of_no_use_is_one_line(folder: Path, damage: str, message: str) -> None:
    path = folder / "c.wav"
    if damage == "missing":
        folder = folder / "gone"
    elif damage == "no sound":
        for sound in list_sounds(folder, KEY):
            sound.unlink()
    elif damage == "garbage":
        path.write_bytes(b"RIFF of nothing")
    else:
        samples = {"rate": np.ones(99), "not numbers": np.full(9, np.nan), "no samples": np.zeros(0)}
        rate_hz = 16000 if damage == "rate" else 8000
        soundfile.write(path, samples.get(damage, np.zeros(200_000)), rate_hz, subtype="FLOAT")
    with pytest.raises(AsrtoolError, match=message) as raised:
        open_sounds(folder, KEY, 8000)
    assert "\n" not in str(raised.value)


def test_a_sound_that_begins_with_silence_is_of_use(folder: Path) -> None:
    soundfile.write(folder / "c.wav", np.concatenate([np.zeros(200_000), [0.5]]), 8000)
    assert [sound.path.name for sound in open_sounds(folder, KEY, 8000)] == ["b.flac", "c.wav", "a.WAV"]


def test_a_file_that_goes_or_shrinks_while_it_is_used_is_named(folder: Path) -> None:
    b, _ = open_sounds(folder, KEY, 8000)
    soundfile.write(b.path, np.full(100, 0.1), 8000)
    with pytest.raises(AsrtoolError, match=r"b\.flac has changed or is cut off; restore the file"):
        b.read(0, 900)
    soundfile.write(folder / "b.wav", np.append(np.full(200_000, 0.1), np.nan), 8000, subtype="FLOAT")
    with pytest.raises(AsrtoolError, match=r"b\.wav has samples that are no numbers; remove or repair it"):
        open_sounds(folder, KEY, 8000)[1].read(199_000, 1001)  # behind what is looked at before
    b.path.unlink()
    with pytest.raises(AsrtoolError, match=r"b\.flac cannot be read: .*; restore the file"):
        b.read(0, 900)
