"""Needs of a run before it begins: hours, disk and memory, from measured rates."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from asrtool.data.features.disk_space import stored_bytes
from asrtool.data.manifests.speed_copies import with_speeds
from asrtool.predict.estimate.probe import NeuralProbe, Probe, Speech, probe_model, probe_neural_lm
from asrtool.recipe.state import Run
from asrtool.report.markdown import format_table, format_times
from asrtool.settings.config import Config
from asrtool.settings.data import Features
from asrtool.settings.lang import MAX_CHOSEN_SIZE, Tokenizer
from asrtool.settings.train import Nnlm
from asrtool.train.derived_settings import aligner_settings, fit, hybrid_settings, last_settings

GIB = 2**30
WORDS_AN_HOUR = 11_000  # mean of Switchboard and Fisher
FULL_HOURS = 1753.0  # to train on, of Switchboard and Fisher
FULL_WORDS = FULL_HOURS * WORDS_AN_HOUR
MIN_GIB = 0.05  # minimum of a process
OPTIMIZER_STATES = {"adamw": 2}  # optimizer states of each weight
NUM_PHONES = 42  # about as many tokens as tokenizer.unit = phone has
PHONES_A_WORD = 3.2  # mean of the mini corpus
PIECES_A_WORD = {60: 3.5, 250: 2.3, 500: 1.7, 1000: 1.3, 2000: 1.1}  # by tokenizer.vocab_size, of English
ASSUMED_HZ = 16000  # if features.sampling_rate_hz follows from the data
PROBED_S = 30.0  # seconds of noise whose features are computed
UTTERANCE_S = 4.3  # mean length of Switchboard's: 260,000 in 313 hours in Kaldi's recipe
LENGTH_BIAS = 1.25  # length in the mean over seconds to that over utterances, in the mini corpus
NUM_WORDS = 45_000  # words of the lexicon of Switchboard and Fisher
FEATURES_GIB = 0.28, 0.17 / FULL_HOURS  # memory of the parent process: at the start, and for an hour of speech
SAME_AUDIO_S, SEARCH_S = 6.3, 0.04  # CPU seconds an hour: all but what each hour of the index adds (decisions)
INDEX_HOURS = 100.0  # above these the index of data.same_audio is thinned
ALIGN_S = 4.0  # CPU seconds an hour to align scores: of the mini corpus
BYTES_A_WORD = 8  # memory of the text of a neural language model in training (train/sentences.py)
BEGINNINGS = 35  # distinct prefixes for each word of an utterance: 430 in lists of 100 hypotheses of 12 words
# IBM's hybrid LSTM of 43.15 million weights, 16 epochs of 2,000 hours, took one V100 about a week.
V100_FLOPS = 6 * 43.15e6 * 16 * 2000 * 3600 * 100 / (7 * 24 * 3600)


@dataclass(frozen=True)
class DataAmount:
    """Amounts of speech and text in a recipe."""

    hours: float  # to train on
    source: str  # origin of these hours, for the table
    hours_by_corpus: Mapping[str, float] = field(default_factory=dict)  # in an epoch; empty if unknown: `hours` then
    utterance_s: float = 0.0  # mean length of an utterance; 0 if unknown
    words_an_hour: float = WORDS_AN_HOUR
    extra_words: float = 0.0  # words of lm.extra_text
    decoding: tuple[float, float] = (0.0, 0.0)  # CPU hours and bytes of audio decoded by prepare

    @property
    def words(self) -> float:
        """Words in the text of the training conversations."""
        return self.hours * self.words_an_hour

    @property
    def epoch_hours(self) -> float:
        """Hours of speech in an epoch."""
        return sum(self.hours_by_corpus.values()) or self.hours

    def speech(self, tokenizer: Tokenizer) -> Speech:
        """Return the length and tokens a second of a typical utterance."""
        tokens_a_s = self.words_an_hour / 3600 * tokens_a_word(tokenizer)
        return Speech((self.utterance_s or UTTERANCE_S) * LENGTH_BIAS, tokens_a_s)


@dataclass(frozen=True)
class Need:
    """Time, memory and disk space that a stage needs."""

    cpu_hours: float | None = None
    gpu_hours: float | None = None
    disk_bytes: float | None = None
    memory_bytes: float | None = None

    def cells(self) -> list[str]:
        """Return the cells of a row of the table."""
        times = ["-" if hours is None else _time(hours) for hours in (self.cpu_hours, self.gpu_hours)]
        sizes = ["-" if size is None else _gib(size) for size in (self.disk_bytes, self.memory_bytes)]
        return [*times, *sizes]


@dataclass(frozen=True)
class Rates:
    """Rates of a stage that reads text, in proportion to its words.

    `make bench-scale` measured them on Fisher and Switchboard (benchmarks/README.md): a lexicon of 45,000 words,
    4-grams, a thousand tokens.
    """

    cpu_s: float
    peak_gib: float
    disk_bytes: float = 0.0

    def need(self, words: float) -> Need:
        """Return the need for `words`."""
        part = words / FULL_WORDS
        memory_bytes = GIB * max(MIN_GIB, self.peak_gib * part)
        return Need(self.cpu_s / 3600 * part, disk_bytes=self.disk_bytes * part or None, memory_bytes=memory_bytes)


PREPARE = Rates(cpu_s=9.4 + 49.1 + 21.6, peak_gib=0.57)  # rates for both corpora and the split, without decoding audio
TEXT = Rates(cpu_s=49.1, peak_gib=0.31)  # transcripts of Fisher, at most as with its audio
TOKENIZER = Rates(cpu_s=41.2, peak_gib=1.64)  # rates for pieces
LANG = Rates(cpu_s=4.7, peak_gib=0.23)
LM = Rates(cpu_s=27.0, peak_gib=1.46)
GRAPH = Rates(cpu_s=213.0, peak_gib=3.02, disk_bytes=442e6)
SEARCH = Rates(cpu_s=0.0, peak_gib=1.81)  # rates for a process with the graph; its time follows from the speech


def _time(hours: float) -> str:
    return "< 1 s" if 0 < 3600 * hours < 1 else format_times(3600 * hours)


def _gib(num_bytes: float) -> str:
    return "< 0.01" if 0 < num_bytes < GIB / 100 else f"{num_bytes / GIB:.3g}"


def format_estimate(run: Run, amount: DataAmount) -> str:
    """Format a table of the expensive stages, and its assumptions.

    Raises AsrtoolError for a model that cannot be built.
    """
    began = time.perf_counter()
    config = replace(run.config, features=with_speeds(run.config.features, amount.hours))
    run = replace(run, config=config)
    on = [stage.name for stage in run.recipe.stages if not run.is_off(stage)]
    needs = text_needs(config, amount) | {"features": features_need(config.features, amount.hours)}
    total_s = 3600 * amount.epoch_hours * copies(config)
    fitted = {stage: fit(settings, total_s) for stage, settings in trainings(run, on)}
    settings_of = {stage: settings for stage, (settings, _) in fitted.items()}
    probes: dict[str, Probe] = {}  # by the settings that decide the cost of a step
    probe_of_stage: dict[str, Probe] = {}
    for stage, settings in settings_of.items():
        key = repr((settings.model, settings.train.batch_s, settings.train.optimizer))
        if key not in probes:
            probes[key] = probe_of(settings, amount)
        probe_of_stage[stage] = probes[key]
        needs[stage] = training_need(settings, amount.epoch_hours, probes[key])
    for stage, model in (("targets", "aligner"), ("realign", "hybrid")):
        if model in settings_of:
            needs[stage] = align_need(config, amount.epoch_hours, probe_of_stage[model])
    probe = probe_of_stage["train"]
    needs["average"] = Need(disk_bytes=4 * probe.num_weights, memory_bytes=3 * 4 * probe.num_weights)
    neural = None
    if config.nnlm.enabled:
        neural = probe_neural_lm(config.nnlm, NUM_WORDS)
        needs["nnlm"] = neural_lm_need(config.nnlm, amount, neural, probe)
    needs["decode"] = decode_need(config, amount, probe, neural)
    gpu = f"{probe.device if probe.is_gpu else 'V100'} time"
    heading = ["stage", "CPU time", gpu, "GiB on disk", "GiB of memory"]
    rows = [[name, *needs[name].cells()] for stage in on for name in (stage, f"{stage} same-audio") if name in needs]
    chosen = dict.fromkeys(line for _, lines in fitted.values() for line in lines)
    notes = [*_notes(settings_of, amount, probe, time.perf_counter() - began), *chosen]
    notes.append(f"Not counted: {', '.join(name for name in on if name not in needs)}.")
    if len(config.data.train) > 1:
        total = sum(amount.hours_by_corpus.values())
        shares = (f"{name} {hours:.4g} h ({hours / total:.1%})" for name, hours in amount.hours_by_corpus.items())
        known = ", ".join(shares) or "shares are known when the manifests are made"
        notes.append(f"An epoch, data.mix = {config.data.mix}: {known}.")
    return "\n".join([format_table(heading, rows), "", *notes])


def num_tokens(tokenizer: Tokenizer) -> int:
    """Return the number of a model's tokens."""
    return (tokenizer.vocab_size or MAX_CHOSEN_SIZE) if tokenizer.unit == "bpe" else NUM_PHONES


