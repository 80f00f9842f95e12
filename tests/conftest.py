"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Torch and its like bring a million objects, among which Python would look for cycles again and again as they come.
gc.disable()

# Each core has a process of tests; threads of torch that wait for one another would slow them down many times.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell has what it runs in the background ignore Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, which may be busy; `make fuzz` draws new ones.
settings.register_profile("asrtool", deadline=None, derandomize=True, database=None)
settings.register_profile("fuzz", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "300")), print_blob=True)
settings.load_profile("asrtool")

# The help is as wide as COLUMNS says, else as the terminal.
os.environ["COLUMNS"] = "80"

ROOT = Path(__file__).resolve().parents[1]

# Test files that take longest. If one began last, other processes of tests would be idle.
BEGUN_FIRST = (ROOT / "tests" / "recipe", ROOT / "tests" / "unit" / "train")


# Allocations between two searches for cycles: seldom, as each time that a test reads a dictionary is too often.
SELDOM, DEFAULT = (10_000, 10, 10), gc.get_threshold()


def pytest_collection_finish() -> None:
    """Look for cycles among the objects of tests alone."""
    gc.freeze()
    gc.set_threshold(*SELDOM)
    gc.enable()


@pytest.fixture(autouse=True)
def _cycles_as_by_default(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore Python's default garbage collection for tests that measure memory."""
    measures = {"peak_bytes", "tracemalloc"} & vars(request.module).keys()
    if measures:
        gc.set_threshold(*DEFAULT)
    yield
    if measures:
        gc.set_threshold(*SELDOM)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, for `pytest -n` with --no-loadscope-reorder."""
    items.sort(key=lambda item: item.path.parent not in BEGUN_FIRST)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run a test that is marked no_room with a limit on the size of files.

    Not by a fixture: pytest reports a test before it ends its fixtures, perhaps to a file that is longer.
    """
    if item.get_closest_marker("no_room") is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real speech, NIST examples and SPHERE files beside the checkout."""
    path = ROOT.parent / "shared"
    if not (path / "data").is_dir():
        pytest.skip("no ../shared/data beside the checkout (real speech and NIST examples)")
    return path


@pytest.fixture(scope="session")
def mini_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mini corpus of about a minute of speech, in LDC layout; read only."""
    from asrtool.local.mini.corpus import make_corpus
    from asrtool.settings.data import Mini

    out = tmp_path_factory.mktemp("mini") / "corpus"
    make_corpus(out, Mini(train_hours=0.02, test_minutes=0.5, seed=7))
    return out


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, Any]]:
    """Yield the address of an S3 server and a client of it."""
    pytest.importorskip("moto", reason="needs moto, of the extra dev")
    from servers import s3

    with s3() as found:
        yield found


@pytest.fixture
def bucket(s3_server: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The client, with the environment of a person who may read the bucket servers.BUCKET."""
    endpoint, client = s3_server
    variables = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
    for name, value in {**variables, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    return client
