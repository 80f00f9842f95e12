"""Training on frame targets: what the command aligns is what the model is trained on, by every strategy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_task import NUM_TOKENS, make_texts
from trainings import components_of, toy_job

from asrtool.data.storage.alignment import Alignment
from asrtool.data.storage.index import read_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.decode.align import frame_targets as grown
from asrtool.decode.align.frame_targets import find_segments, targets_run
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.models.acoustic import load_model, save_model
from asrtool.models.objectives.decision_tree import Context, Tree, contexts, moments, tree_of
from asrtool.models.objectives.topology import load_topology
from asrtool.settings.decode import Decode
from asrtool.settings.models import Tree as TreeSettings
from asrtool.settings.toml_files import load_config
from asrtool.train.job import Components

HYBRID = "model.objective=frame-ce"


def hybrid(toy: Path, toy_config: Path, targets: Path, *overrides: str) -> Components:
    return components_of(toy, toy_config, HYBRID, *overrides, targets=targets)


@pytest.mark.parametrize("objective", ["ctc", "frame-ce"])
def test_every_utterance_is_aligned_by_its_own_scores(
    toy, toy_config, targets, aligner, tmp_path, objective: str
) -> None:
    """Targets by a model of frames with a tree have no margin."""
    path, made, margin = aligner, targets, 5  # 0.1 s
    if objective == "frame-ce":
        path, made, margin = tmp_path / "model.pt", tmp_path / "again", 0
        components = hybrid(toy, toy_config, targets)
        save_model(path, components.model, components.info)
        targets_run(path, toy / "features", toy / "tokenizer", made, Decode(num_jobs=1), TreeSettings(120, 5))
    model, info = load_model(path)
    tree, tokenizer = tree_of(info), Tokenizer.load(toy / "tokenizer")
    assert tree is None or (tree.leaves_VV2 == Tree.load(targets).leaves_VV2).all()
    topology = load_topology(load_config([toy_config], [f"model.objective={objective}"]).model.objective, tree)
    for name, step in (("train", 5), ("dev", 1)):
        reader = FeatureReader(toy / "features" / name, info["features"]["cmvn"])
        alignment = Alignment(made / name)
        for i in range(0, len(reader.index), step):
            feats_TF = torch.tensor(reader.read(i))
            with torch.no_grad():
                scores_TV = model(feats_TF[None], torch.tensor([len(feats_TF)]))[0][0].numpy()
            tokens = tokenizer.encode(reader.index[i].text)
            spans = topology.spans(topology.align(scores_TV, tokens), scores_TV)
            expected = find_segments(spans, len(scores_TV), margin) * [1, 2]  # frames a row
            assert [token for token in expected[:, 0] if token] == tokens
            np.testing.assert_array_equal(alignment.segments(i), expected)


def test_batches_have_the_leaf_of_each_row_and_the_tree_counts_them(toy: Path, toy_config: Path, targets: Path) -> None:
    components = hybrid(toy, toy_config, targets)
    tree, alignment = Tree.load(targets), Alignment(targets / "train")
    position = {utterance.id: i for i, utterance in enumerate(read_index(toy / "features" / "train"))}
    counts_L = np.zeros(tree.num_leaves, dtype=np.int64)
    source = components.train_set
    for planned in source.plan(0, 0, {}):
        batch = source.read(planned)
        rows = components.model.encoder.output_lens(torch.from_numpy(batch.input_lens_N))
        assert batch.target_lens_N.tolist() == rows.tolist()
        assert batch.normaliser == int(rows.sum())
        for n, name in enumerate(batch.ids):
            leaves = batch.targets_NU[n, : int(rows[n])].numpy()
            segments_S2 = alignment.segments(position[name])
            np.testing.assert_array_equal(leaves, tree.targets(segments_S2, int(rows[n]), 2))
            counts_L += np.bincount(leaves, minlength=tree.num_leaves)
    np.testing.assert_array_equal(counts_L, tree.counts_L)


def test_the_tree_is_grown_from_the_middle_frame_of_each_row(toy, aligner, tmp_path, monkeypatch) -> None:
    """For an odd number of frames the last row has a single frame."""
    found: list[dict[Context, np.ndarray]] = []
    grow = grown.grow_tree
    monkeypatch.setattr(grown, "grow_tree", lambda moments, *more: (found.append(moments), grow(moments, *more))[1])
    targets_run(aligner, toy / "features", toy / "tokenizer", tmp_path, Decode(num_jobs=1), TreeSettings(100, 5))
    reader, alignment = FeatureReader(toy / "features" / "train", "none"), Alignment(tmp_path / "train")
    rows: dict[Context, list[np.ndarray]] = {}
    for i in range(len(reader.index)):
        feats_TF = reader.read(i)
        num_rows = -(-len(feats_TF) // 2)
        for r, context in enumerate(zip(*contexts(alignment.segments(i), num_rows, 2), strict=True)):
            rows.setdefault(context, []).append(feats_TF[min(2 * r + 1, len(feats_TF) - 1)])
    assert found[0].keys() == rows.keys()
    for context, of_context in rows.items():
        np.testing.assert_allclose(found[0][context], moments(np.array(of_context)).sum(axis=0), rtol=1e-9, atol=1e-9)


def test_pieces_have_the_frames_and_leaves_of_their_utterances_in_order(toy, toy_config, targets) -> None:
    whole, cut = (hybrid(toy, toy_config, targets, f"model.frame-ce.piece_frames={num}") for num in (0, 6))
    for planned, of_pieces in zip(whole.train_set.plan(0, 0, {}), cut.train_set.plan(0, 0, {}), strict=True):
        batch, pieces = whole.train_set.read(planned), cut.train_set.read(of_pieces)
        assert pieces.inputs_NT.shape[1:] == (6, batch.inputs_NT.shape[2])
        assert pieces.normaliser == batch.normaliser == int(pieces.target_lens_N.sum())
        assert pieces.frames == batch.frames
        for n, name in enumerate(batch.ids):
            own = [p for p, of in enumerate(pieces.ids) if of == name]
            num_frames, num_rows = int(batch.input_lens_N[n]), int(batch.target_lens_N[n])
            assert [int(pieces.input_lens_N[p]) for p in own[:-1]] == [6] * (len(own) - 1)
            frames_TF = np.concatenate([pieces.inputs_NT[p, : pieces.input_lens_N[p]] for p in own])
            np.testing.assert_array_equal(frames_TF, batch.inputs_NT[n, :num_frames])
            leaves = torch.cat([pieces.targets_NU[p, : int(pieces.target_lens_N[p])] for p in own])
            assert torch.equal(leaves, batch.targets_NU[n, :num_rows])
        rows = cut.model.encoder.output_lens(torch.from_numpy(pieces.input_lens_N))
        assert torch.equal(rows, pieces.target_lens_N)
    dev = next(iter(cut.dev_set.load(cut.dev_set.plan_eval())))
    assert dev.inputs_NT.shape[1] > 6  # whole, as what is decoded
    with pytest.raises(AsrtoolError, match=r"piece_frames is 7, but a row is 2 frames; set it to a mul"):
        hybrid(toy, toy_config, targets, "model.frame-ce.piece_frames=7")


def test_utterances_without_an_alignment_are_left_out(toy, toy_config, targets, tmp_path) -> None:
    copy = tmp_path / "targets"
    shutil.copytree(targets, copy)
    places_N2 = np.load(copy / "train" / "places.npy")
    num_left_out = int(places_N2[3, 1])
    places_N2[3, 1] = 0
    np.save(copy / "train" / "places.npy", places_N2)
    segments = np.fromfile(copy / "train" / "segments.bin", np.uint32)
    segments[: -2 * num_left_out].tofile(copy / "train" / "segments.bin")
    components = hybrid(toy, toy_config, copy)
    assert components.train_set.describe()["num_dropped"] == 1
    assert 3 not in components.train_set.columns.positions  # type: ignore[attr-defined]


def test_a_model_of_another_tree_gives_its_encoder_alone(toy, toy_config, targets, aligner, tmp_path) -> None:
    data = (toy / "features", toy / "tokenizer")
    trained = hybrid(toy, toy_config, targets)
    save_model(tmp_path / "model.pt", trained.model, trained.info)
    targets_run(aligner, *data, tmp_path / "few", Decode(num_jobs=1), TreeSettings(num_leaves=82, min_count=5))
    torch.manual_seed(5)
    for folder, is_kept in ((targets, True), (tmp_path / "few", False)):
        found = hybrid(toy, toy_config, folder, f"train.init_model={tmp_path / 'model.pt'}").model.state_dict()
        for name, weight in trained.model.state_dict().items():
            same = weight.shape == found[name].shape and torch.equal(weight, found[name])
            assert same == (is_kept or name.startswith("encoder.")), name


def test_targets_of_other_features_or_none_are_refused(toy, toy_config, targets, tmp_path) -> None:

    def job(folder: Path | None) -> None:
        toy_job(toy, tmp_path / "train", toy_config, [HYBRID], targets=folder).build(1)

    with pytest.raises(AsrtoolError, match=r"frame-ce is trained on frame targets, and --targets is not given; name"):
        job(None)
    with pytest.raises(AsrtoolError, match=r"run `asrtool targets` first|run the stage that makes it first"):
        job(tmp_path / "nothing")
    copy = tmp_path / "targets"
    shutil.copytree(targets, copy)
    about = json.loads((copy / "targets.json").read_text())
    (copy / "targets.json").write_text(json.dumps(about | {"tokenizer": "0"}))
    with pytest.raises(AsrtoolError, match=r"an alignment of the tokens of another tokenizer; name that tokenizer, or"):
        job(copy)
    about.pop("tokenizer")  # as an earlier asrtool wrote it
    (copy / "targets.json").write_text(json.dumps(about))
    job(copy)
    about["dev"]["index"] = "0"
    (copy / "targets.json").write_text(json.dumps(about))
    with pytest.raises(AsrtoolError, match=r"not made from the current utterances of the set dev"):
        job(copy)


def test_none_of_a_set_that_can_be_aligned_is_an_error(toy: Path, aligner: Path, tmp_path: Path) -> None:
    features = tmp_path / "features"
    shutil.copytree(toy / "features", features)
    index = features / "train" / "index.jsonl"
    long = [{**json.loads(line), "text": "a b c d " * 30} for line in index.read_text().splitlines()]
    index.write_text("".join(json.dumps(line) + "\n" for line in long))
    message = r"train: none of 24 utterances can be aligned, .*: \d+ rows, \d+ needed; look whether texts belong"
    with pytest.raises(AsrtoolError, match=message):
        targets_run(aligner, features, toy / "tokenizer", tmp_path / "out", Decode(num_jobs=1), TreeSettings())
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_as_many_other_tokens_is_refused(toy: Path, aligner: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("\n".join(make_texts(60, seed=9)) + "\n", encoding="utf-8")
    train_tokenizer(tmp_path / "other.txt", tmp_path / "other", NUM_TOKENS)
    with pytest.raises(AsrtoolError, match=r"other: .* was trained on \d+ other tokens; use the tokenizer that it was"):
        targets_run(aligner, toy / "features", tmp_path / "other", tmp_path / "out", Decode(num_jobs=1), TreeSettings())
    assert not (tmp_path / "out").exists()
