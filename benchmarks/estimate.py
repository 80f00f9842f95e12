"""CPU seconds of an hour of speech in training: as `asrtool run --estimate` predicts them, and as they are.

    asrtool run --config mini --set features.speeds=1.0 --stop-stage tokenizer --work WORK
    python benchmarks/estimate.py WORK [--only ctc transducer] [--steps 15]

Some steps of each system on the mini corpus, on one thread, with loading and the optimizer, behind two that are not
counted. Each is predicted in the same process before and after it trains, since CPU time depends on what else the
machine does. Hybrid systems want WORK/phones (`asrtool tokenizer`, unit phone) and WORK/targets (`asrtool targets`).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from asrtool.distributed.work.work_queue import Assignment
from asrtool.local.sets.hours import amount_of
from asrtool.predict.estimate.needs import probe_of
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.loop.loop import Training
from asrtool.train.loop.straggler import InjectionOptions
from asrtool.train.train import start_training

CONF = Path(__file__).parents[1] / "recipes" / "swbd" / "conf" / "mini.toml"
SETTINGS = ("features.speeds=1.0", "features.sampling_rate_hz=8000", "train.num_epochs=1", "train.num_threads=1")
PHONES = "tokenizer.unit=phone"
SMALL_DEEPSPEECH2 = ("deepspeech2.num_layers=2", "deepspeech2.hidden_size=96", "deepspeech2.num_channels=8")
SMALL_CONFORMER = ("conformer.num_layers=3", "conformer.head_size=32", "conformer.feed_forward_size=512")
SYSTEMS = {
    "ctc": [],
    "transducer": ["model.objective=transducer"],
    "attention": ["model.objective=attention"],
    "frame-ce": ["model.objective=frame-ce", PHONES],
    "lf-mmi": ["model.objective=lf-mmi", PHONES],
    "deepspeech2": ["model.encoder=deepspeech2", *(f"model.{word}" for word in SMALL_DEEPSPEECH2)],
    "conformer": ["model.encoder=conformer", *(f"model.{word}" for word in SMALL_CONFORMER)],
}


SKIPPED = 2  # steps, which make kernels and memory


class Enough(Exception):
    """There were as many steps as are wanted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    print("| system | predicted | measured | predicted / measured |\n|---|---|---|---|", flush=True)
    for name in options.only:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            before_s, measured_s, after_s = pool.apply(compare, (options.work, SYSTEMS[name], options.steps))
        ratio = (before_s + after_s) / 2 / measured_s
        print(f"| `{name}` | {before_s:.1f}, {after_s:.1f} | {measured_s:.1f} | {ratio:.2f} |", flush=True)


def compare(work: Path, settings: Sequence[str], num_steps: int) -> tuple[float, float, float]:
    """CPU seconds an hour as predicted, as measured, and as predicted afterwards."""
    config = load_config([CONF], [*SETTINGS, *settings])
    return predict(work, config), measure(work, config, num_steps), predict(work, config)


def predict(work: Path, config: Config) -> float:
    """Of a step as `training_need` counts it."""
    probe = probe_of(config, amount_of(config, work))
    return 3600 * (probe.step_s + probe.update_s / config.train.batch_s)


def measure(work: Path, config: Config, num_steps: int) -> float:
    """From the beginning of a step to that of one so many later."""
    begins_s: list[float] = []
    speech_s: list[float] = []
    step = Training._step

    def noted(self: Training, assignment: Assignment, batch: TrainingBatch | None) -> object:
        begins_s.append(time.process_time())
        if len(begins_s) > SKIPPED + num_steps:
            raise Enough
        assert batch is not None
        speech_s.append(float(batch.input_lens_N.sum()) * config.features.frame_shift_ms / 1000)
        return step(self, assignment, batch)

    tokenizer = work / ("phones" if config.tokenizer.unit == "phone" else "tokenizer")
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(Training, "_step", noted),
        contextlib.suppress(Enough),
    ):
        out, injection = Path(folder, "train"), InjectionOptions()
        start_training(work / "features", tokenizer, out, config, injection, targets=work / "targets")
    return 3600 * (begins_s[-1] - begins_s[SKIPPED]) / sum(speech_s[SKIPPED:])


if __name__ == "__main__":
    main()
