"""The mini corpus: voices, sounds and lines, and its files as lhotse, libsndfile and NIST's scorer read them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import welch

from asrtool.files import MARK
from asrtool.local.mini import corpus as mini
from asrtool.local.mini.conversation import Segment
from asrtool.local.mini.corpus import make_corpus
from asrtool.local.mini.espeak import SAMPLING_RATE_HZ, Espeak, Voice
from asrtool.local.mini.evaluations import HUB5_REFERENCE, format_stm
from asrtool.local.mini.grammar import Token
from asrtool.local.mini.plan import CALLHOME, SWITCHBOARD, TRAIN, draw_voices, pair_speakers
from asrtool.local.mini.telephone import Line, through_lines
from asrtool.local.mini.training import format_fisher, format_ms98
from asrtool.score.hub5 import score_hub5
from asrtool.settings.data import Mini

OF_FIXTURE = Mini(train_hours=0.02, test_minutes=0.5, seed=7)  # of mini_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve minutes of speech: enough for every mark-up to occur."""
    out = tmp_path_factory.mktemp("mini") / "corpus"
    make_corpus(out, Mini(train_hours=0.16, test_minutes=2.5, seed=5), num_jobs=1)
    return out


def ms98(corpus: Path) -> dict[str, list[list[str]]]:
    """Lines of the MS-State transcripts by side: id, start, end, words."""
    files = sorted(corpus.glob("swb_ms98_transcriptions/*/*/*-trans.text"))
    return {path.name[2:7]: [line.split(None, 3) for line in path.read_text().splitlines()] for path in files}


def stm(corpus: Path) -> list[list[str]]:
    """Lines of the reference that are scored: file, channel, speaker, start, end, label, text."""
    text = (corpus / HUB5_REFERENCE / "hub5e00.english.000405.stm").read_text()
    lines = [line.split(None, 6) for line in text.splitlines() if not line.startswith(";;")]
    return [line for line in lines if line[6] != "IGNORE_TIME_SEGMENT_IN_SCORING"]


def digest(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != MARK)
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_segments_tile_a_side_and_are_heard_where_the_transcript_has_them(corpus: Path) -> None:
    for side, segments in ms98(corpus).items():
        path = next(corpus.glob(f"LDC97S62/*/data/sw0{side[:4]}.sph"))
        info = soundfile.info(path)
        assert (info.format, info.subtype, info.channels, info.samplerate) == ("NIST", "ULAW", 2, 8000)
        audio, rate_hz = soundfile.read(path)
        assert float(segments[0][1]) == 0
        assert float(segments[-1][2]) == pytest.approx(len(audio) / rate_hz, abs=1e-5)
        assert all(a[2] == b[1] for a, b in itertools.pairwise(segments))
        power: dict[bool, list[float]] = {True: [], False: []}
        for _, start, end, text in segments:
            part = audio[round(float(start) * rate_hz) : round(float(end) * rate_hz), "AB".index(side[4])]
            power[text == "[silence]"] += (part**2).tolist()
        assert 10 * np.log10(np.mean(power[False]) / np.mean(power[True])) > 9


def test_every_mark_up_occurs(corpus: Path) -> None:
    swbd = "\n".join(line[3] for lines in ms98(corpus).values() for line in lines)
    laughed, partial, tail, mispronounced = r"\[laughter-[a-z'.]+", r"\w+\[\w+\]-", r"-\[\w+\]\w+", r"\[\w+/\w+\]"
    for pattern in (laughed, partial, tail, mispronounced, r"\{\w+\}", "<b_aside> .* <e_aside>", "vocalized", "uh-huh"):
        assert re.search(pattern, swbd), pattern
    fisher = "".join(path.read_text() for path in corpus.glob("LDC200?T19/*/data/trans/*/*.txt"))
    for pattern in (r"\(\( \w+", r"\(\( \)\)", r"\[laughter\]", r"\[noise\]", r"\[breath\]", r"t\._v\.", r"\w+- "):
        assert re.search(pattern, fisher), pattern
    reference = "\n".join(line[6] for line in stm(corpus))
    for pattern in (r"\(%HESITATION\)", r"\([A-Z]+-\)", r"\{[A-Z]+ / [A-Z]+\}", r"\([A-Z]+\)", r"T\. V\."):
        assert re.search(pattern, reference), pattern


