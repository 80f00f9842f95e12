"""What a run will need before it begins: hours, disk and memory, from rates that are measured here and now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from asrtool.config import Config
from asrtool.corpus.room import stored_bytes
from asrtool.corpus.settings import Features
from asrtool.estimate.probe import NeuralProbe, Probe, probe_model, probe_neural_lm
from asrtool.lang.settings import LARGEST_CHOSEN
from asrtool.recipe.state import Run
from asrtool.report.markdown import format_table
from asrtool.train.by_size import fit
from asrtool.train.chain import aligner_settings, hybrid_settings
from asrtool.train.settings import Nnlm

GIB = 2**30
OPTIMIZER_STATES = {"adamw": 2, "lamb": 2}  # of each weight
NUM_PHONES = 42  # about as many tokens as tokenizer.unit = phone has
ASSUMED_HZ = 16000  # where the data are to say it
PROBED_S = 30.0  # of noise, whose features are computed
WORDS_AN_HOUR = 11_000  # of Switchboard and Fisher
NUM_WORDS = 45_000  # of their lexicon
SAME_AUDIO_S, SEARCH_S = 6.3, 0.04  # CPU seconds an hour: all but what each hour of the index adds (decisions)
INDEX_HOURS = 100.0  # beyond which the index of data.same_audio is thinned
BYTES_A_WORD = 8  # of a text that a neural language model is trained on, its sentences included (train/sentences.py)
BEGINNINGS = 35  # that a neural language model reads, for each word, of 100 hypotheses (benchmarks/rescoring.py)
# IBM's hybrid LSTM of 43.15 million weights, 16 epochs of 2,000 hours, took one V100 about a week.
V100_FLOPS = 6 * 43.15e6 * 16 * 2000 * 3600 * 100 / (7 * 24 * 3600)


@dataclass(frozen=True)
class Need:
    """Of a stage."""

    stage: str
    cpu_hours: float | None = None
    gpu_hours: float | None = None
    disk_bytes: float | None = None
    memory_bytes: float | None = None

    def cells(self) -> list[str]:
        """A row of the table."""
        numbers = (self.cpu_hours, self.gpu_hours, *(b and b / GIB for b in (self.disk_bytes, self.memory_bytes)))
        return [self.stage, *("-" if number is None else f"{number:.3g}" for number in numbers)]


def format_estimate(
    run: Run, hours: float, source: str, of_corpora: Mapping[str, float], decoding: tuple[float, float]
) -> str:
    """A table of the stages that take long or much, and what it is made of; `source` is where `hours` are known from.

    `decoding` are the hours of CPU and the bytes of audio that is decoded when it is prepared, 0 for none. `of_corpora`
    are the hours of each corpus in an epoch, empty where they are not known: then an epoch is all `hours`.
    Raises AsrtoolError for a model that cannot be built.
    """
    config, began = run.config, time.perf_counter()
    num_tokens = (config.tokenizer.vocab_size or LARGEST_CHOSEN) if config.tokenizer.unit == "bpe" else NUM_PHONES
    needs = [features_need(config.features, hours)]
    if config.data.same_audio != "ignore":
        needs.insert(
            0, Need("prepare same-audio", cpu_hours=hours * (SAME_AUDIO_S + SEARCH_S * min(hours, INDEX_HOURS)) / 3600)
        )
    if any(decoding):
        needs.insert(0, Need("prepare", cpu_hours=decoding[0], disk_bytes=decoding[1]))
    epoch_hours = sum(of_corpora.values()) or hours
    total_s = 3600 * epoch_hours * sum(1 / speed for speed in config.features.speeds)
    for stage, settings in trainings(run).items():
        settings, chosen = fit(settings, total_s)
        # Sequence training needs an n-gram that is made on the way; what it adds to the same model is not measured.
        probe = probe_model(hybrid_settings(settings), num_tokens)
        needs.append(training_need(stage, settings, epoch_hours, probe))
    dev_hours = config.data.dev_minutes / 60
    device_hours = dev_hours * probe.forward_s
    if config.nnlm.enabled:
        neural = probe_neural_lm(config.nnlm, NUM_WORDS)
        needs.append(neural_lm_need(config.nnlm, hours, neural, probe))
        device_hours += dev_hours * WORDS_AN_HOUR * BEGINNINGS * neural.flops / 3 / _flops_a_s(probe) / 3600
    needs.append(Need("decode", *((None, device_hours) if probe.is_gpu else (device_hours, None))))
    heading = ["stage", "CPU hours", f"hours of a {_gpu(probe)}", "GiB on disk", "GiB of memory"]
    notes = [*_notes(settings, hours, source, probe, time.perf_counter() - began), *chosen]
    notes += _shares(config, of_corpora)
    return "\n".join([format_table(heading, [need.cells() for need in needs]), "", *notes])


def trainings(run: Run) -> dict[str, Config]:
    """The stages that train an acoustic model, and the settings that each of them trains by; `train` is the last."""
    on = [stage.name for stage in run.recipe.stages if not run.is_off(stage)]
    settings: dict[str, Callable[[Config], Config]] = {
        "cutter": aligner_settings,
        "aligner": aligner_settings,
        "hybrid": hybrid_settings,
        "start": hybrid_settings,
    }
    return {name: make(run.config) for name, make in settings.items() if name in on} | {"train": run.config}


def features_need(features: Features, hours: float) -> Need:
    """Filterbanks of all speeds: CPU time of some noise, in the proportion."""
    features = replace(features, sampling_rate_hz=features.sampling_rate_hz or ASSUMED_HZ)
    samples_S = np.random.default_rng(0).standard_normal(int(PROBED_S * features.sampling_rate_hz)).astype(np.float32)
    extractor = features.type.load()(features)
    extractor.extract(samples_S)
    before = time.process_time()
    extractor.extract(samples_S)
    rate = (time.process_time() - before) / PROBED_S
    copies_hours = hours * sum(1 / speed for speed in features.speeds if speed != 1)
    disk_bytes = stored_bytes(features, hours, copies_hours)
    return Need("features", cpu_hours=(hours + copies_hours) * rate, disk_bytes=disk_bytes)


def training_need(stage: str, config: Config, hours: float, probe: Probe) -> Need:
    """All epochs, over all learners; memory is that of one of them, disk that of the checkpoints kept."""
    train = config.train
    copies = sum(1 / speed for speed in config.features.speeds)
    speech_hours = hours * copies * train.num_epochs
    batch_s = config.distributed.global_batch_s / max(1, config.distributed.num_learners) or train.batch_s
    at_once_s = min(batch_s, train.max_batch_s or batch_s)
    states = OPTIMIZER_STATES.get(train.optimizer.name, 1)
    averages = 1 if train.ema_decay else 0
    checkpoint = 4 * probe.num_weights * (1 + states + 2 * averages)  # the average of the learner, and that of all
    return Need(
        stage,
        cpu_hours=None if probe.is_gpu else speech_hours * probe.step_s,
        gpu_hours=speech_hours * (probe.step_s if probe.is_gpu else 3600 * probe.flops / V100_FLOPS / 3600),
        disk_bytes=checkpoint * (train.keep_last + train.keep_best),
        memory_bytes=4 * probe.num_weights * (3 + states + averages) + probe.saved_bytes * at_once_s,
    )


def neural_lm_need(nnlm: Nnlm, hours: float, neural: NeuralProbe, probe: Probe) -> Need:
    """All epochs over the words of so many hours, at the rate that the acoustic model has in training."""
    flops = neural.flops * hours * WORDS_AN_HOUR * nnlm.num_epochs
    states = OPTIMIZER_STATES.get(nnlm.optimizer.name, 1)
    own_hours = flops / _flops_a_s(probe) / 3600
    return Need(
        "nnlm",
        cpu_hours=None if probe.is_gpu else own_hours,
        gpu_hours=own_hours if probe.is_gpu else flops / V100_FLOPS / 3600,
        disk_bytes=4 * neural.num_weights * (1 + states) * (nnlm.keep_last + nnlm.keep_best),
        memory_bytes=4 * neural.num_weights * (3 + states)
        + 3 * 4 * nnlm.batch_words * neural.words_a_row
        + BYTES_A_WORD * hours * WORDS_AN_HOUR,
    )


def _flops_a_s(probe: Probe) -> float:
    """Of this machine, in a step of training."""
    return probe.flops / probe.step_s


def _gpu(probe: Probe) -> str:
    return probe.device if probe.is_gpu else "V100"


def _shares(config: Config, of_corpora: Mapping[str, float]) -> Iterator[str]:
    """What part of an epoch each corpus has; nothing for one."""
    if len(config.data.train) < 2:
        return
    total = sum(of_corpora.values())
    shares = ", ".join(f"{name} {hours:.4g} h ({hours / total:.1%})" for name, hours in of_corpora.items())
    yield f"An epoch, data.mix = {config.data.mix}: {shares or 'shares are known when the manifests are made'}."


def _notes(config: Config, hours: float, source: str, probe: Probe, took_s: float) -> Iterator[str]:
    """What the numbers rest on."""
    speeds = ", ".join(f"{speed:g}" for speed in config.features.speeds)
    yield f"{hours:,.4g} h of speech {source}, at speeds {speeds}; {config.train.num_epochs} epochs."
    yield f"The model has {probe.num_weights:,} weights and takes {probe.flops / 1e9:.3g} GFLOP a second of speech."
    if probe.is_gpu:
        yield f"Rates were measured on this {probe.device} in {took_s:.0f} s."
    else:
        yield f"CPU hours are those of all cores together, by rates measured on this machine in {took_s:.0f} s."
        flops = f"{V100_FLOPS / 1e12:.2g} TFLOP/s"
        yield f"Hours of a V100 assume {flops}, with which one trained the hybrid LSTM of the papers in about a week."
    yield "Hours are those of one learner; N learners share them, less what they wait for each other."
    if config.nnlm.enabled:
        words = f"{WORDS_AN_HOUR:,} words an hour, {NUM_WORDS:,} different ones"
        yield f"nnlm: by its operations, for {words}. decode: its scores of dev as well, of 100 hypotheses."
    yield "decode: the forward passes over dev. Searches and the stages that are not named take minutes to hours more."
