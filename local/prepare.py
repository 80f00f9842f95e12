"""Corpora to folders of manifests: `manifests/corpora/NAME/ROLE`, one for each set that a corpus gives."""

from __future__ import annotations

from pathlib import Path

from asrtool.data.manifests.manifest import REPORT, check_place, read_report
from asrtool.local.corpus import ROLES, Corpus
from asrtool.local.corpus_names import Named, named_corpora
from asrtool.settings.data import Data

CORPORA = "corpora"


def prepare_all(corpus: Path, manifests: Path, data: Data) -> None:
    """Prepare each corpus that `data` names from its releases, folders of `corpus`, into `manifests`/corpora/NAME.

    Raises AsrtoolError when a corpus cannot be prepared or lacks a set that it is named for.
    """
    for item in named_corpora(data):
        out = manifests / CORPORA / item.corpus.name
        prepare_corpus(item.corpus, corpus, out, data)
        for role in _promised(item):
            read_report(out / role)


def prepare_corpus(corpus: Corpus, releases: Path, out: Path, data: Data) -> None:
    """Write `out`/ROLE for each set of `corpus`, whose releases are folders of `releases`.

    What an earlier run left counts as half-written until it is made again; decoded audio stays.
    """
    for role in ROLES:
        check_place(out / role)
        (out / role / REPORT).unlink(missing_ok=True)
    corpus.prepare(releases, out, data)


def _promised(item: Named) -> list[str]:
    """The roles that the corpus is named for and must have a set for: a release of theirs is needed."""
    needed = {role for release in item.corpus.releases if not release.is_optional for role in release.roles}
    return [role for role in item.roles if role in needed]
