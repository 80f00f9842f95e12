"""Frame targets by forced alignment, and the decision tree of HMM states.

Every utterance is aligned on its own features, and so are copies at other speeds: their rows are other parts of
speech, which no scaling of times finds.

Letters in names: S segments, T frames, R rows, F features, K contexts.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.data.storage.alignment import Alignment, write_about, writing_alignment
from asrtool.data.storage.index import ShardIndex
from asrtool.data.storage.index_columns import open_index_columns
from asrtool.decode.acoustic_model import AcousticModel, load_acoustic_model, load_tokenizer
from asrtool.decode.align.align import Item, align_tokens, map_aligned
from asrtool.decode.forward import open_features
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.tokenizer import Tokenizer, tokenizer_file
from asrtool.log import progress
from asrtool.models.objectives.decision_tree import SILENCE, Context, Tree, contexts, grow_tree, moments
from asrtool.models.objectives.topology import Span, Topology
from asrtool.settings.decode import Decode
from asrtool.settings.models import Tree as TreeSettings

SETS = ("train", "dev")


def align_segments(topology: Topology, margin: int, subsampling: int, item: Item) -> np.ndarray | str:
    """Return tokens and their first frames (S, 2) for scores, or a reason.

    A token reaches `margin` rows beyond its span. `subsampling` is frames a row.
    """
    path = align_tokens(topology, item, least_rows=1)
    if isinstance(path, str):
        return path
    return find_segments(topology.spans(path, item[0]), len(path), margin) * np.array([1, subsampling])


def find_segments(spans: Sequence[Span], num_rows: int, margin: int) -> np.ndarray:
    """Return tokens and their first rows (S, 2) with silence, for `spans`.

    Each token takes up to `margin` rows on either side; neighbours within both margins are split in the middle. The
    rest is silence.
    """
    segments: list[tuple[int, int]] = []
    end = 0  # end of the previous token, with its margin
    last = None  # the end of its span
    for token, begin, span_end, _ in spans:
        if last is not None and begin - last <= 2 * margin:
            start = (last + begin + 1) // 2
        else:
            start = max(begin - margin, end)
            if start > end:
                segments.append((SILENCE, end))
        segments.append((token, start))
        last, end = span_end, min(span_end + margin, num_rows)
    if end < num_rows:
        segments.append((SILENCE, end))
    return np.array(segments, dtype=np.int64).reshape(-1, 2)


def targets_run(
    model: Path, features: Path, tokenizer: Path, out: Path, settings: Decode, tree_settings: TreeSettings
) -> None:
    """Align `features`/train and dev, grow a tree on train, write `out`.

    Utterances that cannot be aligned have no segments, and are counted. Raises AsrtoolError if an input is missing or
    broken, parts do not belong together, or nothing of a set can be aligned.
    """
    acoustic = load_acoustic_model(model)
    loaded = load_tokenizer(tokenizer, acoustic)
    with write_folder(out, "targets.json") as folder:
        about = {}
        for name in SETS:
            index = _open_index(features / name)
            about[name] = _align_set(acoustic, features / name, index, loaded, folder / name, settings)
        tree = _grow(acoustic, features / "train", folder / "train", loaded.num_tokens, tree_settings)
        tree.save(folder)
        write_about(folder, features, tokenizer_file(tokenizer), about)
    logging.info("%s: %d leaves of %d tokens", out, tree.num_leaves, loaded.num_tokens)


def _open_index(directory: Path) -> ShardIndex:
    """Open the index of a set that may not fit in memory."""
    return ShardIndex(directory, open_index_columns(directory).shards)


def _align_set(
    acoustic: AcousticModel, directory: Path, index: ShardIndex, tokenizer: Tokenizer, out: Path, settings: Decode
) -> dict[str, Any]:
    """Write the alignment of a set; return its entry in targets.json."""
    reader = open_features(directory, acoustic, index)
    subsampling = acoustic.model.subsampling
    margin = round(acoustic.topology.margin_s / acoustic.frame_s)
    segmenter = functools.partial(align_segments, acoustic.topology, margin, subsampling)
    dropped: list[str] = []
    found_by_utterance = map_aligned(segmenter, acoustic, reader, tokenizer, settings, f"align {directory.name}")
    with writing_alignment(out, len(index)) as add:
        for utterance, position, found in found_by_utterance:
            if isinstance(found, str):
                dropped.append(f"{utterance.id}: {found}")
            else:
                add(position, found)
    if len(dropped) == len(index):
        hint = "look whether texts belong to their audio and have the tokens of the training"
        raise AsrtoolError(f"{directory}: none of {len(index)} utterances can be aligned, {dropped[0]}", hint)
    logging.info("%s: %d utterances aligned, %d left out", directory, len(index) - len(dropped), len(dropped))
    return {"subsampling": subsampling, "num_utterances": len(index), "num_dropped": len(dropped)}


def _grow(acoustic: AcousticModel, directory: Path, aligned: Path, num_tokens: int, settings: TreeSettings) -> Tree:
    """Grow the tree from the moments of each context of a set."""
    index = _open_index(directory)
    reader, alignment = open_features(directory, acoustic, index), Alignment(aligned)
    subsampling = acoustic.model.subsampling
    found: dict[Context, np.ndarray] = {}
    for position in progress(range(len(index)), f"tree {directory.name}", len(index), "utterance"):
        if alignment.lacks(position):
            continue
        feats_TF = reader.read(position)
        num_rows = -(-len(feats_TF) // subsampling)
        middle_R = np.minimum(np.arange(num_rows) * subsampling + subsampling // 2, len(feats_TF) - 1)
        contexts_R3 = np.stack(contexts(alignment.segments(position), num_rows, subsampling), axis=1)
        keys_K3, row_R = np.unique(contexts_R3, axis=0, return_inverse=True)
        sums_KM = np.zeros((len(keys_K3), 1 + 2 * feats_TF.shape[1]))
        np.add.at(sums_KM, row_R.reshape(-1), moments(feats_TF[middle_R]))
        for key, sums_M in zip(map(tuple, keys_K3.tolist()), sums_KM, strict=True):
            found[key] = found[key] + sums_M if key in found else sums_M.copy()
    return grow_tree(found, num_tokens, settings.num_leaves, settings.min_count)
