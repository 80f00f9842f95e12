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

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import AudioSource, Recording, SupervisionSegment
from lhotse.supervision import AlignmentItem
from memory import peak_bytes
from small_releases import dropped, make_data, read_jsonl, supervisions

from asrtool.data.manifests.manifest import format_line, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, read_sets
from asrtool.data.manifests.validator import Tally
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import UNCERTAIN
from asrtool.local.sets.held_out import choose_conversations, choose_fold
from asrtool.local.sets.split import split_manifests
from asrtool.local.sets.split_part import occurrences
from asrtool.local.text.references import NO_RULES_GLM, format_reference, reference_rules

OWN = make_data(("own",), ("own",), ("own",))


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


def write(folder: Path, segments: list[SupervisionSegment]) -> None:
    texts = {"ref.stm": "of the test\n", "ref.glm": NO_RULES_GLM}
    recordings = [recording(id_) for id_ in sorted({s.recording_id for s in segments})]
    write_manifests(folder, recordings, segments, [], 0.0, texts)


def test_the_call_whose_speakers_are_in_no_other_is_held_out() -> None:
    segments = corpus({"c1": ("a", "b"), "c2": ("b", "c"), "c3": ("x", "y"), "c4": ("c", "a")})
    assert choose(segments, 60) == {"c3"}


def test_a_call_of_held_out_speakers_alone_joins_them() -> None:
    segments = corpus({"c1": ("a", "b"), "c2": ("a", "b"), "c3": ("c", "d"), "c4": ("c", "e"), "c5": ("d", "e")})
    assert choose(segments, 150) == {"c1", "c2"}


def test_one_conversation_is_held_out_however_little_is_asked() -> None:
    segments = corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(5)})
    assert len(choose(segments, 1.0)) == 1


def one_by_one(segments: list[SupervisionSegment], target_s: float) -> set[str]:
    """The same choice, with every conversation looked at again after each."""
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
    """As where each utterance is a file: two million pairs of recordings of one speaker, some 60 bytes each."""
    names = [f"{who}{number:04}" for who in "ab" for number in range(1000)]
    speech_s, num = dict.fromkeys(names, 5.0), Counter({(name, name[0]): 1 for name in names})
    chosen = choose_conversations(speech_s, num, 60.0)
    assert len(chosen) == 1000
    assert len({name[0] for name in chosen}) == 1
    assert peak_bytes(lambda: choose_conversations(speech_s, num, 60.0)) < 2**24


def test_folds_lie_apart_until_none_is_left() -> None:
    """Speaker s0 is in two conversations, so that these are in one fold or in two."""
    segments = corpus({f"c{i}": (f"s{i % 7}", f"t{i}") for i in range(8)}, num_utterances=4)
    speech_s = Counter({s.recording_id: 40.0 for s in segments})
    num = Counter((s.recording_id, s.speaker) for s in segments)
    folds = [choose_fold(speech_s, num, 70.0, fold) for fold in range(6)]
    assert folds[0] == choose_conversations(speech_s, num, 70.0)
    assert [len(fold) for fold in folds] == [2, 2, 2, 2, 0, 0]
    assert set.union(*folds) == set(speech_s)


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


def test_the_held_out_fraction_is_near_what_was_asked() -> None:
    segments = corpus({f"c{i:02}": (f"a{i}", f"b{i % 30}") for i in range(60)})
    chosen = choose(segments, 500)
    assert 450 <= sum(s.duration for s in segments if s.recording_id in chosen) <= 750


@given(st.lists(st.integers(0, 5)))
def test_occurrences_are_counted_in_order(values: list[int]) -> None:
    seen = Counter[int]()
    expected = []
    for value in values:
        seen[value] += 1
        expected.append(seen[value])
    assert occurrences(np.array(values, dtype=np.int64)).tolist() == expected


def test_dev_speakers_are_in_no_training_conversation(tmp_path: Path) -> None:
    calls = {f"c{i:02}": (f"s{i}", f"s{(i + 1) % 40}") for i in range(40)}
    write(tmp_path / "corpora" / "swbd" / "train", corpus(calls))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    split_manifests(tmp_path, make_data(train=("swbd",), dev_minutes=5))
    dev, train = supervisions(tmp_path / "dev"), supervisions(tmp_path / "train")
    assert not {s["speaker"] for s in dev} & {s["speaker"] for s in train}
    assert not {s["recording_id"] for s in dev} & {s["recording_id"] for s in train}
    assert 240 <= sum(s["duration"] for s in dev) <= 450
    reasons = Counter(dropped(tmp_path / "train").values())
    assert set(reasons) == {"speaker in dev"}
    assert len(train) + len(dev) + reasons["speaker in dev"] == 800


