"""Manifest folders: checks, counts, faults of files, and the fraction that may be set aside."""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import AudioSource, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.qa import validate, validate_recordings_and_supervisions
from small_releases import read_manifests

from asrtool.data.manifests.manifest import (
    Drop,
    format_line,
    read_batches,
    read_lines,
    read_sorted,
    write_manifests,
    write_sorted,
)
from asrtool.data.manifests.validator import ManifestCounts
from asrtool.errors import AsrtoolError


def recording(id_: str, duration_s: float = 10.0) -> Recording:
    num_samples = int(duration_s * 8000)
    return Recording(id_, [AudioSource("file", [0, 1], f"/audio/{id_}.sph")], 8000, num_samples, duration_s, [0, 1])


def segment(id_: str, start_s: float = 1.0, duration_s: float = 2.0, channel: int = 0) -> SupervisionSegment:
    return SupervisionSegment(id_, id_.split("-")[0], start_s, duration_s, channel, "hello there", speaker=f"{id_}-s")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    out = tmp_path / "swbd"
    drops = [Drop("a-9", "empty", "[silence]"), Drop("a-8", "empty"), Drop("b-9", "foreign", "<german\tja>")]
    segments = [segment("b-1"), segment("a-2", channel=1), segment("a-1")]
    write_manifests(out, [recording("b"), recording("a"), recording("c")], segments, drops, 0.01, {"ref.stm": "x\n"})
    return out


