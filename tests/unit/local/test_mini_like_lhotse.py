"""Manifests of the mini corpus against lhotse's preparers of the same releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lhotse.audio.backend import audio_backend
from lhotse.recipes import prepare_fisher_english, prepare_switchboard
from small_releases import dropped, read_jsonl, supervisions

from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.corpus import Corpus
from asrtool.settings.data import Data

Prepare = Callable[[Path, Path], dict[str, Any]]


def swbd(corpus: Path, _: Path) -> dict[str, Any]:
    audio, transcripts = (corpus / release.name for release in Swbd.releases[:2])
    return prepare_switchboard(audio, transcripts, omit_silence=False, absolute_paths=True)


def fisher(corpus: Path, out: Path) -> dict[str, Any]:
    transcripts = ["LDC2004T19/fe_03_p1_tran", "LDC2005T19/fe_03_p2_tran"]
    return prepare_fisher_english(corpus, out, transcript_dirs=transcripts, absolute_paths=True, num_jobs=1)


@pytest.mark.parametrize(("corpus", "prepare"), [(Swbd(), swbd), (Fisher(), fisher)])
def test_ids_times_and_files_are_those_of_lhotse(
    corpus: Corpus, prepare: Prepare, mini_corpus: Path, tmp_path: Path
) -> None:
    corpus.prepare(mini_corpus, tmp_path, Data())
    with audio_backend("LibsndfileBackend"):
        theirs = prepare(mini_corpus, tmp_path / "out")
    expected = {s.id: s.to_dict() for s in theirs["supervisions"]}
    keys = ("id", "recording_id", "start", "duration", "channel", "language")
    ours = supervisions(tmp_path / "train")
    assert len(ours) > 10
    for item in ours:
        assert list(item) == list(expected[item["id"]])
        assert [item[key] for key in keys] == [expected[item["id"]][key] for key in keys]
        if prepare is fisher:
            assert item["speaker"] == f"fisher-{expected[item['id']]['speaker']}"
    assert {item["id"] for item in ours} == expected.keys() - dropped(tmp_path / "train").keys()
    recordings = {r.id: r.to_dict() for r in theirs["recordings"]}
    assert all(r == recordings[r["id"]] for r in read_jsonl(tmp_path / "train" / "recordings.jsonl.gz"))
