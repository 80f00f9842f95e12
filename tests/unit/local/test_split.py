"""Held-out conversations, duplicates, references, and the three sets."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import AudioSource, Recording, SupervisionSegment
from lhotse.supervision import AlignmentItem
from memory import peak_bytes
from small_releases import dropped, make_data, read_jsonl, supervisions

from asrtool.data.manifests.manifest import format_line, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, read_sets
from asrtool.data.manifests.validator import ManifestCounts
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import UNCERTAIN
from asrtool.local.sets.held_out import choose_conversations
from asrtool.local.sets.split import split_manifests
from asrtool.local.text.references import NO_RULES_GLM, format_reference, reference_rules
from asrtool.settings.data import Data

OWN = make_data(("own",), ("own",), ("own",))
SWBD = make_data(("swbd",), dev_minutes=3)


def recording(id_: str) -> Recording:
    return Recording(id_, [AudioSource("file", [0, 1], f"/{id_}.sph")], 8000, 8000 * 600, 600.0, [0, 1])


def side(
    recording_id: str, channel: int, speaker: str, texts: list[str], duration_s: float = 5
) -> list[SupervisionSegment]:
    return [
        SupervisionSegment(
            f"{recording_id}-{channel}-{i}", recording_id, 6.0 * i, duration_s, channel, t, speaker=speaker
        )
        for i, t in enumerate(texts)
    ]


def corpus(calls: dict[str, tuple[str, str]], num_utterances: int = 10) -> list[SupervisionSegment]:
    """`calls`: recording -> speakers of both sides; every utterance takes 5 s."""
    texts = [f"sentence {'abcdefghijklmnopqrstuvwxyz'[i % 26]}" for i in range(num_utterances)]
    return [s for id_, pair in calls.items() for c, who in enumerate(pair) for s in side(id_, c, who, texts)]


def choose(segments: Iterable[SupervisionSegment], target_s: float) -> set[str]:
    speech_s, num_utterances = Counter[str](), Counter[tuple[str, str | None]]()
    for segment in segments:
        speech_s[segment.recording_id] += segment.duration
        num_utterances[segment.recording_id, segment.speaker] += 1
    return choose_conversations(speech_s, num_utterances, target_s)


def pairs(num: int, prefix: str = "c") -> dict[str, tuple[str, str]]:
    """Conversations of speakers of their own."""
    return {f"{prefix}{i:02}": (f"{prefix}a{i}", f"{prefix}b{i}") for i in range(num)}


def write(root: Path, **sets: list[SupervisionSegment]) -> None:
    """Write manifests of `corpus_role`; the test set has two utterances unless another is given."""
    for place, segments in {"hub5_test": side("en_1", 0, "en_1-A", ["short", "long"], 0.05), **sets}.items():
        name, _, role = place.rpartition("_")
        recordings = [recording(id_) for id_ in sorted({s.recording_id for s in segments})]
        texts = {"ref.stm": "of the test\n", "ref.glm": NO_RULES_GLM}
        write_manifests(root / "corpora" / name / role, recordings, segments, [], 0.0, texts)


def split(root: Path, data: Data, **sets: list[SupervisionSegment]) -> tuple[list[dict[str, Any]], ...]:
    """Write and split manifests; return the utterances of train and of dev."""
    write(root, **sets)
    split_manifests(root, data)
    return supervisions(root / "train"), supervisions(root / "dev")


def one_by_one(segments: list[SupervisionSegment], target_s: float) -> set[str]:
    """Make the same choice by considering every conversation again after each."""
    num = Counter((s.recording_id, s.speaker) for s in segments)
    speakers = {id_: {who for call, who in num if call == id_} for id_, _ in num}
    speech_s = {id_: sum(s.duration for s in segments if s.recording_id == id_) for id_ in speakers}
    chosen: set[str] = set()
    held_out: set[str | None] = set()
    while (missing_s := target_s - sum(speech_s[id_] for id_ in chosen)) > 0:
        options = []
        for id_ in speakers.keys() - chosen:
            after = held_out | speakers[id_]
            joining = {other for other in speakers.keys() - chosen if speakers[other] <= after}
            lost = sum(num[other, who] for other, who in num if other not in chosen | joining and who in after)
            lost -= sum(num[other, who] for other, who in num if other not in chosen | joining and who in held_out)
            gain_s = sum(speech_s[other] for other in joining)
            far = gain_s > 2 * missing_s
            if not far or not chosen:
                digest = hashlib.sha256(id_.encode()).hexdigest()
                options.append((far, gain_s if far else 0.0, lost / gain_s, digest, after, joining))
        if not options:
            break
        *_, held_out, joining = min(options, key=lambda option: option[:4])
        chosen |= joining
    return chosen


def test_many_recordings_of_few_speakers_take_no_memory_by_their_square() -> None:
    """If each utterance is a file, there are two million pairs of recordings of one speaker, some 60 bytes each."""
    names = [f"{who}{number:04}" for who in "ab" for number in range(1000)]
    speech_s, num = dict.fromkeys(names, 5.0), Counter({(name, name[0]): 1 for name in names})
    chosen = choose_conversations(speech_s, num, 60.0)
    assert len(chosen) == 1000
    assert len({name[0] for name in chosen}) == 1
    assert peak_bytes(lambda: choose_conversations(speech_s, num, 60.0)) < 2**24


@given(
    calls=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=2, max_size=15),
    target_s=st.floats(1, 400),
)
def test_the_choice_is_closed_bounded_and_independent_of_order(calls: list[tuple[int, int]], target_s: float) -> None:
    segments = corpus({f"c{i}": (f"s{a}", f"s{b}") for i, (a, b) in enumerate(calls)}, num_utterances=4)
    chosen = choose(segments, target_s)
    assert chosen
    assert choose(reversed(segments), target_s) == chosen
    assert one_by_one(segments, target_s) == chosen
    held_out = {s.speaker for s in segments if s.recording_id in chosen}
    others = {s.recording_id for s in segments} - chosen
    for id_ in others:
        assert {s.speaker for s in segments if s.recording_id == id_} - held_out


def test_a_speaker_of_dev_is_in_no_other_corpus_either(tmp_path: Path) -> None:
    one = {f"sw{i}": (f"a{i}", f"b{i}") for i in range(20)}
    other = {f"fe{i}": (f"a{(i + 7) % 20}", f"d{i}") for i in range(20)}
    sets = {}
    for name, calls, num in (("swbd", one, 1), ("fisher", other, 4)):
        nobody = [s for i in range(num) for s in side(name + "-x" * (i + 1), 0, "x", ["yes"] * 20)]
        sets[f"{name}_train"] = [*corpus(calls), *(dataclasses.replace(s, speaker=None) for s in nobody)]
    found = split(tmp_path, make_data(dev_minutes=6), **sets)
    train, dev = ([s.get("speaker") for s in some] for some in found)
    assert {name[:1] for name in dev if name} == {"a", "b", "d"}
    assert {*dev} & {*train} == {None}  # held out of one corpus, another person in the other
    assert (dev.count(None), train.count(None)) == (20, 80)


def test_a_recording_of_two_corpora_is_named_with_both(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"sw03 is a recording of swbd and of fisher, both in data\.train; rename"):
        split(
            tmp_path,
            make_data(dev_minutes=3),
            swbd_train=corpus(pairs(9, "sw")),
            fisher_train=corpus({"sw03": ("a", "b"), "fe": ("c", "d")}),
        )


def test_each_training_corpus_gives_to_dev_and_has_its_name_in_labels_fields_and_sentences(tmp_path: Path) -> None:
    sets = {"swbd_train": corpus(pairs(20, "sw")), "fisher_train": corpus(pairs(10, "fe"))}
    train, dev = split(tmp_path, make_data(dev_minutes=3), **sets)
    assert {s["recording_id"][:2] for s in dev} == {"sw", "fe"}
    stm = (tmp_path / "dev" / "ref.stm").read_text()
    assert ';; LABEL "fisher" "fisher" "fisher"' in stm
    assert "<O,swbd> sentence a" in stm
    names = {"sw": "swbd", "fe": "fisher", "en": "hub5"}
    for segment in (*train, *dev, *supervisions(tmp_path / "hub5")):
        assert segment["custom"]["corpus"] == names[segment["recording_id"][:2]]
    said = {path.name: path.read_text() for path in (tmp_path / "train").glob("sentences*")}
    parts = [said.pop(f"sentences.{name}.txt") for name in ("swbd", "fisher")]
    assert said == {"sentences.txt": "".join(parts)}
    numbers = [sum(s["recording_id"].startswith(prefix) for s in train) for prefix in ("sw", "fe")]
    assert [len(part.splitlines()) for part in parts] == numbers
    split_manifests(tmp_path, SWBD)
    assert not (tmp_path / "train" / "sentences.fisher.txt").exists()


def test_each_test_set_is_taken_whole_and_a_split_that_failed_leaves_no_list_of_sets(tmp_path: Path) -> None:
    rt03 = side("rt03_1", 0, "rt03-A", ["in rt03"])
    split(tmp_path, make_data(("swbd",), test=("rt03", "hub5")), swbd_train=corpus(pairs(4)), rt03_test=rt03)
    sets = read_sets(tmp_path)
    assert (sets.names, sets.scored) == (["train", "dev", "rt03", "hub5"], ["dev", "rt03", "hub5"])
    assert sets.test[1] == EvaluationSet("hub5", "Hub5'00", {"SW": "Switchboard", "EN": "CallHome"})
    assert [s["text"] for s in supervisions(tmp_path / "rt03")] == ["in rt03"]
    assert len(supervisions(tmp_path / "hub5")) == 2
    assert (tmp_path / "hub5" / "ref.stm").read_text() == "of the test\n"
    assert (tmp_path / "hub5" / "sentences.txt").read_text() == "short\nlong\n"
    split_manifests(tmp_path, SWBD)
    assert read_sets(tmp_path).scored == ["dev", "hub5"]
    split_manifests(tmp_path, dataclasses.replace(SWBD, test=()))
    assert read_sets(tmp_path).scored == ["dev"]
    assert (tmp_path / "dev" / "ref.glm").read_text() == reference_rules(NO_RULES_GLM)
    with pytest.raises(AsrtoolError, match="no such folder of manifests"):
        split_manifests(tmp_path, make_data(("swbd",), test=("hub5", "hub5_01")))
    with pytest.raises(AsrtoolError, match=r"sets.json: missing, so the sets are not complete"):
        read_sets(tmp_path)


def test_the_text_of_training_is_all_that_its_conversations_say(tmp_path: Path) -> None:
    calls = {f"c{i:02}": (f"a{i}", f"b{i // 2}") for i in range(20)}
    said = corpus(calls) + [
        dataclasses.replace(segment, id=f"{segment.id}-{text}", text=text, duration=duration_s)
        for segment in corpus(calls, 1)
        for text, duration_s in (("blink", 0.05), ("tale", 25.0))
    ]
    data = make_data(train=("swbd",), max_duplicates=3, dev_minutes=2)
    train, dev = split(tmp_path, data, swbd_train=said)
    held_out = {s["recording_id"] for s in dev}, {s["speaker"] for s in dev}
    expected = [s.text for s in said if s.recording_id not in held_out[0] and s.speaker not in held_out[1]]
    texts = [(tmp_path / "train" / f"sentences{of}.txt").read_text().splitlines() for of in ("", ".swbd")]
    assert texts[0] == texts[1]
    assert Counter(texts[0]) == Counter(expected)
    assert min(Counter(texts[0])[text] for text in ("blink", "tale", "sentence a")) > 3
    assert set(dropped(tmp_path / "train").values()) == {
        "too short",
        "too long",
        "duplicate",
        "speaker in dev",
    }
    assert not {"blink", "tale"} & set((tmp_path / "dev" / "sentences.txt").read_text().split())
    assert max(Counter(s["text"] for s in train).values()) == 3
    assert "\tduplicate\t4 times: sentence a\n" in (tmp_path / "train" / "dropped.tsv").read_text()


def test_lines_of_training_are_those_of_the_corpora_with_their_name_and_counted_as_such(tmp_path: Path) -> None:
    """Whatever an utterance has or lacks."""
    segments = corpus({f"c{i:02}": (f"a{i}", f"b{i}") for i in range(12)})
    odd: dict[str, dict[str, Any]] = {
        "-3": {"text": "caf\u00e9  au\u00a0lait"},
        "-4": {"text": None, "speaker": None},
        "-5": {"custom": {"corpus": "x", "uncertain": True}},
        "-6": {"alignment": {"word": [AlignmentItem("so", 0.0, 0.5)]}},
        "-7": {"channel": [0, 1], "gender": "}"},
    }
    given = [dataclasses.replace(s, **odd.get(s.id[-2:], {})) for s in segments]
    others = {f"own_{role}": side("en_1", 0, "en_1-A", ["hi"]) for role in ("dev", "test")}
    split(tmp_path, dataclasses.replace(OWN, max_duplicates=20), own_train=given, **others)
    out = tmp_path / "train"
    read = supervisions(tmp_path / "corpora" / "own" / "train")
    expected = [e | {"custom": e.get("custom", {}) | {"corpus": "own"}} for e in read if e["id"] not in dropped(out)]
    with gzip.open(out / "supervisions.jsonl.gz", "rt", encoding="utf-8") as file:
        assert file.read() == "".join(format_line(entry)[1] for entry in expected)
    assert 100 < len(expected) < len(read)
    report = json.loads((out / "report.json").read_text())
    counts = ManifestCounts(read_jsonl(out / "recordings.jsonl.gz"), out)
    assert all(counts.add(entry) for entry in expected)
    assert counts.report() == {key: value for key, value in report.items() if key != "dropped"}
    texts = [entry["text"] for entry in read if entry.get("text")]
    assert (out / "sentences.txt").read_text(encoding="utf-8") == "".join(f"{text}\n" for text in texts)


def test_what_is_too_long_to_train_on_is_set_aside_to_be_cut(tmp_path: Path) -> None:
    calls = {f"c{i:02}": (f"a{i}", f"b{i // 2}") for i in range(20)}
    long = [
        dataclasses.replace(segment, id=f"{segment.id}-long", text="tale", duration=25.0).with_custom(
            UNCERTAIN, segment.channel == 1
        )
        for segment in corpus(calls, 1)
    ]
    data = make_data(train=("fisher",), dev_minutes=2, uncertain="drop", cut_long=True)
    train, dev = split(tmp_path, data, fisher_train=corpus(calls) + long)
    held_out = {s["recording_id"] for s in dev}, {s["speaker"] for s in dev}
    wanted = [s for s in long if s.recording_id not in held_out[0] and s.speaker not in held_out[1]]
    good = {s.id for s in wanted if s.channel == 0}
    found = supervisions(tmp_path / "long")
    assert 10 < len(found) < len(wanted) < len(long)
    assert {s["id"] for s in found} == good
    assert {s["custom"]["corpus"] for s in found} == {"fisher"}
    for left in ({s.id for s in long} - good, {s.id for s in long}):
        assert {name for name, why in dropped(tmp_path / "train").items() if why == "too long"} == left
        assert (tmp_path / "train" / "sentences.txt").read_text().splitlines().count("tale") == len(wanted)
        assert not {s["id"] for s in train} & {s.id for s in long}
        split_manifests(tmp_path, dataclasses.replace(data, cut_long=False))
    assert not (tmp_path / "long").exists()


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_doubted_utterances_are_trained_on_or_not_and_their_text_stays(tmp_path: Path, choice: str) -> None:
    segments = corpus({f"c{i:02}": (f"a{i}", f"b{i}") for i in range(12)})
    marked = [s.with_custom(UNCERTAIN, True) if s.id.endswith("-3") else s for s in segments]
    data = make_data(("fisher",), uncertain=choice, dev_minutes=1, max_duplicates=5)
    train, dev = split(tmp_path, data, fisher_train=marked)
    assert sum(s["text"] == "sentence d" for s in train) == (5 if choice == "keep" else 0)
    assert Counter(dropped(tmp_path / "train").values())["uncertain"] == (
        0 if choice == "keep" else 24 - len(dev) // 10
    )
    assert {s["text"] for s in dev} >= {"sentence d"}
    text = (tmp_path / "train" / "sentences.txt").read_text().splitlines()
    assert text.count("sentence d") == 24 - len(dev) // 10


def test_of_one_speaker_utterances_are_held_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = corpus({"c1": ("a", "a"), "c2": ("a", "a")}, num_utterances=30)
    train, dev = ({s["id"] for s in some} for some in split(tmp_path, OWN, own_train=own, own_test=corpus(pairs(1))))
    assert (len(dev), len(train), dev & train) == (12, 108, set())
    assert {id_[:2] for id_ in dev} == {"c1", "c2"}
    assert "utterances are held out instead, dev and training share speakers" in caplog.text


def test_a_corpus_with_nothing_to_train_on_has_nothing_to_hold_out(tmp_path: Path) -> None:
    swbd = side("s1", 0, "s", ["hi"], duration_s=30)
    split(tmp_path, make_data(("fisher", "swbd")), fisher_train=corpus(pairs(3)), swbd_train=swbd)
    assert dropped(tmp_path / "train")["s1-0-0"] == "too long"


def test_each_fold_holds_out_other_speakers_and_a_given_dev_set_none(tmp_path: Path) -> None:
    write(tmp_path, own_train=corpus(pairs(3)), own_test=corpus(pairs(1, "t"), 2))
    held_out = []
    for fold in range(3):
        split_manifests(tmp_path, dataclasses.replace(OWN, dev_fold=fold))
        held_out.append({s["recording_id"] for s in supervisions(tmp_path / "dev")})
        assert {s["recording_id"] for s in supervisions(tmp_path / "train")} == {"c00", "c01", "c02"} - held_out[-1]
    assert set.union(*held_out) == {"c00", "c01", "c02"}
    with pytest.raises(AsrtoolError, match=r"data\.dev_fold is 3, but all conversations of own are in the"):
        split_manifests(tmp_path, dataclasses.replace(OWN, dev_fold=3))
    train, dev = split(tmp_path, OWN, own_dev=corpus({"d1": ("ca0", "e")}, 2))
    assert ({s["recording_id"] for s in dev}, len(train)) == ({"d1"}, 60)
    with pytest.raises(AsrtoolError, match=r"data\.dev_fold is 1, but own has a development set"):
        split_manifests(tmp_path, dataclasses.replace(OWN, dev_fold=1))


@pytest.mark.parametrize(
    ("duration_s", "fault"),
    [(5.0, "left of 1: 1 are held out, 0 too short .*; give more"), (25.0, "0 are held out, 1 too .*look at data.min")],
)
def test_one_utterance_alone_cannot_be_split(tmp_path: Path, duration_s: float, fault: str) -> None:
    with pytest.raises(AsrtoolError, match=fault):
        split(tmp_path, OWN, own_train=side("c1", 0, "a", ["hi"], duration_s), own_test=corpus(pairs(1)))


def test_hesitations_and_partial_words_are_optional_in_a_reference() -> None:
    segments = side("c1", 0, "swbd-7", ["uh th- this [noise] is mhm -y"])
    line = format_reference((s.to_dict() for s in segments), {"c1": "swbd"}).splitlines()[-1]
    assert line == "c1/c1-0-0 A swbd-7 0.000 5.000 <O,swbd> (uh) (th-) this is mhm (-y)"


def test_rules_for_hypotheses_alone_are_left_out_of_the_dev_rules() -> None:
    glm = '* name "x"\nOK => O. K.\n;; INPUT_DEPENDENT_APPLICATION = "ctm"\n[I\'M] => [I AM]\n'
    assert reference_rules(glm) == '* name "x"\nOK => O. K.\n'
    assert reference_rules("OK => O. K.\n") == "OK => O. K.\n"


def test_dev_of_unknown_speakers_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls = {f"c{i:02}": (f"c{i:02}-0", f"known{i}") for i in range(10)}
    split(tmp_path, make_data(train=("swbd",), dev_minutes=1), swbd_train=corpus(calls))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("1 of 2 speakers held out as dev are recordings without a known speaker, who may be in")


@pytest.mark.parametrize(("dev_minutes", "is_cut"), [(1, False), (1000, True)])
def test_more_than_a_tenth_is_not_held_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dev_minutes: float, is_cut: bool
) -> None:
    with caplog.at_level("INFO"):
        found = split(tmp_path, make_data(train=("swbd",), dev_minutes=dev_minutes), swbd_train=corpus(pairs(40)))
    assert ("data.dev_minutes is 1000, more than 10% of the training speech" in caplog.text) == is_cut
    assert {record.levelname for record in caplog.records} == {"INFO"}
    names = sorted({s["speaker"] for s in found[1]})
    shown = ", ".join(names) if not is_cut else f"{', '.join(names[:5])} and {len(names) - 5} more"
    assert f"held out as dev: speakers {shown}" in [record.getMessage() for record in caplog.records]
    train_s, dev_s = (sum(s["duration"] for s in some) for some in found)
    assert dev_s / (train_s + dev_s) < 0.2


def test_memory_does_not_grow_with_the_utterances(tmp_path: Path) -> None:
    """Only columns, text and the list of drops grow; an object of lhotse takes several hundred bytes."""

    def peak(num_calls: int) -> int:
        folder = tmp_path / str(num_calls)
        write(folder, swbd_train=corpus(pairs(num_calls), 60))
        data = make_data(("swbd",), dev_minutes=1, max_duplicates=10**6)
        return peak_bytes(lambda: split_manifests(folder, data))

    assert (peak(14) - peak(6)) / (8 * 2 * 60) < 200