def test_a_speaker_of_dev_is_in_no_other_corpus_either(tmp_path: Path) -> None:
    one = {f"sw{i}": (f"a{i}", f"b{i}") for i in range(20)}
    other = {f"fe{i}": (f"a{(i + 7) % 20}", f"d{i}") for i in range(20)}
    for name, calls, num in (("swbd", one, 1), ("fisher", other, 4)):
        nobody = [s for i in range(num) for s in side(name + "-x" * (i + 1), 0, "x", ["yes"] * 20)]
        unnamed = [dataclasses.replace(s, speaker=None) for s in nobody]
        write(tmp_path / "corpora" / name / "train", [*corpus(calls), *unnamed])
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    split_manifests(tmp_path, make_data(dev_minutes=6))
    dev, train = ([s.get("speaker") for s in supervisions(tmp_path / name)] for name in ("dev", "train"))
    assert {name[:1] for name in dev if name} == {"a", "b", "d"}
    assert {*dev} & {*train} == {None}  # held out of one corpus, another person in the other
    assert (dev.count(None), train.count(None)) == (20, 80)


def test_a_recording_of_two_corpora_is_named_with_both(tmp_path: Path) -> None:
    for name in ("swbd", "fisher"):
        write(tmp_path / "corpora" / name / "train", corpus({f"{name}{i}": (f"a{i}", f"b{i}") for i in range(9)}))
    write(tmp_path / "corpora" / "fisher" / "train", corpus({"swbd3": ("a", "b"), "fe": ("c", "d")}))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    with pytest.raises(AsrtoolError, match=r"swbd3 is a recording of swbd and of fisher, both in data\.train; rename"):
        split_manifests(tmp_path, make_data(dev_minutes=3))


def test_each_training_corpus_gives_to_dev_and_is_a_label_there(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({f"sw{i:02}": (f"a{i}", f"b{i}") for i in range(20)}))
    write(tmp_path / "corpora" / "fisher" / "train", corpus({f"fe{i:02}": (f"c{i}", f"d{i}") for i in range(20)}))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    split_manifests(tmp_path, make_data(dev_minutes=3))
    prefixes = {s["recording_id"][:2] for s in supervisions(tmp_path / "dev")}
    assert prefixes == {"sw", "fe"}
    stm = (tmp_path / "dev" / "ref.stm").read_text()
    assert ';; LABEL "fisher" "fisher" "fisher"' in stm
    assert "<O,swbd> sentence a" in stm


def test_each_training_corpus_has_its_sentences_beside_those_of_all(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({f"sw{i:02}": (f"a{i}", f"b{i}") for i in range(20)}))
    write(tmp_path / "corpora" / "fisher" / "train", corpus({f"fe{i:02}": (f"c{i}", f"d{i}") for i in range(10)}))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    split_manifests(tmp_path, make_data(dev_minutes=3))
    train = tmp_path / "train"
    assert sorted(path.name for path in train.glob("sentences*")) == [
        "sentences.fisher.txt",
        "sentences.swbd.txt",
        "sentences.txt",
    ]
    parts = [(train / f"sentences.{name}.txt").read_text() for name in ("swbd", "fisher")]
    assert "".join(parts) == (train / "sentences.txt").read_text()
    assert [len(part.splitlines()) for part in parts] == [
        sum(s["recording_id"].startswith(prefix) for s in supervisions(train)) for prefix in ("sw", "fe")
    ]
    split_manifests(tmp_path, make_data(train=("swbd",), dev_minutes=3))
    assert not (train / "sentences.fisher.txt").exists()


def test_the_test_set_is_taken_whole_with_its_reference(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(4)}))
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["short", "long"], duration_s=0.05))
    split_manifests(tmp_path, make_data(train=("swbd",)))
    assert len(supervisions(tmp_path / "hub5")) == 2
    assert (tmp_path / "hub5" / "ref.stm").read_text() == "of the test\n"
    assert (tmp_path / "hub5" / "sentences.txt").read_text() == "short\nlong\n"


