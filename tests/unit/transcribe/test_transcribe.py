"""Audio to words by a small model, equal to the results of the toolkit's parts one by one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from commands import error_of, run_command, usage_error
from lhotse import CutSet, MonoCut, MultiCut, Recording, validate
from toy_work import FEATURES, make_work

import asrtool
from asrtool.bundle.trained import open_trained
from asrtool.data.features.cmvn import Cmvn, Moments
from asrtool.data.features.feature_type import frames_of
from asrtool.errors import AsrtoolError
from asrtool.transcribe.audio import open_sound
from asrtool.transcribe.recogniser import Recogniser, SpeakerNormaliser, open_recogniser
from asrtool.transcribe.segments import Piece, Segmenter, channel_row, choose_channels
from asrtool.transcribe.transcribe import Audio, files_at_once
from asrtool.transcribe.transcript import FORMATS

RATE = 8000


def voice(duration_s: float, seed: int) -> np.ndarray:
    """Bursts of coloured noise with pauses between, which the model takes for words."""
    random = np.random.default_rng(seed)
    samples = random.normal(scale=0.001, size=round(duration_s * RATE))
    at_s = 0.4
    while at_s < duration_s - 1:
        length_s = random.uniform(0.4, 3.0)
        begin, end = round(at_s * RATE), min(len(samples), round((at_s + length_s) * RATE))
        times = np.arange(end - begin) / RATE
        samples[begin:end] += (
            0.2 * np.sin(2 * np.pi * random.uniform(200, 2000) * times * (1 + times)) * random.random()
        )
        at_s += length_s + random.uniform(0.1, 2.0)
    return samples.astype(np.float32)


URL = "https://host/x.wav"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_work(tmp_path_factory.mktemp("toy") / "work")


@pytest.fixture(scope="module")
def call(work: Path) -> Path:
    path = work.parent / "call.wav"
    soundfile.write(path, np.stack([voice(30.0, 1), voice(30.0, 2)], axis=1), RATE, "FLOAT")
    return path


def run(*words: str | Path) -> str:
    return run_command("transcribe", *words).stdout


def test_words_are_those_of_the_model_on_each_piece(work: Path, call: Path) -> None:
    """The expectation is built of its parts: pieces, features, normalisation of the channel, model, best path."""
    with asrtool.load(work) as recogniser, open_trained(work) as trained:
        transcript = recogniser.transcribe(call, "2")
        samples, _ = soundfile.read(call, dtype="float32")
        segmenter = Segmenter(RATE, 20.0)
        pieces = [*segmenter.add(samples[:, 1]), *segmenter.end()]
        feats = [frames_of(piece.samples_S, RATE, FEATURES) for piece in pieces]
        mean_F, std_F = Moments.of(np.concatenate(feats)).mean_std()
        opened = open_recogniser(trained, num_jobs=1)
        method = opened.decoder.searches.methods["greedy"]
        expected = []
        for piece, feats_TF in zip(pieces, feats, strict=True):
            (scores_TV,) = opened.compute_scores([(feats_TF - mean_F) / std_F])
            expected += [
                (word.text, pytest.approx(word.begin_s + piece.begin_s, abs=1e-6))
                for word in method.search(scores_TV, opened.parameters).words
            ]
    assert len(pieces) > 3
    assert len(expected) > 10
    assert [(word.text, word.begin_s) for word in transcript.words] == expected


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_batches_and_processes_have_no_influence(num_jobs: int, work: Path, call: Path) -> None:
    with open_trained(work) as trained:
        opened = open_recogniser(trained, num_jobs=num_jobs)
        from asrtool.transcribe.transcribe import transcribe

        whole = transcribe(opened, call)
        sides = [transcribe(opened, call, side) for side in ("1", "2")]
    for number, side in enumerate(sides, 1):
        of_whole = [word.text for line in whole.lines if line.channel == number for word in line.words]
        assert of_whole == [word.text for word in side.words]


def test_a_channel_is_normalised_by_what_was_heard_of_it(tmp_path: Path) -> None:
    work = make_work(tmp_path / "work")
    random = np.random.default_rng(1)
    long_TF, short_TF = (random.normal(2, 5, size=(num, 20)).astype(np.float32) for num in (600, 50))
    normaliser = SpeakerNormaliser(Cmvn(work / "features" / "train", "speaker"))
    pieces = [Piece("a", 0.0, 6.0, 0.0, long_TF), Piece("b", 0.0, 0.5, 0.0, short_TF)]
    normaliser.update(pieces)
    found = normaliser.cmvn.normalise("a", long_TF)
    assert np.allclose(found.mean(axis=0), 0, atol=1e-3)
    assert np.allclose(found.std(axis=0), 1, atol=1e-3)
    mean_F, std_F = normaliser.cmvn.global_mean_std()  # 100 frames of the training set complete a short recording
    more_TF = np.concatenate([short_TF, np.repeat([mean_F - std_F, mean_F + std_F], 50, axis=0)])
    expected = (short_TF - more_TF.mean(axis=0)) / more_TF.std(axis=0)
    assert np.allclose(normaliser.cmvn.normalise("b", short_TF), expected, atol=1e-4)


@pytest.mark.parametrize("form", ["ctm", "srt", "vtt", "textgrid", "json", "lhotse"])
def test_the_command_aligns_a_recording_with_its_words(work: Path, call: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / "call.txt").write_text("So what\n did you do\n")
    with asrtool.load(work) as recogniser:
        expected = FORMATS[form][1](recogniser.align_transcript(call, "so what did you do", 2))
    options = ["--format", form, "--channel", "2"]
    words = ("align", work, call, tmp_path / "call.txt")
    assert run_command(*words, *options).stdout == expected
    out = tmp_path / "out"
    run_command(*words, out, *options)
    assert out.read_text(encoding="utf-8") == expected


@pytest.mark.parametrize(
    "words",
    [
        ("transcribe", "MODEL", URL),
        ("align", "MODEL", URL, "TEXT"),
        ("score", "wer", URL, "h"),
        ("compare", URL, "b"),
        ("export", URL, "out"),
    ],
)
def test_an_address_is_refused_as_one(work: Path, tmp_path: Path, words: Sequence[str]) -> None:
    (tmp_path / "TEXT").write_text("so")
    named = {"MODEL": str(work), "TEXT": str(tmp_path / "TEXT")}
    with pytest.raises(AsrtoolError, match=f"{URL}: an address, expected a file; fetch it first: curl -O"):
        run_command(*(named.get(word, word) for word in words))


def test_a_text_of_another_recording_is_a_warning(
    work: Path, call: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from asrtool.decode.align import align

    for threshold, expected in ((0.0, []), (1.1, [f"{call}: most words have a confidence below 1.1: check that"])):
        monkeypatch.setattr(align, "DOUBTFUL", threshold)
        with asrtool.load(work) as recogniser:
            recogniser.align(call, "so what did you do")
        assert [text[: text.find(" text and")] for text in caplog.messages if "most words" in text] == expected


def test_a_text_is_aligned_to_its_recording(work: Path, call: Path) -> None:
    with asrtool.load(work) as recogniser:
        words = recogniser.align(call, "so what did you do", channel=1)
        assert [word.text for word in words] == ["so", "what", "did", "you", "do"]
        assert all(a.end_s <= b.begin_s + 1e-6 for a, b in itertools.pairwise(words))
        assert recogniser.align(call, "So, what did YOU do?") == words
        with pytest.raises(AsrtoolError, match=r"call\.wav: cannot be aligned"):
            recogniser.align(call, "so " * 3000)
        with pytest.raises(AsrtoolError, match=r"'7 seas': .*; write it as it is said"):
            recogniser.align(call, "7 seas")


def test_samples_in_memory_are_transcribed_as_their_file_is(work: Path, call: Path) -> None:
    samples, _ = soundfile.read(call, dtype="float32")
    original = samples.copy()
    original[:100] = np.nan
    with asrtool.load(work) as recogniser:
        expected = recogniser.transcribe(call).lines
        assert len(expected) > 3
        for both in (samples.T, torch.from_numpy(samples.T).requires_grad_(), samples.T.astype(np.float64)):
            found = recogniser.transcribe((both, RATE))
            assert (found.name, found.duration_s, found.lines) == ("audio", 30.0, expected)
        whole = np.round(samples[:, 0] * 2**15).astype(np.int16)
        as_float = recogniser.transcribe((whole.astype(np.float32) / 2**15, RATE)).words
        assert recogniser.transcribe((whole, RATE)).words == as_float
        assert recogniser.align((samples[:, 1], RATE), "so what") == recogniser.align(call, "so what", 2)
        with pytest.raises(AsrtoolError, match=r"^audio: cannot be aligned"):
            recogniser.align((samples[:, 0], RATE), "so " * 3000)
        before = original.copy()
        recogniser.transcribe((original[:, 0], RATE))
        assert np.array_equal(original, before, equal_nan=True)


def test_several_recordings_are_transcribed_together_as_each_alone(
    work: Path, call: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short ones share batches, a long one between them has its own."""
    from asrtool.transcribe import transcribe as module

    monkeypatch.setattr(module, "TOGETHER_S", 20.0)
    paths = [tmp_path / f"{number}.wav" for number in range(7)]
    for number, path in enumerate(paths):
        soundfile.write(path, (1 + number) * voice(6.0 + number, number) / 9, RATE)
    same_name = [(voice(6.0, 8), RATE), (voice(10.0, 9) / 50, RATE)]
    audio = [*paths[:4], call, *same_name, *paths[5:], call]
    with asrtool.load(work) as recogniser:
        batches = []
        words = Recogniser.words
        monkeypatch.setattr(Recogniser, "words", lambda *given: batches.append(given[2]) or words(*given))
        together = list(recogniser.transcribe_all(iter(audio)))
        assert batches == [6 + 7 + 8 + 9, 30, 6 + 10 + 11, 12, 30]
        for each, found in zip(audio, together, strict=True):
            alone = recogniser.transcribe(each)
            assert len(alone.words) > 1
            assert (found.name, found.duration_s, found.text) == (alone.name, alone.duration_s, alone.text)
            assert [w.begin_s for w in found.words] == pytest.approx([w.begin_s for w in alone.words])
        (one,) = recogniser.transcribe_all([call], 2)
        assert one.text == recogniser.transcribe(call, 2).text
        assert list(recogniser.transcribe_all([])) == []