def test_what_is_written_is_read_back_in_order_and_reported(written: Path) -> None:
    recordings, supervisions = read_manifests(written)
    assert [r.id for r in recordings] == ["a", "b"]
    assert [s.id for s in supervisions] == ["a-1", "a-2", "b-1"]
    assert (written / "ref.stm").read_text() == "x\n"
    assert list(RecordingSet.from_file(written / "recordings.jsonl.gz")) == list(recordings)
    assert list(SupervisionSet.from_file(written / "supervisions.jsonl.gz")) == list(supervisions)
    report = json.loads((written / "report.json").read_text())
    assert report["dropped"] == {"empty": 2, "foreign": 1}
    assert (report["num_recordings"], report["num_utterances"], report["num_speakers"]) == (2, 3, 3)
    assert (report["num_words"], report["speech_hours"], report["audio_hours"]) == (6, 0.0017, 0.0056)
    assert (written / "dropped.tsv").read_text().splitlines()[3] == "b-9\tforeign\t<german ja>"
    before = (written / "supervisions.jsonl.gz").read_bytes()
    write_manifests(written, recordings, supervisions, [], 0.01, {})
    assert (written / "supervisions.jsonl.gz").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("supervisions", lambda packed: packed[:-20], r"corrupt after line \d: EOFError"),
        ("recordings", lambda packed: gzip.compress(gzip.decompress(packed)[:-30]), "corrupt after line 1: JSONDecode"),
        ("recordings", lambda _: b"hello", "corrupt after line 0: BadGzipFile"),
        (
            "supervisions",
            lambda packed: gzip.compress(b"".join(gzip.decompress(packed).splitlines(keepends=True)[:-1])),
            "2 lines, expected 3 as in report.json",
        ),
    ],
)
def test_a_damaged_manifest_is_reported_with_its_line(
    written: Path, name: str, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = written / f"{name}.jsonl.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(AsrtoolError, match=f"{path.name}: {message}"):
        read_manifests(written)


def test_a_folder_without_a_report_or_with_a_broken_one_is_named(written: Path) -> None:
    for content in ("3", "{"):
        (written / "report.json").write_text(content)
        with pytest.raises(AsrtoolError, match=r"report.json: broken JSON: .*; make the manifest again"):
            read_sorted(written)
    (written / "report.json").unlink()
    with pytest.raises(AsrtoolError, match="swbd: half-written"):
        read_manifests(written)
    with pytest.raises(AsrtoolError, match="no such folder of manifests"):
        read_manifests(written.parent / "fisher")


def test_a_refused_manifest_leaves_the_one_before_it(written: Path) -> None:
    with pytest.raises(AsrtoolError, match="channel 2 does not exist in its recording a"):
        write_manifests(written, [recording("a")], [segment("a-1", channel=2)], [], 0.01, {})
    assert len(read_manifests(written)[1]) == 3


@pytest.mark.parametrize(
    ("recordings", "segments", "message"),
    [
        ("a", [segment("a-1"), segment("a-1")], "utterance id a-1 occurs more than once"),
        ("a", [segment("z-1")], "z-1 references non-existent recording z"),
        ("aa", [segment("a-1")], "recording id a occurs more than once"),
    ],
)
def test_an_inconsistent_manifest_is_reported_with_its_id(
    tmp_path: Path, recordings: str, segments: list[SupervisionSegment], message: str
) -> None:
    with pytest.raises(AsrtoolError, match=message):
        write_manifests(tmp_path / "swbd", map(recording, recordings), segments, [], 0.01, {})
    assert not (tmp_path / "swbd").exists()


def test_an_id_of_two_recordings_is_found_among_all_that_are_read(tmp_path: Path) -> None:
    lines = [format_line({**segment(id_).to_dict(), "id": f"{id_[:1]}-{i}"}) for i, id_ in enumerate(("a-1", "b-1"))]
    write_sorted(tmp_path / "m", [recording("a").to_dict(), recording("b").to_dict()], lines, [], 0.0, {})
    path = tmp_path / "m" / "supervisions.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b'"b-1"', b'"a-0"')))
    with pytest.raises(AsrtoolError, match="m: utterance id a-0 occurs more than once"):
        read_manifests(tmp_path / "m")


TIMES_S = st.sampled_from((-0.002, -0.0005, 0.0, 1.0, 9.9, 9.9995, 10.0, 10.0005, 10.002, 11.0))


@given(
    start_s=TIMES_S,
    duration_s=TIMES_S,
    channel=st.sampled_from((0, 1, 2, [0], [0, 1], [1, 2])),
    id_=st.sampled_from(("a-1", "z-1")),
)
def test_what_lhotse_refuses_is_refused(start_s: float, duration_s: float, channel: Any, id_: str) -> None:
    item = segment(id_, start_s, duration_s, channel)
    counts = ManifestCounts([recording("a").to_dict()], Path("m"))
    try:
        validate_recordings_and_supervisions(
            RecordingSet.from_recordings([recording("a")]), SupervisionSet.from_segments([item])
        )
    except AssertionError:
        with pytest.raises(AsrtoolError):
            counts.add(item.to_dict())
    else:
        assert counts.add(item.to_dict())


LINES = st.sampled_from(
    (
        '{"id": "a-1", "recording_id": "a", "start": 1.0, "duration": 2.0, "channel": 0, "text": "\\u00e9 \u00e9"}',
        '{"id":"a-2","recording_id":"a","start":1,"duration":2e0,"channel":[0,1],"custom":{"x":[{}]},"text":"] ,"}  ',
        '{"id": "a-3", "recording_id": "a", "start": 1.0, "duration": 12.0, "channel": 0}',
        '{"id": "a-4", "recording_id": "a", "start": 1.0, "channel": 0}',
        "[]",
        "7",
        "",
        '{"id": "a-5", ',
        '{"id": "a-6"} {"id": "a-7"}',
        ", ".join(f'{{"id": "a-{i}", "recording_id": "a", "start": 0, "duration": 1, "channel": 0}}' for i in (7, 8)),
    )
)


@given(st.lists(LINES, max_size=4))
def test_what_is_read_in_batches_is_what_is_read_line_by_line_also_the_line_of_a_fault(lines: list[str]) -> None:
    def outcome(entries: Callable[[], Iterable[dict[str, Any]]]) -> object:
        try:
            return list(entries())
        except AsrtoolError as error:
            return str(error)

    def checked(entry: dict[str, Any]) -> dict[str, Any]:
        counts.check(entry)
        return entry

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write_manifests(path, [recording("a")], [segment("a-1")], [], 0.0, {})
        report = json.loads((path / "report.json").read_text()) | {"num_utterances": len(lines)}
        (path / "report.json").write_text(json.dumps(report))
        with gzip.open(path / "supervisions.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        counts = ManifestCounts([recording("a").to_dict()], path)
        expected = outcome(lambda: read_lines(path / "supervisions.jsonl.gz", checked))
        assert outcome(lambda: itertools.chain(*read_batches(path)[1])) == expected


@pytest.mark.parametrize(
    "change", [{"duration": 0.0, "num_samples": 0}, {"duration": 10.1}, {"num_samples": 1}, {"duration": 10.6}, {}]
)
def test_a_recording_that_lhotse_refuses_is_refused(change: dict[str, Any]) -> None:
    entry = recording("a").to_dict() | change
    try:
        validate(Recording.from_dict(dict(entry)))
    except AssertionError:
        with pytest.raises(AsrtoolError, match="recording a has a duration of"):
            ManifestCounts([entry], Path("m"))
    else:
        ManifestCounts([entry], Path("m"))


def test_faults_beyond_the_limit_end_the_stage_with_the_list_and_what_is_left_out_on_purpose_is_none(
    tmp_path: Path,
) -> None:
    names = [f"r{i}" for i in range(99)]
    drops = [*(Drop(f"a-{i}", "empty") for i in range(100)), Drop("b1", "unusable audio", "truncated")]
    more = [*drops, Drop("b2", "no transcript"), Drop("b2", "no audio")]
    message = (
        r"m: 2 of 101 recordings cannot be used, and data.bad_fraction = 0.01 allows 1; the first is b1:"
        r" unusable audio: truncated; fix what .*m.dropped.tsv lists, or raise data.bad_fraction"
    )
    with pytest.raises(AsrtoolError, match=message):
        write_manifests(tmp_path / "m", map(recording, names), map(segment, names), more, 0.01, {})
    assert (tmp_path / "m.dropped.tsv").read_text().count("b2\t") == 2
    assert not (tmp_path / "m").exists()
    write_manifests(tmp_path / "m", map(recording, names), map(segment, names), drops, 0.01, {})
    assert json.loads((tmp_path / "m" / "report.json").read_text())["dropped"] == {"empty": 100, "unusable audio": 1}
    assert "b1\tunusable audio\ttruncated" in (tmp_path / "m" / "dropped.tsv").read_text()


def test_one_fault_of_few_is_a_warning_unless_none_is_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    drops = [Drop("b1", "unusable audio", "truncated")]
    write_manifests(tmp_path / "m", [recording("r")], [segment("r")], drops, 0.01, {})
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == f"{tmp_path}/m: 1 of 2 recordings cannot be used; the first is b1: unusable audio: truncated"
    with pytest.raises(AsrtoolError, match=r"1 of 2 recordings cannot be used, and data.bad_fraction = 0 allows 0;"):
        write_manifests(tmp_path / "m", [recording("r")], [segment("r")], drops, 0, {})
    with pytest.raises(AsrtoolError, match=r"1 of 1 recordings cannot be used; .*; fix what .*m.dropped.tsv lists$"):
        write_manifests(tmp_path / "m", [], [], drops, 1, {})


def test_a_corpus_without_one_usable_utterance_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"m: not one usable utterance; see the reasons in .*m.dropped.tsv"):
        write_manifests(tmp_path / "m", [recording("a")], [], [Drop("a-1", "empty")], 0.01, {})
    assert "a-1\tempty" in (tmp_path / "m.dropped.tsv").read_text()