def test_each_test_set_has_its_folder_and_the_list_says_which_there_are(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(4)}))
    for name in ("rt03", "hub5"):
        write(tmp_path / "corpora" / name / "test", side(f"{name}_1", 0, f"{name}-A", [f"in {name}"]))
    split_manifests(tmp_path, make_data(("swbd",), test=("rt03", "hub5")))
    sets = read_sets(tmp_path)
    assert (sets.names, sets.scored) == (["train", "dev", "rt03", "hub5"], ["dev", "rt03", "hub5"])
    assert sets.test[1] == EvaluationSet("hub5", "Hub5'00", {"SW": "Switchboard", "EN": "CallHome"})
    assert [s["text"] for s in supervisions(tmp_path / "rt03")] == ["in rt03"]
    split_manifests(tmp_path, make_data(("swbd",)))
    assert read_sets(tmp_path).scored == ["dev", "hub5"]


def test_a_split_that_failed_leaves_no_list_of_sets(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(4)}))
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, make_data(("swbd",)))
    with pytest.raises(AsrtoolError):
        split_manifests(tmp_path, make_data(("swbd",), test=("hub5", "rt03")))
    with pytest.raises(AsrtoolError, match=r"sets.json: missing, so the sets are not complete"):
        read_sets(tmp_path)


def test_every_utterance_says_of_which_corpus_it_is(tmp_path: Path) -> None:
    for name, prefix in (("swbd", "sw"), ("fisher", "fe")):
        calls = {f"{prefix}{i}": (f"{prefix}a{i}", f"{prefix}b{i}") for i in range(9)}
        write(tmp_path / "corpora" / name / "train", corpus(calls))
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, make_data())
    names = {"sw": "swbd", "fe": "fisher", "en": "hub5"}
    for folder in ("train", "dev", "hub5"):
        for segment in supervisions(tmp_path / folder):
            assert segment["custom"]["corpus"] == names[segment["recording_id"][:2]]


def test_durations_and_duplicates_are_limited_in_training(tmp_path: Path) -> None:
    segments = corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(4)})
    odd = side("c9", 0, "z", ["blink"], 0.05) + side("c8", 0, "y", ["tale"], 25) + side("c7", 0, "x", ["yeah"] * 5)
    write(tmp_path / "corpora" / "swbd" / "train", segments + odd)
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, make_data(train=("swbd",), max_duplicates=3, dev_minutes=0.1))
    report = json.loads((tmp_path / "train" / "report.json").read_text())
    assert (report["dropped"]["too short"], report["dropped"]["too long"]) == (1, 1)
    assert max(Counter(s["text"] for s in supervisions(tmp_path / "train")).values()) == 3


