"""Estimates of `asrtool run --estimate` for a run that has not begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import error_of, run_command

from asrtool.data.manifests.manifest import audio_files_below
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.sets.hours import data_amount, epoch_hours, extra_words
from asrtool.predict.estimate import needs
from asrtool.predict.estimate.needs import V100_FLOPS, DataAmount, format_estimate, tokens_a_word, training_need
from asrtool.predict.estimate.probe import CPU, LENGTH_S, Cost, Probe, Speech, probe_model
from asrtool.recipe.recipe import load_recipe
from asrtool.recipe.request import Request
from asrtool.recipe.state import Run
from asrtool.settings.config import Config
from asrtool.settings.lang import Tokenizer
from asrtool.settings.toml_files import load_config
from asrtool.train.derived_settings import last_settings

SMALL = ["model.lstm.num_layers=2", "model.lstm.hidden_size=16", "features.fbank.num_mel_bins=10"]


def estimate(work: Path, *words: str) -> dict[str, list[str]]:
    """Stage -> cells of its row, and under "" the lines below the table."""
    overrides = [word for setting in SMALL for word in ("--set", setting)]
    result = run_command("run", "--recipe", "swbd", "--work", work, "--estimate", *overrides, *words)
    assert not work.exists() or not (work / "corpus").exists()  # nothing ran
    rows = [line for line in result.output.splitlines() if line.startswith("| ")][2:]
    cells = [row.strip("| ").split(" | ") for row in rows]
    below = [line for line in result.output.splitlines() if not line.startswith("|")]
    return {name: rest for name, *rest in cells} | {"": below}


def hours(cell: str) -> float:
    """Hours of a cell such as 2.5 min."""
    number, unit = cell.split()
    return float(number) * {"days": 24, "h": 1, "min": 1 / 60, "s": 1 / 3600}[unit]


def test_times_and_sizes_can_be_read_whatever_their_size() -> None:
    cells = [needs.Need(value, None, 2**30 * value, 2**30 * value).cells() for value in (1e-5, 0.01, 30.0, 12100.0)]
    assert [row[:3] for row in cells[:3]] == [["< 1 s", "-", "< 0.01"], ["36 s", "-", "0.01"], ["30 h", "-", "30"]]
    assert cells[3][0] == "504 days"
    assert needs.Need(0.05).cells()[0] == "3 min"


def test_hours_are_those_of_the_mini_corpus_or_of_the_manifest(tmp_path: Path) -> None:
    work = tmp_path / "work"
    mini = estimate(work, "--config", "mini")
    laid_over = estimate(work, "--config", "mini", "--config", "swb300", "--set", "specaugment.max_freq_bins=5")
    assert mini[""][1].startswith("1 h of speech of the mini corpus, at speeds 0.9, 1, 1.1; 3 epochs")
    assert estimate(work, "--config", "mini", "--set", "features.speeds=[]")["features"][1:] == mini["features"][1:]
    (work / "manifests" / "train").mkdir(parents=True)
    (work / "manifests" / "train" / "report.json").write_text(json.dumps({"speech_hours": 12.5}))
    found = estimate(work, "--config", "mini")
    assert found[""][1].startswith("12.5 h of speech by ")
    # Bytes of features grow with hours alone, and the mini corpus is one hour.
    assert float(found["features"][2]) == pytest.approx(12.5 * float(mini["features"][2]), rel=0.02)
    frames = 3600 * 100 * (1 / 0.9 + 1 + 1 / 1.1)
    assert float(mini["features"][2]) == pytest.approx(frames * 10 * 1.25 / 2**30, rel=0.01)
    assert "of the mini corpus" in laid_over[""][1]  # mini.toml says that no release is there


def test_the_neural_language_model_counts_where_it_is_on(tmp_path: Path) -> None:
    words = ["--config", "mini", "--set", "nnlm.num_epochs=400", "--set", "nnlm.word-lstm.hidden_size=32"]
    enabled = ["--set", "nnlm.enabled=true", "--set", "decode.methods=graph,rescore"]
    off, on = estimate(tmp_path / "work", *words), estimate(tmp_path / "work", *words, *enabled)
    assert "nnlm" not in off
    # A layer with two matrices, 45,000 words of 32 values; AdamW has two states a weight, two checkpoints are kept.
    weights = 2 * 4 * 32 * 32 + 45_000 * 32
    biases = 2 * 4 * 32 + 45_000
    flops = 6 * weights * 11_000 * 400  # an hour
    column = int(on["nnlm"][0] == "-")  # of CPU hours, or where torch sees a GPU of its hours
    assert hours(on["nnlm"][1]) == pytest.approx(flops / V100_FLOPS / 3600, rel=0.01) or column
    assert float(on["nnlm"][2]) == pytest.approx(4 * (weights + biases) * 3 * 2 / 2**30, rel=0.01)
    assert hours(on["nnlm"][column]) > 0
    assert any(line.startswith("nnlm: ") for line in on[""])


def test_manifests_of_other_releases_are_not_what_the_settings_mean(tmp_path: Path) -> None:
    """The demo ran in the folder on the mini corpus, and the settings are those of a real configuration."""
    work, words = tmp_path / "work", ("--config", "swb2000", "--set", "specaugment.max_freq_bins=5")
    (work / "manifests" / "train").mkdir(parents=True)
    (work / "manifests" / "train" / "report.json").write_text(json.dumps({"speech_hours": 12.5}))
    paths = {f"paths.{release.key}": "" for release in (*Fisher.releases, *Swbd.releases)}
    marker = {"finished": True, "commands": [], "needs": {}, "code": {}, "makes": {}}
    for recorded, source in (
        ({"data.train": ["swbd", "fisher"], **paths}, "1,986 h of speech as published"),
        ({"data.train": ["swbd"], **dict.fromkeys(paths, "/ldc")}, "1,986 h of speech as published"),
        ({"data.train": ["swbd", "fisher"], **dict.fromkeys(paths, "/ldc")}, "12.5 h of speech by"),
    ):
        (work / ".stages").mkdir(exist_ok=True)
        (work / ".stages" / "corpus.json").write_text(json.dumps(marker | {"settings": recorded}))
        placed = [word for key in paths for word in ("--set", f"{key}=/ldc")] if "/ldc" in recorded.values() else []
        found = estimate(work, *words, *placed)
        assert found[""][1].startswith(source)
        assert (found["prepare"][2] == "-") == source.startswith("12.5")  # nothing is left to decode


def test_audio_that_has_to_be_decoded_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--config", "swb2000", "--set", "specaugment.max_freq_bins=5")
    monkeypatch.setenv("PATH", str(tmp_path))
    by_desphere = estimate(tmp_path / "work", *words)["prepare"]
    (tmp_path / "sph2pipe").touch(0o755)
    by_sph2pipe = estimate(tmp_path / "work", *words)["prepare"]
    samples = 2 * 11_699 * 600 * 8000
    manifests = needs.PREPARE.cpu_s * 1986 / needs.FULL_HOURS
    assert hours(by_desphere[0]) == pytest.approx((samples / 1.2e6 + manifests) / 3600, rel=0.01)
    assert hours(by_sph2pipe[0]) == pytest.approx((samples / 5e7 + manifests) / 3600, rel=0.01)
    assert float(by_desphere[2]) == pytest.approx(107e9 / 2**30, rel=0.01)


def test_a_corpus_of_unknown_size_is_prepared_first(tmp_path: Path) -> None:
    command = ["run", "--recipe", "own", "--work", tmp_path, "--estimate"]
    error = error_of(*command, "--set", "paths.own_train=/audio", "--set", "paths.own_test=/audio")
    assert "how much speech own has is not known" in str(error)


NOTHING = Cost(0.0, 0.0, 0.0, 0.0)


def test_a_moving_average_needs_memory_and_disk() -> None:
    sizes = Probe(CPU, 1000, NOTHING, NOTHING)
    plain, with_average = (
        training_need(load_config(overrides=[f"train.ema_decay={decay}"]), 1.0, sizes) for decay in (0, 0.9)
    )
    assert with_average.memory_bytes - plain.memory_bytes == 4 * 1000
    train = load_config().train
    assert with_average.disk_bytes - plain.disk_bytes == 2 * 4 * 1000 * (train.keep_last + train.keep_best)


def test_a_training_takes_steps_of_all_speech_an_update_a_batch_and_the_loss_of_dev() -> None:
    config = load_config(
        overrides=["train.num_epochs=2", "train.batch_s=36", "data.dev_minutes=6", "features.speeds=0.5,1.0"]
    )
    probe = Probe(CPU, 1, Cost(1.0, 10.0, 6.0, 5.0), Cost(2.0, 20.0, 3.0, 6.0), update_s=72.0)
    need = training_need(config, 1.0, probe)
    # Three hours of speech of two speeds and two epochs; a hundred batches an hour; a tenth of an hour of dev.
    assert need.cpu_hours == pytest.approx(2 * (3 * (30 + 72 / 36) + 0.1 * (1 + 2)))
    assert need.gpu_hours == pytest.approx(2 * (3 + 0.1 / 3) * (6 + 3) / V100_FLOPS)
    assert need.memory_bytes == pytest.approx(4 * (3 + 2) + 36 * (5 + 6))


OF_PROBE = Speech(length_s=1.2, tokens_a_s=5.0)  # 40 rows of three frames, 6 tokens


def probe(*overrides: str) -> Probe:
    return probe_model(load_config([], [*SMALL, "train.batch_s=4", *overrides]), 50, OF_PROBE)


@pytest.mark.parametrize("weight_drop", ["0", "0.3"])
def test_operations_are_two_for_each_weight_and_row_and_thrice_for_both_passes(weight_drop: str) -> None:
    found = probe(f"model.lstm.weight_drop={weight_drop}")
    first, second = 2 * 4 * 16 * (30 + 16), 2 * 4 * 16 * (32 + 16)
    rows_a_s = -(-int(LENGTH_S * 100) // 3) / LENGTH_S
    assert found.encoder.flops == pytest.approx(3 * 2 * (first + second) * rows_a_s)
    assert found.objective.flops == pytest.approx(3 * 2 * 32 * 50 * 40 / 1.2)
    assert found.device == CPU


def test_a_transducer_has_rows_times_tokens_of_long_utterances() -> None:
    found = probe("model.objective=transducer", "model.transducer.joint_size=8", "model.transducer.context=2")
    rows, nodes = 40, 6 + 1
    once = rows * 32 * 8 + nodes * 2 * 8 * 8 + rows * nodes * 8 * 50
    assert found.objective.flops == pytest.approx(3 * 2 * once / 1.2)
    assert found.objective.saved_bytes > rows * nodes * 50 * 4 / 1.2
    assert found.encoder.flops == pytest.approx(probe().encoder.flops)


def test_sequence_training_has_the_states_of_a_denominator_beside_what_one_of_frames_has() -> None:
    words = ("tree.num_leaves=120", "model.objective=")
    frames = probe(words[0], words[1] + "frame-ce")
    sequences = probe(words[0], words[1] + "lf-mmi", "model.lf-mmi.max_histories=300")
    assert sequences.objective.flops == pytest.approx(2 * frames.objective.flops)  # the output layer is used twice
    # A float64 of each state and row, of at least as many states as histories.
    assert sequences.objective.saved_bytes > frames.objective.saved_bytes + 300 * 8 * 40 / 1.2
    assert sequences.num_weights == frames.num_weights


def test_what_is_kept_for_the_backward_pass_grows_with_the_model() -> None:
    small, large = probe(), probe("model.lstm.hidden_size=64")
    rows_a_s = 100 / 3
    # At least the output of each layer, float32; at most some dozen values for each of its gates.
    assert 2 * 32 * 4 * rows_a_s < small.whole.saved_bytes < 2 * 2 * 4 * 16 * 4 * 24 * rows_a_s
    assert 2 * small.whole.saved_bytes < large.whole.saved_bytes < 8 * small.whole.saved_bytes
    assert large.num_weights > small.num_weights


SYSTEMS = ["hybrid", "hybrid_mmi", "transducer", "attention", "attention_paper", "lstm_paper", "conformer"]


@pytest.mark.parametrize("base", ["swb300", "swb2000"])
def test_each_stage_of_each_system_has_numbers_or_is_said_not_to_count(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of steps are made up; models are those of the recipe."""
    measured: list[str] = []

    def made_up(config: Config, num_tokens: int, speech: Speech) -> Probe:
        measured.append(config.model.objective.name)
        of_objective = 1e-3 * len(config.model.objective.name)
        return Probe(CPU, 10**6, Cost(1e-3, 1e-2, 1e9, 1e6), Cost(1e-4, of_objective, 1e8, 1e5), 1e-2)

    monkeypatch.setattr(needs, "probe_model", made_up)
    recipe = load_recipe(Path(__file__).parents[3] / "recipes" / "swbd")
    words_of_lm = {}
    for system in ("", *SYSTEMS, "deepspeech2"):
        names = [base, *(["attention"] if system == "attention_paper" else []), *filter(None, [system])]
        config = load_config([recipe.folder / "conf" / f"{name}.toml" for name in names])
        run = Run(recipe, config, tmp_path / "none", lambda *_: None, audio_files_below, Request(None, [], []))  # type: ignore[arg-type]
        measured.clear()
        amount = data_amount(config, run.work)
        lines = format_estimate(run, amount).splitlines()
        rows = {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in lines[2:] if "|" in line)}
        on = {stage.name for stage in recipe.stages if not run.is_off(stage)}
        uncounted = next(line for line in lines if line.startswith("Not counted"))
        assert on == {name for name in on if name in rows or f" {name}" in uncounted}
        assert set(rows) == on - set(uncounted.rstrip(".").split(": ")[1].split(", "))
        assert all(any(cell != "-" for cell in cells) for cells in rows.values())
        assert all(
            cell == "-" or float(cell.removeprefix("< ").split()[0]) > 0 for cells in rows.values() for cell in cells
        )
        assert all("-" not in rows[name] for name in rows if name in ("train", "aligner", "hybrid", "start"))
        expected = {"hybrid": ["ctc", "frame-ce"], "hybrid_mmi": ["ctc", "frame-ce", "lf-mmi"]}
        assert measured == expected.get(system, [config.model.objective.name])
        own = made_up(config, 1, amount.speech(config.tokenizer))
        trained = last_settings(config)
        assert rows["train"] == training_need(trained, amount.epoch_hours, own).cells()
        if system == "hybrid_mmi":
            of_each = f"aligner {config.train.num_epochs}, hybrid {config.train.num_epochs}"
            assert f"epochs: {of_each}, start {config.train.num_epochs}, train 2." in "\n".join(lines)
        words_of_lm[system] = rows.get("lm", [""])[0]
    assert hours(words_of_lm[""]) == pytest.approx(needs.LM.cpu_s / 3600 * 1986 / needs.FULL_HOURS, 0.01)


