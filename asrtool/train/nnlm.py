"""Train a neural language model on a text; write its best epoch as model file.

The folder is a training's with `model.pt`, written before `train.json`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.errors import AsrtoolError
from asrtool.lang.text import BACKOFF, EOS, EPSILON, number_sentences, read_symbols
from asrtool.settings.config import Config, to_table
from asrtool.train.inputs import FINAL, INPUTS, NEURAL_LM, inputs_of
from asrtool.train.job import Components, Job
from asrtool.train.loop.straggler import InjectionOptions
from asrtool.train.run import start

if TYPE_CHECKING:
    from asrtool.train.batches.sentence_source import Text
    from asrtool.train.checkpoints.checkpoint import State

MODEL = "model.pt"
MAX_NATS = math.log(sys.float_info.max)  # of a word; more has no perplexity


def start_neural_lm(
    text: Path, dev_text: Path, words: Path, out: Path, config: Config, code: str = "", extra: Sequence[Path] = ()
) -> None:
    """Train on `text` over the vocabulary `words`, evaluate on `dev_text`.

    Writes `out`. `extra` texts are read once an epoch, `text` `nnlm.repeats` times. train.json records `code`, the
    digest of the code. Raises AsrtoolError if a file is missing, and as `asrtool.train.run.start`.
    """
    files = {"train.txt": text, "dev.txt": dev_text, "words.txt": words}
    files |= {f"extra/{path.name}": path for path in extra}
    job = Job(
        out=out,
        inputs=inputs_of(config, NEURAL_LM, files, InjectionOptions()),
        optimisation=config.nnlm,
        distributed=dataclasses.replace(config.distributed, global_batch_s=0.0, reference_batch_s=0.0),  # for speech
        build=lambda num_learners: build_components(text, dev_text, words, config, extra),
        finish=functools.partial(write_best, out),
        code=code,
    )
    start(_renewed(job))


def build_components(text: Path, dev_text: Path, words: Path, config: Config, extra: Sequence[Path] = ()) -> Components:
    """Build model and texts; AsrtoolError if a file cannot be read."""
    from asrtool.models.lm.neural_lm import build_neural_lm
    from asrtool.train.batches.sentence_source import Sentences, Text

    nnlm = config.nnlm
    texts = [Text(text, nnlm.repeats if extra else 1), *map(Text, extra)]
    vocabulary = _read_vocabulary(words)
    if nnlm.output.settings.by_frequency:
        vocabulary = sort_by_frequency(vocabulary, texts)
    model = build_neural_lm(nnlm.encoder, nnlm.output, vocabulary)
    train_set, dev_set = (Sentences(source, model, nnlm.batch_words, nnlm.seed) for source in (texts, [Text(dev_text)]))
    return Components({"nnlm": to_table(nnlm), "words": model.words}, model, train_set, dev_set)


def write_best(out: Path, state: State) -> dict[str, Any]:
    """Write the weights of lowest dev loss to `out`/model.pt; describe them."""
    from asrtool.models.lm.neural_lm import save_neural_lm
    from asrtool.train.checkpoints.checkpoint import best_first, checkpoint_path, final_weights, load_checkpoint

    best = best_first(state.saved)[0]
    assert best.dev_loss is not None
    if not best.dev_loss < MAX_NATS:
        found = f"{out}: {best.dev_loss:g} nats a word on dev, expected less than {MAX_NATS:.0f}"
        raise AsrtoolError(found, "lower nnlm.peak_lr")
    content, _ = load_checkpoint(checkpoint_path(out / "checkpoints", best.step))
    save_neural_lm(out / MODEL, content["info"], final_weights(content))
    return {"dev_perplexity": math.exp(best.dev_loss)}


def _renewed(job: Job) -> Job:
    """Return `job` as unfinished if its model file is lost or damaged.

    Another training in its folder is moved aside first.
    """
    from asrtool.models.lm.neural_lm import load_neural_lm

    if (job.out / FINAL).exists() and job.inputs.match(job.out / INPUTS):
        try:
            load_neural_lm(job.out / MODEL)
        except AsrtoolError:
            (job.out / FINAL).unlink(missing_ok=True)
    return job


def sort_by_frequency(vocabulary: Sequence[str], texts: Sequence[Text]) -> list[str]:
    """Sort the vocabulary by frequency in an epoch of `texts`; ties keep their order.

    ``<s>`` counts once a sentence, ``<unk>`` for each unknown word.
    """
    from asrtool.models.lm.neural_lm import EDGE, UNK

    counts: Counter[str] = Counter()
    for text in texts:
        text_counts: Counter[str] = Counter()
        for _, words in number_sentences(text.path):
            text_counts.update([EDGE, *words])
        counts.update({word: text.repeats * num for word, num in text_counts.items()})
    counts[UNK] += counts.total() - sum(counts[word] for word in vocabulary)
    return sorted(vocabulary, key=lambda word: -counts[word])


def _read_vocabulary(words: Path) -> list[str]:
    from asrtool.models.lm.neural_lm import EDGE, UNK

    vocabulary = [word for word in read_symbols(words, "lang") if word not in (EPSILON, BACKOFF, EOS)]
    for symbol in (UNK, EDGE):
        if symbol not in vocabulary:
            raise AsrtoolError(f"{words}: has no {symbol}, expected the words.txt of `asrtool lang`", "name that file")
    return vocabulary