def test_the_text_of_training_is_all_that_its_conversations_say(tmp_path: Path) -> None:
    calls = {f"c{i:02}": (f"a{i}", f"b{i // 2}") for i in range(20)}
    said = corpus(calls) + [
        dataclasses.replace(segment, id=f"{segment.id}-{text}", text=text, duration=duration_s)
        for segment in corpus(calls, 1)
        for text, duration_s in (("blink", 0.05), ("tale", 25.0))
    ]
    write(tmp_path / "corpora" / "swbd" / "train", said)
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, make_data(train=("swbd",), max_duplicates=3, dev_minutes=2))
    dev = supervisions(tmp_path / "dev")
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
    write(tmp_path / "corpora" / "own" / "train", given)
    for role in ("dev", "test"):
        write(tmp_path / "corpora" / "own" / role, side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, dataclasses.replace(OWN, max_duplicates=20))
    out = tmp_path / "train"
    read = supervisions(tmp_path / "corpora" / "own" / "train")
    expected = [e | {"custom": e.get("custom", {}) | {"corpus": "own"}} for e in read if e["id"] not in dropped(out)]
    with gzip.open(out / "supervisions.jsonl.gz", "rt", encoding="utf-8") as file:
        assert file.read() == "".join(format_line(entry)[1] for entry in expected)
    assert 100 < len(expected) < len(read)
    report = json.loads((out / "report.json").read_text())
    tally = Tally(read_jsonl(out / "recordings.jsonl.gz"), out)
    assert all(tally.add(entry) for entry in expected)
    assert tally.report() == {key: value for key, value in report.items() if key != "dropped"}
    texts = [entry["text"] for entry in read if entry.get("text")]
    assert (out / "sentences.txt").read_text(encoding="utf-8") == "".join(f"{text}\n" for text in texts)


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_is_too_long_to_train_on_is_set_aside_to_be_cut(tmp_path: Path, is_cut: bool) -> None:
    calls = {f"c{i:02}": (f"a{i}", f"b{i // 2}") for i in range(20)}
    long = [
        dataclasses.replace(segment, id=f"{segment.id}-long", text="tale", duration=25.0).with_custom(
            UNCERTAIN, segment.channel == 1
        )
        for segment in corpus(calls, 1)
    ]
    write(tmp_path / "corpora" / "fisher" / "train", corpus(calls) + long)
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    data = make_data(train=("fisher",), dev_minutes=2, uncertain="drop", cut_long=True)
    split_manifests(tmp_path, data)
    split_manifests(tmp_path, data if is_cut else dataclasses.replace(data, cut_long=False))
    dev = supervisions(tmp_path / "dev")
    held_out = {s["recording_id"] for s in dev}, {s["speaker"] for s in dev}
    wanted = [s for s in long if s.recording_id not in held_out[0] and s.speaker not in held_out[1]]
    good = [s for s in wanted if s.channel == 0]
    dropped_ids = {name for name, why in dropped(tmp_path / "train").items() if why == "too long"}
    text = (tmp_path / "train" / "sentences.txt").read_text().splitlines()
    assert text.count("tale") == len(wanted)
    assert not {s["id"] for s in supervisions(tmp_path / "train")} & {s.id for s in long}
    if not is_cut:
        assert not (tmp_path / "long").exists()
        assert dropped_ids == {s.id for s in long}
        return
    found = supervisions(tmp_path / "long")
    assert 10 < len(found) < len(wanted) < len(long)
    assert {s["id"] for s in found} == {s.id for s in good}
    assert {s["custom"]["corpus"] for s in found} == {"fisher"}
    assert dropped_ids == {s.id for s in long} - {s.id for s in good}


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_doubted_utterances_are_trained_on_or_not_and_their_text_stays(tmp_path: Path, choice: str) -> None:
    segments = corpus({f"c{i:02}": (f"a{i}", f"b{i}") for i in range(12)})
    marked = [s.with_custom(UNCERTAIN, True) if s.id.endswith("-3") else s for s in segments]
    write(tmp_path / "corpora" / "fisher" / "train", marked)
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, make_data(("fisher",), uncertain=choice, dev_minutes=1, max_duplicates=5))
    train, dev = supervisions(tmp_path / "train"), supervisions(tmp_path / "dev")
    assert sum(s["text"] == "sentence d" for s in train) == (5 if choice == "keep" else 0)
    assert Counter(dropped(tmp_path / "train").values())["uncertain"] == (
        0 if choice == "keep" else 24 - len(dev) // 10
    )
    assert {s["text"] for s in dev} >= {"sentence d"}
    text = (tmp_path / "train" / "sentences.txt").read_text().splitlines()
    assert text.count("sentence d") == 24 - len(dev) // 10


def test_a_given_dev_set_is_the_dev_set(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "own" / "train", corpus({"c1": ("a", "b")}))
    write(tmp_path / "corpora" / "own" / "dev", corpus({"d1": ("a", "e")}, 2))
    write(tmp_path / "corpora" / "own" / "test", corpus({"t1": ("f", "g")}, 2))
    split_manifests(tmp_path, OWN)
    assert {s["recording_id"] for s in supervisions(tmp_path / "dev")} == {"d1"}
    assert len(supervisions(tmp_path / "train")) == 20


def test_of_one_speaker_utterances_are_held_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "corpora" / "own" / "train", corpus({"c1": ("a", "a"), "c2": ("a", "a")}, num_utterances=30))
    write(tmp_path / "corpora" / "own" / "test", corpus({"t1": ("f", "g")}))
    split_manifests(tmp_path, OWN)
    dev, train = ({s["id"] for s in supervisions(tmp_path / name)} for name in ("dev", "train"))
    assert (len(dev), len(train), dev & train) == (12, 108, set())
    assert {id_[:2] for id_ in dev} == {"c1", "c2"}
    assert "utterances are held out instead, dev and training share speakers" in caplog.text


