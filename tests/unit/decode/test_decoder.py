"""What search processes and the main process each do for the utterances of a set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asrtool.data.storage.index import Utterance
from asrtool.decode import decoder
from asrtool.decode.decoder import Decoded, LocalDecoder, Searches
from asrtool.decode.forward import Scored
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.words import Word
from asrtool.settings.decode import Decode

NUM = 21
TRIED = [DecodingParameters(name) for name in ("there", "here", "plain")]


class Plain(SearchMethod):
    """The number that an utterance has as scores."""

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        return SearchResult((), (int(scores_TV[0, 0]), os.getpid()))

    def choose(self, result: SearchResult, parameters: Sequence[DecodingParameters]) -> list[tuple[Word, ...]]:
        return [tuple(Word(str(value), 0.0, 1.0, 1.0) for value in result.candidates) for _ in parameters]


class There(Plain):
    """Notes besides who completed it, and beside how many others."""

    def complete(self, results: list[SearchResult]) -> list[SearchResult]:
        return [SearchResult((), (*each.candidates, os.getpid(), len(results))) for each in results]


class Here(There):
    completes_in_main = True


def decode(num_jobs: int) -> Decoded:
    resources: Any = None
    kinds = {"there": There, "here": Here, "plain": Plain}
    methods = {name: kind(name, None, resources) for name, kind in kinds.items()}
    utterances = [Utterance(f"u{i}", "r", "A", float(i), 1.0, "s", "", 0, 100) for i in range(NUM)]
    scored = [Scored(u, np.full((3, 2), i, dtype=np.float32), 0.0) for i, u in enumerate(utterances)]
    acoustic: Any = SimpleNamespace(frame_shift_ms=10.0)
    local = LocalDecoder(acoustic, Searches(methods), Decode(num_jobs=num_jobs))
    return local.search(scored, TRIED, NUM, iter)


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_searches_are_completed_side_by_side_where_the_method_says(
    num_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "TOGETHER", 10)
    found = decode(num_jobs)
    there, here, plain = ([[int(word.text) for word in words] for words in found.words[each]] for each in TRIED)
    assert [row[0] for row in there] == [row[0] for row in here] == [row[0] for row in plain] == list(range(NUM))
    assert {len(row) for row in plain} == {2}
    assert [row[2:] for row in here] == [[os.getpid(), 10]] * 20 + [[os.getpid(), 1]]
    assert all(row[1] == row[2] for row in there)  # by the process that searched
    assert {row[1] == os.getpid() for row in there} == {num_jobs == 1}
    assert {row[3] for row in there} == ({8, 5} if num_jobs == 1 else {2, 1})