def tokens_a_word(tokenizer: Tokenizer) -> float:
    """Return the mean tokens of a word in English conversations."""
    if tokenizer.unit != "bpe":
        return PHONES_A_WORD
    sizes = np.log(list(PIECES_A_WORD))
    return float(np.interp(np.log(num_tokens(tokenizer)), sizes, list(PIECES_A_WORD.values())))


def copies(config: Config) -> float:
    """Return the length of the speech at all speeds relative to one speed."""
    return sum(1 / speed for speed in config.features.speeds)


def probe_of(config: Config, amount: DataAmount) -> Probe:
    """Measure the model of these settings, with a tree as large as the speech allows.

    Each pdf has `tree.min_count` rows or more; twice as many are assumed on average.
    """
    tree, frames_a_row = config.tree, getattr(config.model.encoder.settings, "frames_a_row", 1)
    num_rows = 3600 * amount.epoch_hours * copies(config) * 1000 / config.features.frame_shift_ms / frames_a_row
    tree = replace(tree, num_leaves=max(1, min(tree.num_leaves, int(num_rows / (2 * tree.min_count)))))
    tokenizer = config.tokenizer
    return probe_model(replace(config, tree=tree), num_tokens(tokenizer), amount.speech(tokenizer))


def text_needs(config: Config, amount: DataAmount) -> dict[str, Need]:
    """Return the needs of the stages that read text, whether on or off."""
    words, (decoding_hours, decoded_bytes) = amount.words + amount.extra_words, amount.decoding
    prepare = PREPARE.need(amount.words)
    found = {
        "prepare": Need((prepare.cpu_hours or 0) + decoding_hours, None, decoded_bytes or None, prepare.memory_bytes),
        "text": TEXT.need(amount.extra_words),
        "lang": LANG.need(words),
        "lm": LM.need(words),
        "graph": GRAPH.need(words),
    }
    if config.tokenizer.unit == "bpe":
        found["tokenizer"] = TOKENIZER.need(amount.words)
    if config.data.same_audio != "ignore":
        cpu_s = amount.hours * (SAME_AUDIO_S + SEARCH_S * min(amount.hours, INDEX_HOURS))
        found["prepare same-audio"] = Need(cpu_s / 3600)
    return found


