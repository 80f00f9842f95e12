"""Model files of torch and as safetensors: round trip, damage, and a full disk."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from memory import peak_bytes
from safetensors.torch import load_file

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model, load_model, save_model
from asrtool.models.files import torch_file
from asrtool.models.files.file_info import check_digest
from asrtool.models.files.safetensors_file import read_safe, write_safe
from asrtool.models.files.torch_file import read_torch, write_torch
from asrtool.settings.config import to_table
from asrtool.settings.data import Features
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

SETTINGS = Model(encoder=Choice.of("encoder", "lstm", num_layers=1, hidden_size=4, stack_frames=2, dropout=0.3))
INFO = {
    "model": to_table(SETTINGS),
    "features": to_table(Features()),
    "num_features": 5,
    "num_tokens": 6,
}


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    save_model(tmp_path / "model.pt", build_model(SETTINGS, 5, 6), INFO)
    return tmp_path / "model.pt"


def test_a_model_comes_back_with_its_weights_and_settings_and_without_dropout(model_path: Path) -> None:
    torch.manual_seed(1)
    expected = build_model(SETTINGS, 5, 6).eval()
    model, info = load_model(str(model_path))
    assert info == INFO
    feats_NTF, lens_N = torch.randn(2, 7, 5), torch.tensor([7, 4])
    torch.testing.assert_close(model(feats_NTF, lens_N), expected(feats_NTF, lens_N), rtol=0, atol=0)


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "small.pt"
    write_torch(path, {"weights": torch.arange(10.0)})
    whole = path.read_bytes()
    for position in range(len(whole)):
        changed = whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :]
        for data in (whole[:position], changed):
            path.write_bytes(data)
            with pytest.raises(AsrtoolError, match=r"small\.pt: no test file, or a damaged one"):
                read_torch(path, "test file", ("weights",))


@pytest.mark.parametrize("size", [0, 31, 32, 2**20, 2**20 + 31, 2**20 + 32, 2**21 + 7])
def test_the_digest_is_found_wherever_pieces_of_the_file_end(tmp_path: Path, size: int) -> None:
    data, path = os.urandom(size), tmp_path / "a.pt"
    path.write_bytes(data + hashlib.sha256(data).digest())
    check_digest(path, "test file")
    path.write_bytes(data + hashlib.sha256(data + b"0").digest())
    with pytest.raises(AsrtoolError, match="its checksum does not match"):
        check_digest(path, "test file")


@pytest.mark.skipif(sys.platform != "linux", reason="no list of what is mapped to memory but on Linux")
@pytest.mark.skipif(torch_file.IS_TORCH_1, reason="torch 1 cannot map a file")
def test_weights_are_mapped_so_that_forked_searches_do_not_hold_them(model_path: Path) -> None:
    model, _ = load_model(model_path)
    with open("/proc/self/maps", encoding="utf-8") as file:
        maps = [line.split() for line in file if line.rstrip().endswith(str(model_path))]
    (begin, end), *_ = ([int(part, 16) for part in fields[0].split("-")] for fields in maps)
    assert all(begin <= weight.data_ptr() < end for weight in model.parameters())


def in_memory(content: dict[str, object]) -> bytes:
    """Make the same file at once."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()[:-2] + (32).to_bytes(2, "little")
    return data + hashlib.sha256(data).digest()