def test_speech_is_as_long_as_asked(corpus: Path) -> None:
    trans = [line for lines in ms98(corpus).values() for line in lines]
    with_words = [line for line in trans if re.search(r"[a-z]", re.sub(r"\[[a-z-]+\]", "", line[3]))]
    assert sum(float(e) - float(s) for _, s, e, _ in with_words) == pytest.approx(0.6 * 0.16 * 3600, rel=0.06)
    for prefix in ("en_", "sw_"):
        scored = [line for line in stm(corpus) if line[0].startswith(prefix)]
        assert sum(float(line[4]) - float(line[3]) for line in scored) == pytest.approx(75, rel=0.15)
        assert len({line[0] for line in scored}) == 2


def test_the_same_seed_gives_the_same_bytes_whatever_the_processes_and_the_other_corpora(
    corpus: Path, mini_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mini, "CALLS_PER_PROCESS", 4)
    make_corpus(tmp_path, OF_FIXTURE, ["swbd", "hub5", "rt03"], num_jobs=2)
    one, two, other = map(digest, (mini_corpus, tmp_path, corpus))
    assert {path: two[path] for path in one} == one
    assert {path.partition("/")[0] for path in two.keys() - one.keys()} == {"LDC2007S10"}
    assert other.keys() > one.keys()  # three conversations of each kind at least
    assert not set(other.values()) & {digest_ for path, digest_ in one.items() if path.endswith(".sph")}


def test_whole_turns_are_the_same_sound_and_words_in_longer_utterances(mini_corpus: Path, tmp_path: Path) -> None:
    make_corpus(tmp_path, dataclasses.replace(OF_FIXTURE, whole_turns=True), num_jobs=1)
    apart, whole = digest(mini_corpus), digest(tmp_path)
    assert apart.keys() == whole.keys()
    assert {Path(name).suffix for name in apart if apart[name] != whole[name]} == {".text", ".txt"}
    of_both = (ms98(of).values() for of in (mini_corpus, tmp_path))
    said = [[[line for line in lines if line[3] != "[silence]"] for lines in of] for of in of_both]
    words = [[" ".join(line[3] for line in lines) for lines in of] for of in said]
    assert words[0] == words[1]
    short_s, long_s = ([float(line[2]) - float(line[1]) for lines in of for line in lines] for of in said)
    assert len(long_s) < 0.8 * len(short_s)
    assert max(long_s) > max(short_s)


def test_a_perfect_hypothesis_has_no_error(corpus: Path, tmp_path: Path) -> None:
    lines = stm(corpus)
    (tmp_path / "hyp.ctm").write_text("".join(line for segment in lines for line in perfect_ctm(segment)))
    files = (corpus / HUB5_REFERENCE / name for name in ("hub5e00.english.000405.stm", "en20000405_hub5.glm"))
    reference, rules = files
    result = score_hub5(reference, tmp_path / "hyp.ctm", rules)
    assert (result.overall.segments, result.overall.err) == (len(lines), 0)
    assert result.overall.num_words > 3 * len(lines)
    assert {"O", "EN", "SW", "F", "M", "EN-F"} <= set(result.labels)


def perfect_ctm(segment: list[str]) -> list[str]:
    """The words of a reference line as a recogniser would write them, contractions joined again."""
    text = re.sub(r"\{([^/}]*)/[^}]*\}", r"\1", segment[6]).replace("(%HESITATION)", "uh")
    text = re.sub(r"[()]", "", text).lower().replace("t. v.", "t v")
    for written, contraction in (("it is", "it's"), ("do not", "don't"), ("can not", "can't"), ("i have", "i've")):
        text = re.sub(rf"\b{written}\b", contraction, text)
    words, start_s, end_s = text.split(), float(segment[3]), float(segment[4])
    step_s = (end_s - start_s) / len(words)
    return [f"{segment[0]} {segment[1]} {start_s + i * step_s:.3f} {step_s:.3f} {w}\n" for i, w in enumerate(words)]


VOICE = Voice("en-US", "f1", "F", 50, 170)
WORDS = ["well", "i", "went", "to", "the", "lake", "because", "of", "the", "weather"]


def seeded() -> np.random.Generator:
    return np.random.default_rng(3)


def test_what_was_said_before_loading_does_not_matter() -> None:
    with Espeak(seed=5) as espeak:
        first, _ = espeak.speak(WORDS, VOICE)
        again, _ = espeak.speak(WORDS, VOICE)
    with Espeak(seed=5) as espeak:
        fresh, _ = espeak.speak(WORDS, VOICE)
    np.testing.assert_array_equal(first, fresh)
    assert first.shape != again.shape or not np.array_equal(first, again), "espeak-ng has become stateless: simplify"