def test_a_tree_has_as_many_leaves_as_there_are_rows_for(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves: list[int] = []
    monkeypatch.setattr(needs, "probe_model", lambda config, *_: leaves.append(config.tree.num_leaves))
    config = load_config(overrides=["features.speeds=0.5,1.0", "tree.min_count=200", "tree.num_leaves=2000"])
    for hours in (1.0, 1000.0):
        needs.probe_of(config, DataAmount(hours, ""))
    assert leaves == [3 * 3600 * 100 // 3 // 400, 2000]  # three frames a row


def test_there_are_fewer_tokens_a_word_the_more_pieces_there_are() -> None:
    found = [tokens_a_word(Tokenizer(vocab_size=size)) for size in (40, 60, 120, 500, 1500, 9000)]
    assert found == sorted(found, reverse=True)
    assert (found[1], found[3]) == pytest.approx((3.5, 1.7))


def test_text_and_utterances_are_those_of_the_manifests_and_files(tmp_path: Path) -> None:
    config = load_config(overrides=["data.train=swbd", f"lm.extra_text=fisher,{tmp_path / 'more.txt'}"])
    assert extra_words(config, tmp_path) == 1700 * 11_000
    (tmp_path / "more.txt").write_text("yeah " * 1000)
    assert extra_words(config, tmp_path) == 1700 * 11_000 + 1000
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "1.fisher.txt").write_text("yeah " * 30)
    assert extra_words(config, tmp_path) == 30 + 1000
    (tmp_path / "manifests" / "train").mkdir(parents=True)
    report = {"speech_hours": 2.0, "num_utterances": 3600, "num_words": 20_000}
    (tmp_path / "manifests" / "train" / "report.json").write_text(json.dumps(report))
    amount = data_amount(config, tmp_path)
    assert (amount.utterance_s, amount.words_an_hour, amount.words) == (2.0, 10_000, 20_000)


def test_an_epoch_has_the_hours_of_its_mix(tmp_path: Path) -> None:
    """Swbd: 100 utterances of 36 s; fisher: 300 of 12 s. By weights 1:1 an epoch has 200 of each."""
    for name, num in (("swbd", 100), ("fisher", 300), ("", 400)):
        folder = tmp_path / "manifests" / ("corpora/" + name if name else "") / "train"
        folder.mkdir(parents=True)
        report = {"num_utterances": num, "speech_hours": 1.0 if name else 2.0}
        (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    for mix, swbd, fisher in (("utterances", 1.0, 1.0), ("swbd:1,fisher:1", 2.0, 2 / 3), ("swbd:0,fisher:1", 0, 4 / 3)):
        config = load_config(overrides=["data.train=swbd,fisher", f"data.mix={mix}"])
        assert epoch_hours(config, tmp_path, 2.0) == pytest.approx({"swbd": swbd, "fisher": fisher})
    config = load_config(overrides=["data.train=swbd,fisher", "data.mix=swbd:1,fisher:3"])  # hours as published
    assert epoch_hours(config, tmp_path / "none", 1986.0) == pytest.approx({"swbd": 496.5, "fisher": 1489.5}, abs=0.1)
