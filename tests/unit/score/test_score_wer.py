"""Word error rate of plain texts, trn and manifests."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hub5_cases import SCTK

import asrtool
from asrtool.errors import AsrtoolError
from asrtool.score.result import Counts
from asrtool.score.wer import score_wer

ONE = Counts(segments=2, corr=3, sub=1, del_=1, ins=1)  # of REF against HYP
Texts = str | Sequence[str]
REF, HYP = ("a b c", "d e"), ("a c", "d f g")


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_manifest(path: Path, entries: list[dict[str, object]]) -> Path:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as lines:
        lines.writelines(json.dumps(entry) + "\n" for entry in entries)
    return path


def test_lines_match_by_number(tmp_path: Path) -> None:
    result = score_wer(write_lines(tmp_path / "ref", list(REF)), write_lines(tmp_path / "hyp", list(HYP)))
    assert (result.overall, result.scored) == (ONE, "line by line")


@pytest.mark.parametrize("ids", [("fay", "Fay"), ("7", "12"), ("7", "words")])
def test_equal_first_words_in_another_order_are_ids(tmp_path: Path, ids: tuple[str, str]) -> None:
    ref = write_lines(tmp_path / "ref", [f"{id_} {text}" for id_, text in zip(ids, REF, strict=True)])
    hyp = write_lines(tmp_path / "hyp", [f"{id_}\t{text}" for id_, text in zip(ids, HYP, strict=True)][::-1])
    result = score_wer(ref, hyp)
    assert (result.overall, result.scored) == (ONE, "utterance by utterance")


def test_trn_matches_by_id_in_any_order_without_blank_lines(tmp_path: Path) -> None:
    ref = write_lines(tmp_path / "ref", ["", *(f"{text} (spk{n}-1)" for n, text in enumerate(REF)), " "])
    hyp = write_lines(tmp_path / "hyp", [f"{text} (spk{n}-1)" for n, text in enumerate(HYP)][::-1])
    result = score_wer(ref, hyp)
    assert result.overall == ONE
    assert result.speakers["spk0"].overall == Counts(segments=1, corr=2, del_=1)


def test_a_line_of_a_trn_without_id_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "ref", ["a (x-1)", "b (x-2)", "c"])
    with pytest.raises(AsrtoolError, match=r"ref:3: 'c' does not end in an id, as most lines do; expected TEXT \(ID\)"):
        score_wer(path, path)


def test_a_text_with_a_few_lines_that_end_in_parentheses_is_plain(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "ref", ["so (uh)", "", "b", "c"])
    assert score_wer(path, path).overall == Counts(segments=4, corr=4)


def test_supervisions_and_cuts_also_mixed_or_padded_ones_match_by_id(tmp_path: Path) -> None:
    supervisions = [{"id": f"u{n}", "speaker": "s", "text": text} for n, text in enumerate(REF)]
    ref = write_manifest(tmp_path / "supervisions.jsonl.gz", supervisions)
    heard = [{"id": f"u{n}", "text": text} for n, text in enumerate(HYP)]
    padding = {"cut": {"id": "p", "type": "PaddingCut"}, "offset": 1}
    tracks = [*({"cut": {"supervisions": [one]}} for one in heard), padding]
    for cut in ({"id": "c", "supervisions": heard}, {"type": "MixedCut", "id": "m", "tracks": tracks}):
        assert score_wer(ref, write_manifest(tmp_path / "cuts.jsonl", [cut])).overall == ONE


def test_the_text_of_kaldi_matches_by_id_in_any_order_and_with_a_trn(tmp_path: Path) -> None:
    ref = write_lines(tmp_path / "text", ["spk1-utt1 a b c", "spk1-utt2 d e", "spk2-utt1"])
    hyp = write_lines(tmp_path / "hyp", ["spk1-utt2 d", "", "spk1-utt1\ta b c", "spk2-utt1 x"])
    trn = write_lines(tmp_path / "trn", ["d (spk1-utt2)", "a b c (spk1-utt1)", "x (spk2-utt1)"])
    for file in (hyp, trn):
        assert score_wer(ref, file).overall == Counts(segments=3, corr=4, del_=1, ins=1)
    assert score_wer(ref, hyp).speakers["spk1"].overall == Counts(segments=2, corr=4, del_=1)
    for one, other in (("ann-one", "ann_two"), ("0001", "0002"), ("18204", "9377")):
        write_lines(ref, [f"{one} a b", f"{other} c"])
        assert score_wer(ref, write_lines(hyp, [f"{other} c", f"{one} a b"])).overall == Counts(segments=2, corr=3)
    for lines, num_words in (
        (["4 you", "4 me", "b"], 5),
        (["7-a a"], 2),
        (["W1 a", "w1 b"], 2),
        (["uh-huh a", "b"], 3),
        (["th- a", "-y b"], 4),
    ):
        path = write_lines(tmp_path / "plain", lines)
        assert score_wer(path, path).overall == Counts(segments=len(lines), corr=num_words)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["u-1 a"], "hyp: 2 of 2 utterances are missing, the first is u-1; give texts"),  # a line alone is plain
        (["u-1 a", "u-3 b"], "hyp: 1 of 2 utterances are missing, the first is u-2"),
        (["u-1 a", "u-2 b", "u-3 b"], "text: 1 of 3 utterances are missing, the first is u-3"),
        (["u-1 a", "u-1 b"], "hyp:2: second line for u-1; expected each id once"),
        (["a", "b"], "hyp: 2 of 2 utterances are missing, the first is u-1"),
    ],
)
def test_ids_of_kaldi_that_do_not_match_are_named(tmp_path: Path, lines: list[str], message: str) -> None:
    ref = write_lines(tmp_path / "text", ["u-1 a", "u-2 b"])
    with pytest.raises(AsrtoolError, match=message):
        score_wer(ref, write_lines(tmp_path / "hyp", lines))


def test_a_manifest_without_any_text_is_refused(tmp_path: Path) -> None:
    ref = write_manifest(tmp_path / "ref.jsonl", [{"id": f"u{n}", "text": text} for n, text in enumerate(["a", ""])])
    assert score_wer(ref, ref).overall == Counts(segments=2, corr=1)
    recordings = write_manifest(tmp_path / "recordings.jsonl", [{"id": f"u{n}", "sources": []} for n in range(2)])
    with pytest.raises(AsrtoolError, match=r"recordings\.jsonl: no text in the whole manifest; expected supervisions"):
        score_wer(ref, recordings)


def test_words_are_compared_as_they_stand(tmp_path: Path) -> None:
    ref = write_lines(tmp_path / "ref", ["Uh (the) th- @ { a / b }"])
    assert score_wer(ref, write_lines(tmp_path / "hyp", ["uh the { a / b }"])).overall.err == 4


BROKEN = [
    b"",
    b"{",
    b"[]\n",
    b'{"text": "a"}\n',
    b"\x1f\x8b\x08broken",
    100_000 * b"[",
    b'{"id": "1", "text": ["a"]}\n',
]
BROKEN += [b'{"id": "1", "speaker": ["a"]}\n', rb'{"id": "1", "text": "\ud800"}']


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz"])
def test_a_broken_manifest_is_named(content: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(AsrtoolError, match=re.escape(name)):
        score_wer(path, path)


def test_random_trn_score_as_with_sclite(tmp_path: Path) -> None:
    if not (SCTK / "sclite").exists():
        pytest.skip(f"no SCTK in {SCTK} (Debian package sctk)")
    rng = random.Random(5)
    texts = [[" ".join(rng.choices("abcde", k=rng.randint(1, 25))) for _ in range(500)] for _ in range(2)]
    ref, hyp = (
        write_lines(tmp_path / name, [f"{text} (s{n % 7}-{n:04d})" for n, text in enumerate(lines)])
        for name, lines in zip(("ref", "hyp"), texts, strict=True)
    )
    command = [SCTK / "sclite", "-r", ref, "trn", "-h", hyp, "trn", "-i", "spu_id", "-o", "pralign"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    lines = (tmp_path / "hyp.pra").read_text().splitlines()
    expected = [tuple(map(int, line.split()[-4:])) for line in lines if line.startswith("Scores: ")]
    found = [segment.alignment.counts for segment in sorted(score_wer(ref, hyp).segments, key=lambda s: s.id)]
    assert [(c.corr, c.sub, c.del_, c.ins) for c in found] == expected


@pytest.mark.parametrize(
    ("ref", "hyp", "wer"),
    [
        ("so what did you do", "so what do you do", 1 / 5),
        (["call home now", "play music"], ["call home", "play the music"], 2 / 5),  # as jiwer counts
        (["a", ""], ["", ""], 1.0),
        ([" a  b\n"], ("a b c d e",), 3 / 2),
    ],
)
def test_sentences_pair_up(ref: Texts, hyp: Texts, wer: float) -> None:
    assert asrtool.wer(ref, hyp) == wer
    assert asrtool.wer(ref, ref) == asrtool.cer(ref, ref) == 0


def test_lists_of_sentences_are_scored_as_files_with_a_line_each(tmp_path: Path) -> None:
    texts = {"ref": ["so what", "ah"], "hyp": ["so", "ah well"]}
    files = [write_lines(tmp_path / name, lines) for name, lines in texts.items()]
    result, expected = score_wer(texts["ref"], tuple(texts["hyp"])), score_wer(*files)
    assert result.to_dict() == expected.to_dict()
    assert [each.alignment.pairs for each in result.segments] == [each.alignment.pairs for each in expected.segments]
    with pytest.raises(AsrtoolError, match="reference and hypothesis are PosixPath and list; give two texts"):
        score_wer(files[0], texts["hyp"])


@pytest.mark.parametrize("rate", [asrtool.wer, asrtool.cer])
@pytest.mark.parametrize("ref", ["", [], ["", " "]])
def test_a_reference_without_words_has_no_rate(rate: Any, ref: Texts) -> None:
    with pytest.raises(AsrtoolError, match=r"the reference has no (words|characters); count a whole test set"):
        rate(ref, ref)


@pytest.mark.parametrize("count", [asrtool.wer, asrtool.cer])
@pytest.mark.parametrize(
    ("ref", "hyp", "message"),
    [
        (["a", "b"], ["a"], "2 sentences of reference, 1 of hypothesis; give one for each"),
        ("a", ["a"], "reference and hypothesis are str and list; give two texts, or two lists of sentences"),
        ([["a"]], [["a"]], "reference and hypothesis are list and list; give two texts"),
        (b"a", b"a", "reference and hypothesis are bytes and bytes"),
        (None, None, "reference and hypothesis are NoneType and NoneType"),
    ],
)
def test_what_is_no_text_is_refused(count: Any, ref: Any, hyp: Any, message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        count(ref, hyp)