def test_a_corpus_with_nothing_to_train_on_has_nothing_to_hold_out(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "fisher" / "train", corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(3)}))
    write(tmp_path / "corpora" / "swbd" / "train", side("s1", 0, "s", ["hi"], duration_s=30))
    write(tmp_path / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
    split_manifests(tmp_path, make_data(("fisher", "swbd")))
    assert dropped(tmp_path / "train")["s1-0-0"] == "too long"


def test_each_fold_holds_out_other_speakers(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "own" / "train", corpus({f"c{i}": (f"a{i}", f"b{i}") for i in range(3)}))
    write(tmp_path / "corpora" / "own" / "test", corpus({"t1": ("f", "g")}, 2))
    held_out = []
    for fold in range(3):
        split_manifests(tmp_path, dataclasses.replace(OWN, dev_fold=fold))
        held_out.append({s["recording_id"] for s in supervisions(tmp_path / "dev")})
        assert {s["recording_id"] for s in supervisions(tmp_path / "train")} == {"c0", "c1", "c2"} - held_out[-1]
    assert set.union(*held_out) == {"c0", "c1", "c2"}
    with pytest.raises(AsrtoolError, match=r"data\.dev_fold is 3, but all conversations of own are in the"):
        split_manifests(tmp_path, dataclasses.replace(OWN, dev_fold=3))
    write(tmp_path / "corpora" / "own" / "dev", corpus({"d1": ("a", "e")}, 2))
    with pytest.raises(AsrtoolError, match=r"data\.dev_fold is 1, but own has a development set"):
        split_manifests(tmp_path, dataclasses.replace(OWN, dev_fold=1))


@pytest.mark.parametrize(
    ("duration_s", "fault"),
    [(5.0, "left of 1: 1 are held out, 0 too short .*; give more"), (25.0, "0 are held out, 1 too .*look at data.min")],
)
def test_one_utterance_alone_cannot_be_split(tmp_path: Path, duration_s: float, fault: str) -> None:
    write(tmp_path / "corpora" / "own" / "train", side("c1", 0, "a", ["hi"], duration_s))
    write(tmp_path / "corpora" / "own" / "test", corpus({"t1": ("f", "g")}))
    with pytest.raises(AsrtoolError, match=fault):
        split_manifests(tmp_path, OWN)


def test_a_broken_manifest_stops_the_split_with_its_name(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({"c1": ("a", "b"), "c2": ("c", "d")}))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"t1": ("f", "g")}))
    path = tmp_path / "corpora" / "swbd" / "train" / "supervisions.jsonl.gz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(AsrtoolError, match=r"swbd/train/supervisions.jsonl.gz: corrupt after line"):
        split_manifests(tmp_path, make_data(train=("swbd",)))


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({"c1": ("a", "b"), "c2": ("c", "d")}))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"t1": ("f", "g")}))
    with pytest.raises(AsrtoolError, match="fisher/train: no such folder of manifests; run the prepare stage first"):
        split_manifests(tmp_path, make_data())


def test_hesitations_and_partial_words_are_optional_in_a_reference() -> None:
    segments = side("c1", 0, "swbd-7", ["uh th- this [noise] is mhm -y"])
    line = format_reference((s.to_dict() for s in segments), {"c1": "swbd"}).splitlines()[-1]
    assert line == "c1/c1-0-0 A swbd-7 0.000 5.000 <O,swbd> (uh) (th-) this is mhm (-y)"


def test_rules_for_hypotheses_alone_are_left_out_of_the_dev_rules() -> None:
    glm = '* name "x"\nOK => O. K.\n;; INPUT_DEPENDENT_APPLICATION = "ctm"\n[I\'M] => [I AM]\n'
    assert reference_rules(glm) == '* name "x"\nOK => O. K.\n'
    assert reference_rules("OK => O. K.\n") == "OK => O. K.\n"


@pytest.mark.parametrize(("dev_minutes", "is_cut"), [(1, False), (1000, True)])
def test_more_than_a_tenth_is_not_held_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dev_minutes: float, is_cut: bool
) -> None:
    write(tmp_path / "corpora" / "swbd" / "train", corpus({f"c{i:02}": (f"a{i}", f"b{i}") for i in range(40)}))
    write(tmp_path / "corpora" / "hub5" / "test", corpus({"en_1": ("en_1-A", "en_1-B")}, 3))
    split_manifests(tmp_path, make_data(train=("swbd",), dev_minutes=dev_minutes))
    assert ("data.dev_minutes is 1000, more than 10% of the training speech" in caplog.text) == is_cut
    speech_s = {name: sum(s["duration"] for s in supervisions(tmp_path / name)) for name in ("dev", "train")}
    assert speech_s["dev"] / sum(speech_s.values()) < 0.2


def test_memory_does_not_grow_with_the_utterances(tmp_path: Path) -> None:
    """But for columns, text and the list of drops; an object of lhotse takes several hundred bytes."""

    def peak(num_calls: int) -> int:
        folder = tmp_path / str(num_calls)
        calls = {f"c{i}": (f"a{i}", f"b{i}") for i in range(num_calls)}
        write(folder / "corpora" / "swbd" / "train", corpus(calls, 90))
        write(folder / "corpora" / "hub5" / "test", side("en_1", 0, "en_1-A", ["hi"]))
        data = make_data(("swbd",), dev_minutes=1, max_duplicates=10**6)
        return peak_bytes(lambda: split_manifests(folder, data))

    assert (peak(18) - peak(8)) / (10 * 2 * 90) < 200