def trainings(run: Run, on: Collection[str]) -> Iterator[tuple[str, Config]]:
    """Yield acoustic trainings among `on` and their settings; `train` is the last."""
    for name in ("cutter", "aligner", "hybrid", "start"):
        if name in on:
            yield name, (hybrid_settings if name in ("hybrid", "start") else aligner_settings)(run.config)
    yield "train", last_settings(run.config)


def features_need(features: Features, hours: float) -> Need:
    """Return the need of features of all speeds, from timing noise."""
    features = replace(features, sampling_rate_hz=features.sampling_rate_hz or ASSUMED_HZ)
    samples_S = np.random.default_rng(0).standard_normal(int(PROBED_S * features.sampling_rate_hz)).astype(np.float32)
    extractor = features.type.load()(features)
    extractor.extract(samples_S)
    before = time.process_time()
    extractor.extract(samples_S)
    rate = (time.process_time() - before) / PROBED_S
    copies_hours = hours * sum(1 / speed for speed in features.speeds if speed != 1)
    at_start, per_hour = FEATURES_GIB
    return Need(
        cpu_hours=(hours + copies_hours) * rate,
        disk_bytes=stored_bytes(features, hours, copies_hours),
        memory_bytes=GIB * (at_start + per_hour * hours),
    )


def training_need(config: Config, hours: float, probe: Probe) -> Need:
    """Return the need of all epochs: memory of one learner, disk of kept checkpoints."""
    train, whole = config.train, probe.whole
    speech_hours = hours * copies(config) * train.num_epochs
    dev_hours = _dev_hours(config, hours) * train.num_epochs
    batch_s = config.distributed.global_batch_s / max(1, config.distributed.num_learners) or train.batch_s
    at_once_s = min(batch_s, train.max_batch_s or batch_s)
    states = OPTIMIZER_STATES.get(train.optimizer.name, 1)
    averages = 1 if train.ema_decay else 0
    checkpoint = 4 * probe.num_weights * (1 + states + 2 * averages)  # the average of the learner, and that of all
    own_hours = speech_hours * (whole.step_s + probe.update_s / batch_s) + dev_hours * whole.forward_s
    return replace(
        _computing(own_hours, 3600 * (speech_hours + dev_hours / 3) * whole.flops, probe),
        disk_bytes=checkpoint * (train.keep_last + train.keep_best),
        memory_bytes=4 * probe.num_weights * (3 + states + averages) + whole.saved_bytes * at_once_s,
    )