CONTENTS = {
    "nothing": {},
    "no tensor": {"text": "é" * 5000, "numbers": [1, 2.5, None]},
    "tensors": {
        "shared": [MATRIX := torch.randn(300, 500), MATRIX[1:, ::3]],
        "empty": torch.zeros(0),
        "n": torch.ones(3),
    },
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_file_has_the_bytes_that_it_would_have_if_made_in_memory(tmp_path: Path, content: dict[str, object]) -> None:
    write_torch(tmp_path / "a.pt", content)
    assert (tmp_path / "a.pt").read_bytes() == in_memory(content)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are released on Linux alone")
def test_a_file_in_many_pieces_has_the_same_bytes_and_each_is_on_the_disk_before_its_pages_are_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def sync(file: int) -> None:
        calls.append(("sync", os.fstat(file).st_size))

    def advise(file: int, begin: int, length: int, advice: int) -> None:
        assert (begin, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        calls.append(("release", os.fstat(file).st_size))

    monkeypatch.setattr(torch_file, "PIECE_BYTES", 7)
    monkeypatch.setattr(torch_file, "HELD_BYTES", 1000)
    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    content = {"weights": torch.randn(1000)}
    write_torch(tmp_path / "a.pt", content)
    assert (tmp_path / "a.pt").read_bytes() == in_memory(content)
    assert len(calls) >= 8
    assert [what for what, _ in calls] == ["sync", "release"] * (len(calls) // 2)
    sizes = [size for _, size in calls]
    assert sizes[::2] == sizes[1::2]
    assert all(1000 <= later - size < 1007 for size, later in itertools.pairwise([0, *sizes[::2]]))


def test_writing_takes_no_memory_for_the_file(tmp_path: Path) -> None:
    content = {"weights": torch.zeros(1_000_000)}
    assert peak_bytes(lambda: write_torch(tmp_path / "a.pt", content)) < 400_000


def test_all_bytes_are_on_the_disk_before_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, on_disk = tmp_path / "a.pt", []

    def fsync(file: int) -> None:
        on_disk.append((path.exists(), os.fstat(file).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    write_torch(path, {"weights": torch.arange(10.0)})
    assert on_disk == [(False, path.stat().st_size)]


def test_an_interruption_while_a_tensor_is_written_is_that_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def update(self, data: bytes) -> None:
            if len(data) > 1000:
                raise KeyboardInterrupt

    monkeypatch.setattr(hashlib, "sha256", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_torch(tmp_path / "a.pt", {"weights": torch.zeros(1000)})
    assert list(tmp_path.iterdir()) == []


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit(3)",)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    write_torch(tmp_path / "evil.pt", {"format": 2, "info": {}, "weights": Evil()})
    with pytest.raises(AsrtoolError, match=r"evil\.pt: no model file: Weights only load failed"):
        load_model(tmp_path / "evil.pt")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"format": 1}, "no model file, it has no 'info'"),
        ({"format": 1, "info": INFO, "weights": {}}, "format 1, expected 2; train and average again"),
        ({"format": 99, "info": INFO, "weights": {}}, "format 99, expected 2; train and average again"),
        ({"format": 2, "info": INFO, "weights": {}}, "weights that do not fit their settings"),
    ],
)
def test_a_file_of_another_kind_or_format_is_refused(tmp_path: Path, content: dict[str, object], reason: str) -> None:
    write_torch(tmp_path / "other.pt", content)
    with pytest.raises(AsrtoolError, match=rf"other\.pt: .*{reason}"):
        load_model(tmp_path / "other.pt")
    with pytest.raises(AsrtoolError, match=r"^none\.pt: cannot be read, No such file"):
        load_model("none.pt")


@pytest.mark.no_room
def test_a_disk_that_is_full_in_the_middle_of_a_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"a\.pt: cannot be written, file too large; free some space"):
        write_torch(tmp_path / "a.pt", {"weights": torch.zeros(1_000_000)})
    assert list(tmp_path.iterdir()) == []


KEYS = ("format", "info", "weights")


def content() -> dict[str, Any]:
    tied = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    weights = OrderedDict({"a.b": tied, "a": tied, "c": torch.tensor(3), "half": torch.ones(2, dtype=torch.bfloat16)})
    info = {"model": {"encoder": "lstm", "rate": 0.25, "none": None, "list": [1, "x"]}, "tree": {"leaves": tied.T}}
    return {"format": 2, "info": info, "weights": weights}


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    return bool(found == expected)


def test_all_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safe(path, content())
    assert same(read_safe(path, "model file", KEYS), content())
    assert same(read_torch(path, "model file", KEYS), content())  # by its suffix
    before = path.read_bytes()
    write_safe(path, content())
    assert path.read_bytes() == before


def test_other_programs_find_the_tensors_by_name(tmp_path: Path) -> None:
    write_safe(tmp_path / "x.safetensors", content())
    found = load_file(tmp_path / "x.safetensors")
    assert set(found) == {"weights.a.b", "weights.a", "weights.c", "weights.half", "info.tree.leaves"}
    assert torch.equal(found["weights.a.b"], content()["weights"]["a.b"])


def test_a_file_that_is_none_or_cut_off_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safe(path, content())
    whole = path.read_bytes()
    for data in (b"", b"no tensors in here", whole[:40], whole[:-1]):
        path.write_bytes(data)
        with pytest.raises(AsrtoolError, match=r"x\.safetensors: no model file") as caught:
            read_safe(path, "model file", KEYS)
        assert "\n" not in caught.value.what
    with pytest.raises(AsrtoolError, match="no model file"):
        read_safe(tmp_path / "missing.safetensors", "model file", KEYS)


def test_a_file_of_somebody_else_lacks_the_rest(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(AsrtoolError, match="no model file"):
        read_safe(tmp_path / "x.safetensors", "model file", KEYS)
    write_safe(tmp_path / "y.safetensors", {"format": 2})
    with pytest.raises(AsrtoolError, match="it has no 'info'"):
        read_safe(tmp_path / "y.safetensors", "model file", KEYS)
