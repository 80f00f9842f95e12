"""Prepare corpora: `manifests/corpora/NAME/ROLE` for each set of a corpus."""

from __future__ import annotations

from pathlib import Path

from asrtool.data.manifests.manifest import REPORT, check_place, read_report
from asrtool.local.corpus import ROLES, Corpus
from asrtool.local.corpus_names import Named, named_corpora
from asrtool.settings.data import Data

CORPORA = "corpora"


def prepare_all(corpus: Path, manifests: Path, data: Data) -> None:
    """Prepare each corpus of `data` from its releases in `corpus`.

    Raises AsrtoolError if a corpus cannot be prepared or lacks a set it is named for.
    """
    for item in named_corpora(data):
        out = manifests / CORPORA / item.corpus.name
        prepare_corpus(item.corpus, corpus, out, data)
        for role in _promised(item):
            read_report(out / role)


def prepare_corpus(corpus: Corpus, releases: Path, out: Path, data: Data) -> None:
    """Write `out`/ROLE for each set of `corpus` from its `releases`.

    Sets of an earlier run count as half-written until made again; decoded audio stays.
    """
    for role in ROLES:
        check_place(out / role)
        (out / role / REPORT).unlink(missing_ok=True)
    corpus.prepare(releases, out, data)


def _promised(item: Named) -> list[str]:
    """Return the roles that the corpus must have a set for."""
    needed = {role for release in item.corpus.releases if not release.is_optional for role in release.roles}
    return [role for role in item.roles if role in needed]
