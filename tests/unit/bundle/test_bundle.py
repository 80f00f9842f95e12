"""Bundles: from a work folder to a bundle and back to a recogniser."""

from __future__ import annotations

import functools
import json
import re
import shutil
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from commands import error_of, run_command, usage_error
from servers import patient_no_more, serving
from toy_work import make_work

import asrtool
from asrtool.bundle.archive import open_archive
from asrtool.bundle.export import describe_with_methods, export_bundle
from asrtool.bundle.info import card, describe_file
from asrtool.bundle.trained import TrainedRecogniser, dev_errors, open_trained, part_of
from asrtool.cli.options import MODEL_FILE, TOKENIZER
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import load_model
from asrtool.models.files.file_info import read_info
from asrtool.models.files.safetensors_file import model_in
from asrtool.models.lm.neural_lm import build_neural_lm, load_neural_lm, save_neural_lm
from asrtool.settings.config import Config, format_toml, to_table
from asrtool.settings.decode import Decode
from asrtool.settings.schema import Choice
from asrtool.settings.train import Nnlm


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_work(tmp_path_factory.mktemp("toy") / "work")


@pytest.fixture(scope="module")
def bundle(work: Path) -> Path:
    path = work.parent / "toy.asrtool"
    export_bundle(work, path)
    return path


def test_a_bundle_has_what_the_work_folder_has(work: Path, bundle: Path) -> None:
    expected, info = load_model(work / "average" / "model.pt")
    with open_trained(bundle) as trained, open_trained(work) as original:
        model, found = load_model(trained.model)
        assert trained.best_method() == original.best_method() == "greedy"
        assert trained.config.decode == original.config.decode
        assert trained.config.features == original.config.features
        tokenizer = trained.folders["tokenizer"]
        assert tokenizer is not None
        assert (tokenizer / "tokens.txt").read_bytes() == (work / "tokenizer" / "tokens.txt").read_bytes()
        assert trained.folders["graph"] is None
        folder = trained.folder
    assert found == json.loads(json.dumps(info)), "tuples are lists there"
    weights = model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in expected.state_dict().items())
    assert not folder.exists(), "what was unpacked is gone"


def test_nothing_of_the_training_speakers_is_in_it(bundle: Path) -> None:
    with open_trained(bundle) as trained, np.load(trained.cmvn_folder / "cmvn.npz") as arrays:
        assert arrays["names"].tolist() == ["*"]
        assert len(arrays["means"]) == len(arrays["stds"]) == 1


def test_the_same_work_folder_gives_the_same_bytes(work: Path, bundle: Path, tmp_path: Path) -> None:
    export_bundle(work, tmp_path / "again.asrtool")
    assert (tmp_path / "again.asrtool").read_bytes() == bundle.read_bytes()


def test_a_bundle_of_a_bundle_is_the_same_recogniser(bundle: Path, tmp_path: Path) -> None:
    export_bundle(bundle, tmp_path / "again.asrtool")
    first, second = open_archive(bundle), open_archive(tmp_path / "again.asrtool")
    assert first.files == second.files
    assert first.about == second.about
    export_bundle(tmp_path / "again.asrtool", tmp_path / "again.asrtool", ["greedy"])  # in place
    assert open_archive(tmp_path / "again.asrtool").about == first.about


def test_fewer_methods_of_a_bundle_have_their_error_rates_and_no_others(bundle: Path) -> None:
    about = {**open_archive(bundle).about, "exported_by": "an older one", "methods": ["greedy", "beam", "graph"]}
    about["dev_wer_percent"] = {"greedy": 3.0, "beam": 2.0, "graph": 1.0}
    about["test_wer_percent"] = {"x": {"greedy": 6.0, "beam": 5.0}, "y": {"graph": 4.0}}
    fewer = describe_with_methods(about, ["greedy"])
    assert fewer["dev_wer_percent"] == {"greedy": 3.0}
    assert fewer["test_wer_percent"] == {"x": {"greedy": 6.0}}
    assert fewer["methods"] == ["greedy"]
    assert fewer["exported_by"] == open_archive(bundle).about["exported_by"]
    assert (fewer["hours"], fewer["recipe"]) == (1.5, "toy")


