"""The ordered map over processes, and what these and the main process do for the utterances of a set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from asrtool.data.storage.index import Utterance
from asrtool.data.workers.processes import torch_threads
from asrtool.decode import decoder
from asrtool.decode.acoustic_model import Scored
from asrtool.decode.decoder import Decoded, LocalDecoder, Searches
from asrtool.decode.parallel import AHEAD, PIECE, one_by_one, process_pool
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.settings.decode import Decode


def test_results_come_in_order_and_from_other_processes() -> None:
    with process_pool(one_by_one(lambda item: (item * item, os.getpid())), 2) as pool_map:
        results = list(pool_map(range(50), 50))
    assert [square for square, _ in results] == [i * i for i in range(50)]
    assert os.getpid() not in {pid for _, pid in results}


def test_items_are_drawn_only_a_few_ahead_of_the_results() -> None:
    drawn: list[int] = []
    items = (drawn.append(i) or i for i in range(100))
    with process_pool(one_by_one(abs), 2) as pool_map:
        for count, _ in enumerate(pool_map(items, 100), 1):
            assert len(drawn) <= count + PIECE * (2 * AHEAD + 1)
    assert len(drawn) == 100


def test_an_error_in_a_process_reaches_the_caller() -> None:
    def fail(item: int) -> int:
        raise AsrtoolError(f"item {item} is bad", "fix it")

    with pytest.raises(AsrtoolError, match="item 3 is bad; fix it"), process_pool(one_by_one(fail), 2) as pool_map:
        list(pool_map([3], 1))


def test_a_process_is_given_several_items_at_a_time_and_few_where_there_are_few() -> None:
    with process_pool(lambda items: [len(items)] * len(items), 2) as pool_map:
        assert list(pool_map(range(100), 100)) == [PIECE] * 96 + [4] * 4
        assert list(pool_map(range(5), 5)) == [1] * 5
        assert list(pool_map([], 0)) == []


@pytest.mark.parametrize("victims", [{3}, {0, 5, 6}, set(range(20))], ids=str)
def test_what_a_killed_process_had_is_done_again(
    victims: set[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def work(items: list[int]) -> list[int]:
        (item,) = items
        done = tmp_path / str(item)
        if item in victims and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with done.open("a") as file:
            file.write("x")
        return [item * item]

    with process_pool(work, 3) as pool_map:
        assert list(pool_map(range(20), 12)) == [i * i for i in range(20)]
    assert len(caplog.records) == len(victims)
    assert {file.read_text() for file in tmp_path.iterdir()} == {"x"}  # each was done once


def test_items_that_kill_their_processes_are_one_line_and_no_hang() -> None:
    def die(_: list[int]) -> list[int]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    killed = pytest.raises(AsrtoolError, match=r"piece \d failed 3 times.* ended by signal 9.*with fewer processes")
    with killed, process_pool(die, 2) as pool_map:
        list(pool_map(range(4), 4))


def test_a_result_that_cannot_be_sent_is_an_error_of_its_item() -> None:
    with pytest.raises(RuntimeError, match="cannot be sent"), process_pool(one_by_one(lambda _: os), 2) as pool_map:
        list(pool_map(range(4), 4))


def test_no_process_is_left_when_a_caller_gives_up() -> None:
    with process_pool(one_by_one(lambda _: os.getpid()), 2) as pool_map:
        process = next(iter(pool_map(range(100), 100)))
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux signals a process whose parent ended")
def test_the_processes_of_a_killed_command_end_with_it() -> None:
    script = (
        "import os, signal, sys, time; from asrtool.decode.parallel import process_pool\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as the command line does\n"
        # In one write: print is two under PYTHONUNBUFFERED, and the lines of two processes run together.
        "def work(items): os.write(1, f'{os.getpid()}\\n'.encode()); time.sleep(600)\n"
        "with process_pool(work, 2) as pool_map: list(pool_map([1, 1], 2))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        workers = [int(command.stdout.readline()) for _ in range(2)]
        command.kill()
        # The pipe ends when all who hold it have, the workers among them.
        ended = threading.Thread(target=command.stdout.read, daemon=True)
        ended.start()
        ended.join(120)
        alive = ended.is_alive()
        if alive:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
    assert not alive


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_a_process_multiplies_matrices_with_one_thread(num_jobs: int) -> None:
    def threads(_: int) -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(3, "blas"):
        before = threads(0)
        with process_pool(one_by_one(threads), num_jobs) as pool_map:
            assert {tuple(found) for found in pool_map(range(4), 4)} == {(1,) * len(before)}
        assert threads(0) == before
    assert before, f"NumPy {np.__version__} has no BLAS with threads"


NUM = 21
TRIED = [DecodingParameters(name) for name in ("there", "here", "plain")]


def test_torch_gets_no_more_threads_than_it_has() -> None:
    """The user's OMP_NUM_THREADS: two threads on a busy core wait for each other."""
    with torch_threads(1):
        with torch_threads(2):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1


class Plain(SearchMethod):
    """The number that an utterance has as scores."""

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        return SearchResult((), (int(scores_TV[0, 0]), os.getpid()))

    def choose(self, result: SearchResult, parameters: Sequence[DecodingParameters]) -> list[tuple[Word, ...]]:
        return [tuple(Word(str(value), 0.0, 1.0, 1.0) for value in result.candidates) for _ in parameters]


class There(Plain):
    """Method that also records the process that completed it, and the number of results beside it."""

    def complete(self, results: list[SearchResult]) -> list[SearchResult]:
        return [SearchResult((), (*each.candidates, os.getpid(), len(results))) for each in results]


class Here(There):
    completes_in_main = True


def decode(num_jobs: int, num: int = NUM) -> Decoded:
    resources: Any = None
    kinds = {"there": There, "here": Here, "plain": Plain}
    methods = {name: kind(name, None, resources) for name, kind in kinds.items()}
    utterances = [Utterance(f"u{i}", "r", "A", float(i), 1.0, "s", "", 0, 100) for i in range(num)]
    scored = [Scored(u, np.full((3, 2), i, dtype=np.float32), 0.0) for i, u in enumerate(utterances)]
    acoustic: Any = SimpleNamespace(frame_shift_ms=10.0)
    local = LocalDecoder(acoustic, Searches(methods), Decode(num_jobs=num_jobs))
    return local.search(scored, TRIED, num, iter)


def test_an_utterance_alone_starts_no_process() -> None:
    found = decode(2, 1)
    assert [word.text for word in found.words[TRIED[0]][0]][1] == str(os.getpid())


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_searches_are_completed_side_by_side_where_the_method_says(
    num_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "BATCH", 10)
    found = decode(num_jobs)
    there, here, plain = ([[int(word.text) for word in words] for words in found.words[each]] for each in TRIED)
    assert [row[0] for row in there] == [row[0] for row in here] == [row[0] for row in plain] == list(range(NUM))
    assert {len(row) for row in plain} == {2}
    assert [row[2:] for row in here] == [[os.getpid(), 10]] * 20 + [[os.getpid(), 1]]
    assert all(row[1] == row[2] for row in there)  # by the process that searched
    assert {row[1] == os.getpid() for row in there} == {num_jobs == 1}
    assert {row[3] for row in there} == ({8, 5} if num_jobs == 1 else {2, 1})