def test_every_voice_can_be_heard_and_is_in_one_set_alone() -> None:
    pools = (TRAIN, SWITCHBOARD, CALLHOME)
    assert sum(len(set(pool.variants)) for pool in pools) == len(set().union(*(pool.variants for pool in pools)))
    voices = [v for pool in pools for v in islice(draw_voices(pool, seeded()), len(pool.variants))]
    assert len(set(voices)) == len(voices)
    with Espeak(seed=1) as espeak:
        for voice in voices:
            samples, starts_s = espeak.speak(["tee vee", "know"], voice)
            assert len(starts_s) == 2  # a word of two parts has one
            assert 0.2 < len(samples) / SAMPLING_RATE_HZ < 1.6, voice
            assert 0.01 < np.abs(samples).max() <= 1.5, voice


@pytest.mark.parametrize("num_conversations", [3, 4, 15])
def test_conversations_come_in_groups_that_can_be_held_out(num_conversations: int) -> None:
    pairs = pair_speakers(num_conversations)
    assert len(pairs) == num_conversations
    assert all(a != b for a, b in pairs)
    assert max(Counter(speaker for pair in pairs for speaker in pair).values()) <= 2
    for first in range(0, num_conversations, 2):
        inside = {speaker for pair in pairs[first : first + 2] for speaker in pair}
        outside = {speaker for pair in pairs[:first] + pairs[first + 2 :] for speaker in pair}
        assert not inside & outside


MARK_UPS = [  # token, MS-State, Fisher, stm
    (Token("lake"), "lake", "lake", "LAKE"),
    (Token("t._v."), "t v", "t._v.", "T. V."),
    (Token("uh"), "uh", "uh", "(%HESITATION)"),
    (Token("it's"), "it's", "it's", "IT IS"),
    (Token("think", "partial", "th"), "th[ink]-", "th-", "(TH-)"),
    (Token("because", "tail", "cause"), "-[be]cause", "-cause", "(-CAUSE)"),
    (Token("probably", "mispronounced", "probly"), "[probly/probably]", "probably", "{PROBABLY / PROBLY}"),
    (Token("nice", "laughed"), "[laughter-nice]", "[laughter] nice", "NICE"),
    (Token("beachish", "coined"), "{beachish}", "beachish", "BEACHISH"),
    (Token("it's", "uncertain"), "it's", "(( it's ))", "(IT) (IS)"),
    (Token("hold", "aside"), "<b_aside> hold <e_aside>", "hold", "HOLD"),
    (Token("", "noise"), "[noise]", "[noise]", ""),
    (Token("", "laughter"), "[laughter]", "[laughter]", ""),
    (Token("", "cough"), "[vocalized-noise]", "[cough]", ""),
    (Token("", "mumble"), "[vocalized-noise]", "(( ))", ""),
]


@pytest.mark.parametrize(("token", "ms98", "fisher_text", "stm"), MARK_UPS)
def test_each_corpus_spells_a_token_in_its_own_way(token: Token, ms98: str, fisher_text: str, stm: str) -> None:
    segment = Segment(0.0, 1.0, (token,))
    assert format_ms98(segment.tokens) == ms98
    assert format_fisher(segment) == fisher_text
    assert format_stm(segment) == stm


def test_a_line_sets_level_noise_and_band_and_the_far_side_leaks_in() -> None:
    near, far = np.zeros((2, 8 * SAMPLING_RATE_HZ))
    near[: 4 * SAMPLING_RATE_HZ], far[4 * SAMPLING_RATE_HZ :] = seeded().standard_normal((2, 4 * SAMPLING_RATE_HZ))
    line = Line(level_db=-26, snr_db=80, crosstalk_db=-20, hum_db=-100, tilt=0)
    audio = through_lines(np.stack([near, far], axis=1), (line, line), np.random.default_rng(4))[:, 0] / 32768
    leaked = (audio[4 * SAMPLING_RATE_HZ + 800 :] ** 2).mean() / (audio[: 4 * SAMPLING_RATE_HZ] ** 2).mean()
    assert 10 * np.log10(leaked) == pytest.approx(-20, abs=1)
    line = Line(level_db=-26, snr_db=20, crosstalk_db=-60, hum_db=-80, tilt=0.2)
    audio = through_lines(np.stack([near, near], axis=1), (line, line), np.random.default_rng(4))[:, 0] / 32768
    talk, rest = audio[: 4 * SAMPLING_RATE_HZ], audio[4 * SAMPLING_RATE_HZ + 800 :]
    assert 10 * np.log10((talk**2).mean()) == pytest.approx(-26, abs=0.5)
    assert 10 * np.log10((talk**2).mean() / (rest**2).mean()) == pytest.approx(20, abs=0.5)
    hz, power = welch(talk, SAMPLING_RATE_HZ, nperseg=512)
    inside, outside = power[(hz > 400) & (hz < 3200)].mean(), power[hz < 120].mean()
    assert 10 * np.log10(inside / outside) > 20