def test_files_of_a_command_share_batches_and_one_that_cannot_be_read_stays_in_its_place(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        soundfile.write(tmp_path / f"{number}.wav", voice(6.0 + number, number), RATE)
    (tmp_path / "1b.wav").write_text("no audio")
    batches = []
    words = Recogniser.words
    monkeypatch.setattr(Recogniser, "words", lambda *given: batches.append(given[2]) or words(*given))
    files = sorted(map(str, tmp_path.glob("*.wav")))
    error = error_of("transcribe", work, *files, "--out", tmp_path / "texts", "--jobs", "1")
    assert "1 of 4 files could not be transcribed" in error.what
    assert batches == [6 + 7 + 8]
    monkeypatch.undo()
    with asrtool.load(work) as recogniser:
        for number in range(3):
            alone = recogniser.transcribe(tmp_path / f"{number}.wav")
            assert (tmp_path / "texts" / f"{number}.txt").read_text() == alone.text


def test_cuts_of_lhotse_get_what_is_said_in_them_and_when(work: Path, call: Path) -> None:
    cut = MonoCut("part", 5.0, 20.0, 1, recording=Recording.from_file(call))
    stereo = MultiCut("both", 0.0, 10.0, [0, 1], recording=cut.recording)
    with asrtool.load(work) as recogniser:
        found, both = recogniser.transcribe_cuts(CutSet.from_cuts([cut, stereo]))
        alone = recogniser.transcribe(cut)
        with pytest.raises(AsrtoolError, match="is a MixedCut, expected a cut of one recording; make one of it"):
            list(recogniser.transcribe_cuts([cut.pad(30.0)]))
    validate(found)
    validate(both)
    assert (alone.name, alone.duration_s) == ("part", 20.0)
    assert (found.id, found.start, found.duration) == ("part", 5.0, 20.0)
    assert [each.text for each in found.supervisions] == alone.text.splitlines()
    assert {(each.channel, each.recording_id) for each in found.supervisions} == {(1, "call")}
    items = [item for each in found.supervisions for item in each.alignment["word"]]
    assert [item.symbol for item in items] == [word.text for word in alone.words]
    assert [item.start for item in items] == pytest.approx([word.begin_s for word in alone.words], abs=0.001)
    assert {each.channel for each in both.supervisions} == {0, 1}


def test_the_model_alone_gives_what_the_recogniser_searches(work: Path, call: Path) -> None:
    with asrtool.load(work) as recogniser, open_trained(work) as trained:
        feats_TF = recogniser.features(call, 2)
        assert feats_TF.dtype == np.float32
        assert feats_TF.mean(axis=0) == pytest.approx(0, abs=1e-3)
        with torch.inference_mode():
            scores_1TV, lens = recogniser.model(torch.from_numpy(feats_TF)[None], torch.tensor([len(feats_TF)]))
        assert isinstance(recogniser.model, torch.nn.Module)
        weights = asrtool.from_bundle(work).state_dict()
        assert all(torch.equal(weights[name], value) for name, value in recogniser.model.state_dict().items())
        assert scores_1TV.shape == (1, lens[0], recogniser.tokenizer.num_tokens)
        (expected,) = open_recogniser(trained, num_jobs=1).compute_scores([feats_TF])
        assert np.allclose(scores_1TV[0], expected, atol=1e-5)
        assert recogniser.tokenizer.pieces[recogniser.tokenizer.encode("so")[0]].startswith("▁")


def test_misuse_from_python_is_one_line(work: Path, call: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="num_jobs is -3, expected 1 or more"):
        asrtool.load(work, num_jobs=-3)
    with asrtool.load(work) as recogniser:
        assert recogniser.transcribe(call, channels=1).text == recogniser.transcribe(call, channels="1").text
        assert recogniser.transcribe(call, channels=2).channels == (2,)
        for wrong, message in (
            (np.zeros(9), "audio is of type ndarray, expected a path, .*; give an array or a tensor with its rate"),
            ((np.zeros(9), "8000"), "audio is of type tuple, expected a path"),
            ((np.zeros(9), 0), "audio is of type tuple, expected a path"),
            ((np.zeros((9, 2)), RATE), r"samples of shape \(9, 2\), expected \(samples,\) or .*; transpose them"),
            ((np.zeros((1, 1, 9)), RATE), r"samples of shape \(1, 1, 9\), expected"),
            ((np.zeros(9, np.int8), RATE), "samples of type int8, expected float or int16; convert them"),
        ):
            with pytest.raises(AsrtoolError, match=message):
                recogniser.transcribe(wrong)  # type: ignore[arg-type]
        with call.open("rb") as file, pytest.raises(AsrtoolError, match="of type BufferedReader, expected a path"):
            recogniser.transcribe(file)  # type: ignore[arg-type]
        with pytest.raises(AsrtoolError, match="the text is of type list, expected str; join its words by blanks"):
            recogniser.align(call, ["so"])  # type: ignore[arg-type]
        with pytest.raises(AsrtoolError, match=r"'\.\.\.': has no words; write all that is said"):
            recogniser.align(call, "...")
    for use in (lambda: recogniser.transcribe(call), lambda: recogniser.align(call, "so")):
        with pytest.raises(AsrtoolError, match="work: was closed; load it again"):
            use()
    with pytest.raises(AsrtoolError, match=r"text_rules is 'klingon', expected .*; see data.text_rules"):
        asrtool.prepare(call.parent, tmp_path / "m", text_rules="klingon")
    with pytest.raises(AsrtoolError, match=r"nodir: no such file or folder"):
        asrtool.prepare(tmp_path / "nodir", tmp_path / "m")


def test_channels_are_chosen_by_number_and_one_that_is_not_there_is_refused(call: Path) -> None:
    with open_sound(call) as sound:
        for given, expected in {"each": (0, 1), "mix": (), "2": (1,), "2,1": (1, 0), "2,2": (1,)}.items():
            assert choose_channels(sound, given) == expected
        for given in ("3", "0", "left", ""):
            with pytest.raises(AsrtoolError, match=r"has 2 channels, .* was asked for; choose each, mix or 1 to 2$"):
                choose_channels(sound, given)
        with pytest.raises(AsrtoolError, match=r"call: has 2 channels, channel 3 was asked for; choose 1 to 2$"):
            channel_row(sound, 3)
        one = dataclasses.replace(sound, num_channels=1)
        with pytest.raises(
            AsrtoolError, match=r"call: has 1 channel, channel '2' was asked for; choose each, mix or 1$"
        ):
            choose_channels(one, "2")


def test_files_of_a_folder_are_transcribed_side_by_side_and_written_in_order(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the first two is finished before the other has begun."""
    from asrtool.transcribe import transcribe as module

    (tmp_path / "begun").mkdir()
    for number in range(3):
        soundfile.write(tmp_path / f"{number}.wav", voice(3.0 + number, number), RATE)
    alone = [run(work, tmp_path / f"{number}.wav", "--jobs", "1", "--format", "nemo") for number in range(3)]
    found = [json.loads(line)["audio_filepath"] for line in alone]
    assert found == [str(tmp_path / f"{number}.wav") for number in range(3)]
    transcribe_several = module.transcribe_several

    def with_the_other(recogniser: Recogniser, paths: list[str], channels: str) -> object:
        (tmp_path / "begun" / Path(paths[0]).name).touch()
        until = time.monotonic() + 60
        while len(list((tmp_path / "begun").iterdir())) < 2:
            assert time.monotonic() < until, "the other file was not begun"
            time.sleep(0.01)
        return transcribe_several(recogniser, paths, channels)

    monkeypatch.setattr(module, "transcribe_several", with_the_other)
    assert run(work, tmp_path, "--jobs", "2", "--format", "nemo") == "".join(alone)


def test_of_one_file_and_of_a_pipe_searches_run_side_by_side_instead(work: Path) -> None:
    with open_trained(work) as trained:
        for paths, expected in ((["a"], 1), (["a", "-"], 1), (["a", "/dev/null"], 1), (["a", "b"], 2), ("abcdef", 4)):
            assert files_at_once(trained, [Audio(path, path) for path in paths], 4) == expected


def test_what_is_written_lies_as_the_audio_does(work: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    lengths_s = {"a/x.wav": 3.0, "b/x.wav": 4.0, "b/y.flac": 5.0, "b/y.ogg": 6.0, "z.wav": 7.0}
    for number, (name, duration_s) in enumerate(lengths_s.items()):
        (calls / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(calls / name, voice(duration_s, number), RATE)
    out = tmp_path / "out"
    run(work, calls, "--out", out, "--format", "json", "--format", "text", "--jobs", "1")
    found = {str(path.relative_to(out)): json.loads(path.read_text())["duration_s"] for path in out.rglob("*.json")}
    expected = {"a/x.json": 3.0, "b/x.json": 4.0, "b/y.flac.json": 5.0, "b/y.ogg.json": 6.0, "z.json": 7.0}
    assert found == pytest.approx(expected)
    assert (out / "b" / "y.ogg.txt").is_file()
    recordings = {line.split()[0] for line in run(work, calls, "--format", "ctm", "--jobs", "1").splitlines()}
    assert {"a/x", "b/x"} <= recordings <= {"a/x", "b/x", "y.flac", "y.ogg", "y", "z", "b/y.flac", "b/y.ogg"}
    soundfile.write(calls / "silent.wav", np.zeros(3 * RATE), RATE)
    said = run(work, calls, "--jobs", "1").splitlines()
    assert {line.split()[0] for line in said} == recordings | {"silent"}
    assert "silent" in said
    alone = run_command("transcribe", work, calls / "z.wav", "--jobs", "1")
    assert alone.stdout == (out / "z.txt").read_text()
    assert "z.wav: 7.0 s of 1 channel, " in alone.stderr
    assert "standard output takes one: add --out" in usage_error(
        "transcribe", work, calls / "z.wav", "--format", "srt", "--format", "ctm"
    )


def test_a_transcript_beside_the_audio_is_not_replaced(work: Path, call: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.wav").write_bytes(call.read_bytes())
    (tmp_path / "two" / "x.txt").write_text("by hand\n")
    for given in (tmp_path, tmp_path / "two", tmp_path / "two" / "x.wav"):
        out = given.parent if given.is_file() else given
        with pytest.raises(AsrtoolError, match=r"x\.txt: exists, and would be replaced although"):
            run(work, given, "--out", out)
    assert (tmp_path / "two" / "x.txt").read_text() == "by hand\n"
    assert not (tmp_path / "one" / "x.txt").exists()
    for _ in range(2):  # what it has written elsewhere it replaces
        run(work, tmp_path, "--out", tmp_path / "out", "--jobs", "1")
    run(work, tmp_path / "one", "--out", tmp_path / "one")
    gone = error_of("transcribe", work, "nosuch/x.wav", call, "--out", tmp_path / "three")
    assert "1 of 2 files could not be transcribed, nosuch/x.wav first" in str(gone)


def test_two_files_of_one_name_are_refused_before_anything_is_heard(work: Path, call: Path, tmp_path: Path) -> None:
    other = tmp_path / "call.wav"
    soundfile.write(other, voice(2.0, 3), RATE)
    with pytest.raises(AsrtoolError, match=r"would both be written to call\.wav"):
        run(work, call, other, "--out", tmp_path / "out")


def test_a_place_that_cannot_be_written_is_noticed_before_the_model_is_opened(call: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "call.txt").mkdir(parents=True)
    (tmp_path / "out" / "deep").write_text("a file")
    for out, found in (
        ("/dev/null", "/dev/null is not a folder"),
        ("/proc", "cannot be written, /proc"),
        ("/proc/new", "cannot be written"),
        (tmp_path / "out", "is a folder, expected a file name"),
        (tmp_path / "out" / "deep" / "er", "is not a folder"),
    ):
        with pytest.raises(AsrtoolError, match=found):
            run(tmp_path / "no model", call, "--out", out)


def test_a_name_that_is_not_utf_8_is_transcribed_in_each_form(work: Path, tmp_path: Path) -> None:
    for number, name in enumerate((b"a\xe9.wav", b"b.wav")):
        soundfile.write(tmp_path / "new.wav", voice(3.0, number), RATE)
        (tmp_path / "new.wav").rename(tmp_path / os.fsdecode(name))
    forms = [word for form in ("text", "ctm", "srt", "vtt", "json") for word in ("--format", form)]
    assert all(run(work, tmp_path, "--format", form, "--jobs", "1") for form in ("text", "ctm"))
    run(work, tmp_path, *forms, "--out", tmp_path / "out", "--jobs", "2")
    assert len(list((tmp_path / "out").glob("[!.]*"))) == 10
    assert (tmp_path / "out" / os.fsdecode(b"a\xe9.ctm")).read_text().startswith(r"a\xe9 A ")


def test_unknown_methods_and_empty_folders_are_one_line(work: Path, call: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="has no search method graph, but greedy"):
        run(work, call, "--method", "graph")
    with pytest.raises(AsrtoolError, match="no audio in it"):
        run(work, tmp_path)


@pytest.mark.parametrize(
    "samples", [voice(12.3, 1), np.zeros(round(12.3 * RATE), np.float32)], ids=["voice", "silence"]
)
def test_progress_ends_where_the_recording_does(
    samples: np.ndarray, work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    with asrtool.load(work) as recogniser, caplog.at_level("INFO"):
        recogniser.transcribe(tmp_path / "a.wav")
    progress = [text.split(",")[0] for text in caplog.messages if "recognise" in text]
    assert progress[-1] == "recognise: 13/13 seconds"  # a slow machine has lines before