def align_need(config: Config, hours: float, probe: Probe) -> Need:
    """Return the need of aligning all speech, scores included, on the CPU."""
    speech_hours = hours * copies(config)
    forward = _computing(*_forward(speech_hours, probe), probe)
    return replace(forward, cpu_hours=(forward.cpu_hours or 0) + speech_hours * ALIGN_S / 3600)


def decode_need(config: Config, amount: DataAmount, probe: Probe, neural: NeuralProbe | None) -> Need:
    """Return the need of decoding dev; memory is one search process's."""
    dev_hours = _dev_hours(config, amount.hours)
    own_hours, flops = _forward(dev_hours, probe)
    if neural:
        score_flops = dev_hours * WORDS_AN_HOUR * BEGINNINGS * neural.flops / 3
        own_hours, flops = own_hours + _hours_of(score_flops, probe), flops + score_flops
    need = _computing(own_hours, flops, probe)
    if {"graph", "rescore"} & {method.name for method in config.decode.methods}:
        need = replace(need, memory_bytes=SEARCH.need(amount.words + amount.extra_words).memory_bytes)
    return need


def neural_lm_need(nnlm: Nnlm, amount: DataAmount, neural: NeuralProbe, probe: Probe) -> Need:
    """Return the need of all epochs, at the encoder's training rate."""
    repeats = nnlm.repeats if amount.extra_words else 1
    flops = neural.flops * (amount.words * repeats + amount.extra_words) * nnlm.num_epochs
    states = OPTIMIZER_STATES.get(nnlm.optimizer.name, 1)
    return replace(
        _computing(_hours_of(flops, probe), flops, probe),
        disk_bytes=4 * neural.num_weights * (1 + states) * (nnlm.keep_last + nnlm.keep_best),
        memory_bytes=4 * neural.num_weights * (3 + states)
        + 3 * 4 * nnlm.batch_words * neural.words_a_row
        + BYTES_A_WORD * (amount.words + amount.extra_words),
    )


def _dev_hours(config: Config, hours: float) -> float:
    """Return the hours of dev, at most a tenth of the speech."""
    return min(config.data.dev_minutes / 60, hours / 10)


def _forward(hours: float, probe: Probe) -> tuple[float, float]:
    """Return the hours and operations of the encoder's forward passes over speech."""
    return hours * probe.encoder.forward_s, 3600 * hours * probe.encoder.flops / 3


def _hours_of(flops: float, probe: Probe) -> float:
    """Return the hours at the training rate of the encoder."""
    return flops * probe.encoder.step_s / probe.encoder.flops / 3600


def _computing(own_hours: float, flops: float, probe: Probe) -> Need:
    """Return the hours of the probed device, and of a V100 if that is a CPU."""
    return Need(gpu_hours=own_hours) if probe.is_gpu else Need(own_hours, flops / V100_FLOPS / 3600)


def _notes(settings_of: Mapping[str, Config], amount: DataAmount, probe: Probe, took_s: float) -> Iterator[str]:
    """Yield sentences on the basis of the estimate."""
    config = settings_of["train"]
    speeds = ", ".join(f"{speed:g}" for speed in config.features.speeds)
    numbers = {stage: settings.train.num_epochs for stage, settings in settings_of.items()}
    epochs = f"{numbers['train']} epochs"
    if len(set(numbers.values())) > 1:
        epochs = f"epochs: {', '.join(f'{stage} {number}' for stage, number in numbers.items())}"
    yield f"{amount.hours:,.4g} h of speech {amount.source}, at speeds {speeds}; {epochs}."
    gflop = f"{probe.whole.flops / 1e9:.3g} GFLOP"
    yield f"The model has {probe.num_weights:,} weights and takes {gflop} a second of speech."
    speech = amount.speech(config.tokenizer)
    tokens = f"{speech.tokens_a_s:.2g} tokens a second"
    yield f"Utterances of {speech.length_s:.2g} s with {tokens} were made up for its objective."
    if probe.is_gpu:
        yield f"Rates were measured on this {probe.device} in {took_s:.0f} s."
    else:
        yield f"CPU time is that of all cores together, by rates measured on this machine in {took_s:.0f} s."
        flops = f"{V100_FLOPS / 1e12:.2g} TFLOP/s"
        yield f"V100 time assumes {flops}, with which one trained the hybrid LSTM of the papers in about a week."
        yield "It counts only matrix products; the losses of transducers and lf-mmi have few."
    yield "Times are those of one learner; N learners share them, less what they wait for each other."
    words = f"{amount.words + amount.extra_words:,.3g} words"
    yield f"Stages that read text, and graph: as measured on swb2000, in proportion to words, here {words}."
    if config.nnlm.enabled:
        yield f"nnlm: by its operations, for {NUM_WORDS:,} different words; decode has its scores of 100 hypotheses."
    yield "decode: the forward passes over dev. Searches take minutes to hours more."