def test_a_file_that_is_no_bundle_is_not_replaced_by_one(work: Path, tmp_path: Path) -> None:
    (tmp_path / "call.wav").write_bytes(b"RIFF")
    np.savez(tmp_path / "a.npz", [1, 2])
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-9])
    for name in ("call.wav", "a.npz", "cut.npz"):
        content = (tmp_path / name).read_bytes()
        with pytest.raises(AsrtoolError, match=f"{name}: exists, and is no bundle; choose another name"):
            export_bundle(work, tmp_path / name)
        assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("kind", ["bundle", "work"])
def test_a_command_takes_the_model_and_the_tokenizer_of_a_bundle_or_work_folder(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(kind)
    with click.Context(click.Command("toy")) as context:
        model, tokenizer = (found.convert(str(path), None, context) for found in (MODEL_FILE, TOKENIZER))
        assert load_model(model)[1] == read_info(model)
        assert Tokenizer.load(tokenizer).pieces
        assert MODEL_FILE.convert(str(model), None, context) == model
        assert TOKENIZER.convert(str(tokenizer), None, context) == tokenizer
    assert model.exists() == (kind == "work")
    place = tmp_path / "start"
    kept = part_of(path, "average", functools.partial(write_folder, place, "*"), place)
    assert load_model(kept)[1] == read_info(kept)
    with pytest.raises(AsrtoolError, match=r"none: cannot be read, No such file or directory; check the path"):
        load_model(tmp_path / "none")


def test_a_run_that_has_not_finished_is_named_with_the_command_that_goes_on(work: Path, tmp_path: Path) -> None:
    unfinished = tmp_path / "my exp"
    shutil.copytree(work, unfinished)
    for part in ("average", "tokenizer", "tune"):
        shutil.rmtree(unfinished / part)
    again = f"yet, since its run has not finished; resume it: asrtool run --work '{unfinished}'"
    for words, part in (
        (("export", unfinished, tmp_path / "out"), "average/model.pt"),
        (("transcribe", unfinished, tmp_path / "x.wav"), "average/model.pt"),
        (("finetune", unfinished, tmp_path, tmp_path, tmp_path / "out"), "average"),
        (("targets", work, tmp_path, unfinished, tmp_path / "out"), "tokenizer"),
    ):
        assert str(error_of(*words)) == f"{unfinished}: has no {part} {again}"
    shutil.copytree(work / "average", unfinished / "average")
    assert f"has no tune/tuning.json {again}" in str(error_of("export", unfinished, tmp_path / "out"))


def test_info_of_a_work_folder_names_what_does_that(work: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"work: is a folder, expected .*; of a work folder: asrtool run --list"):
        describe_file(work)


@pytest.mark.parametrize(
    "words",
    [["--tuning", "x.json"], ["--lm", "x"], ["--set", "decode.methods=greedy"], ["--config", "x.toml"],
     ["--executor", "local"]],
)  # fmt: skip
def test_what_a_bundle_is_not_decoded_by_is_refused(words: list[str], bundle: Path, work: Path, tmp_path: Path) -> None:
    (tmp_path / "x.toml").touch()
    words = [word.replace("x.toml", str(tmp_path / "x.toml")) for word in words]
    for model in (bundle, work):
        error = usage_error("decode", model, tmp_path, tmp_path / "out", *words)
        assert f"{words[0]} is for a model file: {model} is decoded with what it holds" in error


def test_a_bundle_as_train_init_model_is_refused_with_the_command_that_takes_it(
    bundle: Path, work: Path, tmp_path: Path
) -> None:
    for model in (bundle, work):
        error = error_of("train", "features", "tokenizer", tmp_path / "out", "--set", f"train.init_model={model}")
        assert f"train.init_model = {model}: a " in error.what
        assert "`asrtool finetune` takes a bundle" in error.hint


def test_a_bundle_that_is_not_there_and_a_file_as_output_are_named_at_once(bundle: Path, tmp_path: Path) -> None:
    missing = error_of("decode", "nothing.asrtool", tmp_path, tmp_path / "out")
    assert "nothing.asrtool: no such file or folder" in str(missing)
    (tmp_path / "data").mkdir()
    inside = error_of("decode", bundle, tmp_path / "data", tmp_path / "data" / "out")
    assert "out: lies in the data" in str(inside)
    (tmp_path / "file").touch()
    error = error_of("decode", bundle, tmp_path / "data", tmp_path / "file")
    assert "file: is no folder, expected one to write" in str(error)


def test_info_says_what_it_is(work: Path, bundle: Path) -> None:
    text = describe_file(bundle)
    for part in ("whole", "lstm, ctc, 1,234 parameters", "8000 Hz", "1.50 h", "recipe toy", "test: greedy 25.00 %"):
        assert part in text
    assert "- dev: greedy 12.50 %" in text
    assert "- Trained on 1.50 h of " in text
    copies = card({**open_archive(bundle).about, "speeds": [0.9, 1.0]})
    assert "- Trained on 1.50 h, with copies at other speeds, of " in copies
    assert "lstm, ctc" in describe_file(work / "average" / "model.pt")
    assert json.loads(describe_file(bundle, as_json=True))["num_parameters"] == 1234
    assert json.loads(describe_file(work / "average" / "model.pt", as_json=True))["num_tokens"] > 0


@pytest.mark.parametrize(
    "missing", ["tune/tuning.json", "average/model.pt", "config/report.toml", "features/train/cmvn.npz"]
)
def test_a_work_folder_that_is_not_finished_is_named(missing: str, work: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(work, folder)
    (folder / missing).unlink()
    with pytest.raises(AsrtoolError, match=f"has no {missing}") as caught, open_trained(folder):
        pass
    assert caught.value.hint == f"resume it: asrtool run --work {folder}"
    (folder / "config" / "run.json").unlink()
    with (
        pytest.raises(AsrtoolError, match=r"so it is no trained recogniser; .* `asrtool export`"),
        open_trained(folder),
    ):
        pass


def test_what_is_neither_folder_nor_bundle_is_one_line(work: Path, tmp_path: Path) -> None:
    for path, found in (
        (work / "average" / "model.pt", "neither"),
        (tmp_path / "missing", "no such file or folder; name"),
    ):
        with pytest.raises(AsrtoolError, match=found), open_trained(path):
            pass


def test_a_method_that_was_not_tuned_is_refused(work: Path, tmp_path: Path) -> None:
    for method, advice in (
        ("graph", f"run --work {work} --set decode.methods=greedy,graph"),
        ("other", "these with --"),
    ):
        with pytest.raises(AsrtoolError, match=f"was not decoded by method {method}, expected .* greedy; .*{advice}"):
            export_bundle(work, tmp_path / "x.asrtool", [method])
    assert not (tmp_path / "x.asrtool").exists()


def test_the_best_method_has_the_fewest_errors_and_of_equals_is_the_last(tmp_path: Path) -> None:
    table = "method\tlm_weight\twords\twer_percent\tchosen\n"
    table += "greedy\t-\t10\t9.00\tyes\nbeam\t0.5\t10\t3.00\tno\nbeam\t0.8\t10\t4.00\tyes\ngraph\t0.8\t10\t4.00\tyes\n"
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "tuning.tsv").write_text(table)
    assert dev_errors(tmp_path) == {"greedy": 9.0, "beam": 4.0, "graph": 4.0}
    methods = tuple(Choice.of("search", name) for name in ("greedy", "beam", "graph"))
    trained = TrainedRecogniser(tmp_path, tmp_path, Config(decode=Decode(methods=methods)))
    assert trained.best_method() == "graph"
    (tmp_path / "tune" / "tuning.tsv").unlink()
    assert trained.best_method() == "greedy"


def test_a_neural_language_model_is_in_it_where_a_method_reads_one(work: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    nnlm = Nnlm(enabled=True, encoder=Choice.of("word-encoder", "word-lstm", num_layers=1, hidden_size=8))
    words = ["<s>", "</s>", "<unk>", "so", "what"]
    neural = build_neural_lm(nnlm.encoder, nnlm.output, words)
    folder = tmp_path / "work"
    shutil.copytree(work, folder)
    save_neural_lm(folder / "nnlm" / "model.pt", {"nnlm": to_table(nnlm), "words": words}, neural.state_dict())
    methods = tuple(Choice.of("search", name) for name in ("greedy", "graph", "rescore"))
    config = Config(decode=Decode(methods=methods), nnlm=nnlm)
    (folder / "config" / "report.toml").write_text(format_toml(config, ("decode", "nnlm")))
    (folder / "nnlm" / "checkpoints").mkdir()
    for names, expected in ((["rescore"], True), (["greedy"], False)):
        archive = export_bundle(folder, tmp_path / "x.asrtool", names)
        assert ("nnlm/model.safetensors" in archive.files) == expected
    archive = export_bundle(folder, tmp_path / "x.asrtool")
    archive.unpack(tmp_path / "out", ["nnlm/model.safetensors"])
    found = load_neural_lm(model_in(tmp_path / "out" / "nnlm"))
    assert found.log_probs([["so", "what"]]) == pytest.approx(neural.eval().log_probs([["so", "what"]]))


def test_the_commands(work: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "x.asrtool")
    exported = run_command("export", work, out)
    assert open_archive(Path(out)).digest[:16] in exported.output
    assert "whole" in run_command("info", out).output


def test_the_card_of_a_bundle_has_the_licences_of_its_data_and_no_place_of_them(work: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(work, folder)
    config = {path: (folder / "config" / path) for path in ("report.toml", "corpus.toml", "run.json")}
    run = {"command": "asrtool run --set paths.an4=/home/me/an4 --work exp", "recipe": "toy"}
    config["run.json"].write_text(json.dumps(run))
    settings = config["report.toml"].read_text()
    for names, paths, expected in (
        (["an4", "own"], 'an4 = "/home/me/an4"', "Carnegie Mellon University); own (licence: not recorded)"),
        (["swbd"], 'ldc97s62 = "x"', "Switchboard-1 (licence: LDC User Agreement)"),
        (["swbd"], "", "the mini corpus, synthetic speech (licence: that of asrtool)"),
    ):
        config["report.toml"].write_text(re.sub(r"(?m)^train = .*", f"train = {json.dumps(names)}", settings))
        config["corpus.toml"].write_text(f"[paths]\n{paths}\n")
        archive = export_bundle(folder, tmp_path / "x.asrtool")
        archive.unpack(tmp_path, ["README.md"])
        card = (tmp_path / "README.md").read_text()
        assert expected in card
        assert "`asrtool run --set paths.an4=DIR --work exp`" in card
        assert "/home/me" not in json.dumps(archive.about)
        assert card in describe_file(tmp_path / "x.asrtool")


def test_a_bundle_is_found_by_its_name_in_a_folder_or_at_an_address(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AsrtoolError, match=r"toy: no such file or folder; .* or set ASRTOOL_MODELS"):
        asrtool.load("toy")
    monkeypatch.setenv("ASRTOOL_MODELS", str(bundle.parent))
    asrtool.load("toy").close()
    with pytest.raises(AsrtoolError, match=f"toi: neither here nor at {bundle.parent}/toi.asrtool; correct the name"):
        asrtool.load("toi")
    patient_no_more(monkeypatch, ())
    with serving(bundle.parent) as server:
        monkeypatch.setenv("ASRTOOL_MODELS", f"{server.url}/")
        for name in ("toy", "toy.asrtool", f"{server.url}/toy.asrtool"):
            assert "whole" in run_command("info", name).output
        assert server.got() == ["/toy.asrtool"]
        with pytest.raises(AsrtoolError, match=f"{server.url}/toi.asrtool: no such file .404 .*; correct the address"):
            asrtool.load("toi")
        (bundle.parent / "half.asrtool").write_bytes(bundle.read_bytes()[:-1000])
        with pytest.raises(AsrtoolError, match=f"{server.url}/half.asrtool: a damaged bundle"):
            asrtool.load("half")
        (bundle.parent / "half.asrtool").write_bytes(bundle.read_bytes())
        asrtool.load("half").close()
    asrtool.load("toy").close()  # the server has gone
