"""References that are written here, judged by NIST's own tools where they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run_command
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lhotse import SupervisionSegment

from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.local.text.references import NO_RULES_GLM, format_reference
from asrtool.score.align import align_words
from asrtool.score.hub5 import score_hub5
from asrtool.score.output import score_all
from asrtool.score.sctk import DEBIAN_FOLDER, run_hubscr
from asrtool.score.segments import read_segments
from asrtool.score.utterances import file_of


@pytest.mark.skipif(not Path(DEBIAN_FOLDER).exists(), reason="Debian's package sctk is not installed")
def test_nist_scores_a_perfect_hypothesis_without_error_by_an_empty_set_of_rules(tmp_path: Path) -> None:
    segments = [
        SupervisionSegment("c1-1", "c1", 0.0, 4.0, 0, "uh i watch t v th- [noise] okay", speaker="s1"),
        SupervisionSegment("c1-2", "c1", 0.5, 2.0, 1, "uh-huh", speaker="s2"),
    ]
    ref, hyp, glm = (tmp_path / name for name in ("ref.stm", "hyp.ctm", "ref.glm"))
    ref.write_text(format_reference((s.to_dict() for s in segments), {"c1": "swbd"}))
    glm.write_text(NO_RULES_GLM)
    lines = [
        f"c1/c1-1 A {i * 0.5:.2f} 0.40 {word}\n" for i, word in enumerate(["i", "watch", "t", "v", "okay"], start=1)
    ]
    hyp.write_text("".join([*lines, "c1/c1-2 B 1.00 0.40 uh-huh\n"]))
    run_hubscr(tmp_path, ref, hyp, glm)
    (total,) = [line for line in (tmp_path / "h.ctm.filt.sys").read_text().splitlines() if "Sum/Avg" in line]
    num_segments, _, _, *errors = map(float, total.replace("|", " ").split()[1:8])
    assert (num_segments, errors) == (2, [0.0] * 4)  # substitutions, deletions, insertions, errors


NAMES = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs", "Cf", "Cc"]), max_size=8)
SENTENCES = st.lists(st.sampled_from(["yes", "no", "oh"]), max_size=5)


@settings(max_examples=20)
@given(said=st.dictionaries(st.tuples(NAMES, NAMES, NAMES), st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=4))
@example(
    said={("r", "s", "W1"): (["yes"], ["no"]), ("r", "s", "w1"): (["no"], ["yes"]), ("R", "S", "w2"): ([], ["oh"])}
)
@example(said={(";;a", "<unk>", "call {1}"): (["yes"], ["yes"]), ("=", "", "(a@b*'\"/é\u3000"): (["no"], [])})
def test_utterances_of_any_names_that_overlap_are_scored_each_for_itself(
    said: dict[tuple[str, str, str], tuple[list[str], list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("score")
    (folder / "test").mkdir()
    entries, decoded, expected = [], [], {}
    for number, ((recording, speaker, name), (ref, hyp)) in enumerate(said.items()):
        id_, start_s = f"{name}{number}", number * 0.3  # each lasts 2 s
        entry = {"id": id_, "recording_id": recording, "channel": 0, "speaker": speaker, "text": " ".join(ref)}
        entries.append({**entry, "start": start_s, "duration": 2.0})
        words = tuple(Word(word, i * 0.4, i * 0.4 + 0.3, 1.0) for i, word in enumerate(hyp))
        decoded.append(Segment(file_of(recording, id_), "A", start_s, 2.0, words))
        expected[id_] = (recording, speaker, align_words(ref, hyp).counts)
    reference = format_reference(entries, dict.fromkeys((recording for recording, _, _ in said), "own"))
    (folder / "test" / "ref.stm").write_text(reference, encoding="utf-8")
    (folder / "test" / "ref.glm").write_text(NO_RULES_GLM)
    (folder / "test" / "beam.ctm").touch()
    utterances = folder / "test" / "beam.utterances"
    utterances.write_text(format_ctm(decoded), encoding="utf-8")
    result = score_all(folder, folder, folder / "out", ["test"])["test", "beam"]
    assert {s.id: (s.file, s.speaker, s.alignment.counts) for s in result.segments} == expected
    run_command("score", "hub5", "--ref", folder / "test/ref.stm", "--hyp", utterances, "--out", folder / "one")
    assert (folder / "one/segments.jsonl").read_bytes() == (folder / "out/test/beam/segments.jsonl").read_bytes()
    read = read_segments(folder / "out" / "test" / "beam")
    assert {s.id: (s.file, s.speaker, s.alignment.counts) for s in read} == expected
    assert "\nscored utterance by utterance\n" in (folder / "out/test/beam/table.txt").read_text(encoding="utf-8")


def test_a_reference_of_utterances_wants_what_was_recognised_in_each(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    entry = {"id": "u", "recording_id": "call", "channel": 0, "start": 0.0, "duration": 1.0, "text": "yes"}
    (tmp_path / "test" / "ref.stm").write_text(format_reference([entry], {"call": "own"}))
    (tmp_path / "test" / "beam.ctm").touch()
    with pytest.raises(AsrtoolError, match=r"beam\.utterances: missing, .*; run the decode stage again"):
        score_all(tmp_path, tmp_path, tmp_path / "out", ["test"])
    (tmp_path / "test" / "beam.ctm").write_text("call A 0.0 0.3 yes\n")
    with pytest.raises(AsrtoolError, match=r"file call channel A is not in .*; name METHOD\.utterances, which"):
        score_hub5(tmp_path / "test" / "ref.stm", tmp_path / "test" / "beam.ctm")
