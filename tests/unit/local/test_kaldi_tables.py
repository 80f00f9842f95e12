"""Tables of a Kaldi data directory as columns of numbers: as lhotse reads them, in any order, in little memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from lhotse.kaldi import load_kaldi_data_dir
from lhotse.utils import add_durations
from memory import peak_bytes
from small_releases import supervisions

from asrtool.errors import AsrtoolError
from asrtool.local.layouts.kaldi import length_s, prepare_kaldi
from asrtool.local.layouts.kaldi_tables import Table
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)
NAMES, RATES_HZ = ("north", "south", "west"), (8000, 11025, 16000)
DURATION_S = 20.0


def write_directory(folder: Path, num: int, names: Sequence[str] = NAMES) -> Path:
    """Recordings of three rates with `num` utterances of each, some of which overlap or begin together."""
    draw = random.Random(1)
    tables: dict[str, list[str]] = {}
    for name, rate_hz in zip(names, itertools.cycle(RATES_HZ), strict=False):
        path = folder.parent / f"{rate_hz}.wav"
        if not path.is_file():
            soundfile.write(path, np.zeros(int(DURATION_S * rate_hz)), rate_hz)
        tables.setdefault("wav.scp", []).append(f"{name} {path}")
        for number in range(num):
            id_, begin = f"{name}-{number:05d}", draw.choice([1.5, round(draw.uniform(0, 18), 5)])
            end = draw.choice([begin + 0.333, begin + draw.uniform(0.1, 2.0)])
            for table, value in (
                ("segments", f"{name} {begin} {end}"), ("text", f"word about nothing {draw.choice('abc')}"),
                ("utt2spk", f"speaker{draw.randrange(9)}"),
            ):  # fmt: skip
                tables.setdefault(table, []).append(f"{id_} {value}")
    folder.mkdir()
    for table, lines in tables.items():
        (folder / table).write_text("".join(f"{line}\n" for line in lines))
    return folder


def shuffle(folder: Path) -> None:
    for number, path in enumerate(sorted(folder.iterdir())):
        lines = path.read_text().splitlines(keepends=True)
        random.Random(number).shuffle(lines)
        path.write_text("".join(lines))


@given(st.floats(0, 40_000), st.floats(0, 40_000), st.sampled_from([8000, 11025, 16000, 44100]))
def test_a_duration_is_that_of_lhotse(start_s: float, end_s: float, rate_hz: int) -> None:
    assert length_s(start_s, end_s, rate_hz) == add_durations(end_s, -start_s, sampling_rate=rate_hz)


def test_a_directory_is_read_as_by_lhotse(tmp_path: Path) -> None:
    data = write_directory(tmp_path / "data", 20)
    (data / "reco2dur").write_text("".join(f"{name} {DURATION_S}\n" for name in NAMES))
    _, theirs, _ = load_kaldi_data_dir(data, max(RATES_HZ))
    prepare_kaldi(data, tmp_path / "m", Data(), "x")
    assert theirs is not None
    ordered = sorted(theirs, key=lambda s: (s.recording_id, s.start, s.channel, s.id))
    assert supervisions(tmp_path / "m") == [s.to_dict() for s in ordered]


def test_the_order_of_lines_does_not_count(tmp_path: Path) -> None:
    data = write_directory(tmp_path / "data", 300)
    prepare_kaldi(data, tmp_path / "m", Data(), "x")
    shuffle(data)
    prepare_kaldi(data, tmp_path / "n", Data(), "x")
    assert supervisions(tmp_path / "m") == supervisions(tmp_path / "n")
    assert (tmp_path / "m" / "ref.stm").read_bytes() == (tmp_path / "n" / "ref.stm").read_bytes()


def test_a_table_that_changes_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_directory(tmp_path / "data", 2)
    find = Table.find

    def change(table: Table, ids: np.ndarray) -> np.ndarray:
        text = (data / "text").read_text()
        (data / "text").write_text(text.replace("north-00000", "north-00009"))
        return find(table, ids)

    monkeypatch.setattr(Table, "find", change)
    with pytest.raises(AsrtoolError, match="text: has changed while it was read; run the command again"):
        prepare_kaldi(data, tmp_path / "m", LENIENT, "x")


def test_two_ids_of_one_hash_are_not_one_id_given_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("a one\nb two\n")
    monkeypatch.setattr("asrtool.local.layouts.kaldi_tables.hash", lambda _: 1, raising=False)
    assert Table(tmp_path / "text").read(np.array([1, 0])) == [("b", "two"), ("a", "one")]
    (tmp_path / "text").write_text("a one\nb two\na three\n")
    with pytest.raises(AsrtoolError, match="text, line 3: a was there before"):
        Table(tmp_path / "text")


def test_rows_are_read_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"u{row} {'word ' * row}\n" for row in range(10)))
    table = Table(tmp_path / "text", allow_empty=True)
    for seed in range(20):
        rows = random.Random(seed).choices(range(10), k=seed)
        assert table.read(np.array(rows, dtype=int)) == [(f"u{row}", " ".join(["word"] * row)) for row in rows]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_utterances(tmp_path: Path) -> None:
    """But for columns of numbers and the compressed reference: objects and staged tables took 2,300 bytes each."""

    def peak(num_recordings: int) -> int:
        names = [f"call{number:02d}" for number in range(num_recordings)]
        data = write_directory(tmp_path / str(num_recordings), 60, names)
        return peak_bytes(lambda: prepare_kaldi(data, tmp_path / "m", Data(), "x"))

    assert (peak(24) - peak(12)) / (12 * 60) < 400
