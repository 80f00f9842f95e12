"""Everything that settings choose by name: what the name loads, and the class of its settings.

A name is one of TABLE, or ``package.module:Object``, a person's own. An own class brings its settings as a dataclass
``Settings``; those of TABLE lie in modules that load no torch. Nothing is imported before it is used.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

from asrtool.errors import AsrtoolError


@dataclass(frozen=True)
class NoSettings:
    """What has nothing to set."""


# kind -> name -> (object, class of its settings or ""); or a package in which every module holds an object so called
TABLE: dict[str, dict[str, tuple[str, str]] | str] = {
    "features": {"fbank": ("asrtool.corpus.filterbank:Filterbank", "asrtool.corpus.settings:Fbank")},
    "corpus": "local.corpora.*:Corpus",
    "encoder": {"lstm": ("asrtool.models.lstm:BiLstm", "asrtool.models.settings:Lstm")},
    "objective": {
        "ctc": ("asrtool.models.ctc:Ctc", "asrtool.models.settings:Ctc"),
        "k2-ctc": ("asrtool.models.ctc:K2Ctc", "asrtool.models.settings:Ctc"),
    },
    "word-encoder": {"word-lstm": ("asrtool.models.neural_lm:WordLstm", "asrtool.models.settings:WordLstm")},
    "source": {"shards": ("asrtool.train.shards:Shards", "asrtool.train.settings:Shards")},
    "optimizer": {
        "adamw": ("asrtool.train.optimizer:adamw", "asrtool.train.settings:AdamW"),
        "sgd": ("asrtool.train.optimizer:sgd", "asrtool.train.settings:Sgd"),
    },
    "schedule": {
        "one-cycle": ("asrtool.train.schedule:one_cycle", "asrtool.train.settings:OneCycle"),
        "inverse-sqrt": ("asrtool.train.schedule:inverse_sqrt", "asrtool.train.settings:InverseSqrt"),
        "halving": ("asrtool.train.schedule:halving", "asrtool.train.settings:Halving"),
    },
    "strategy": {
        "single": ("asrtool.distributed.strategy:single", ""),
        "allreduce": ("asrtool.distributed.allreduce:AllReduce", ""),
        "adpsgd": ("asrtool.distributed.adpsgd:adpsgd", "asrtool.distributed.settings:AdPsgd"),
        "adpsgd-fixed": ("asrtool.distributed.adpsgd:adpsgd_fixed", "asrtool.distributed.settings:Gossip"),
        "adpsgd-random": ("asrtool.distributed.adpsgd:adpsgd_random", "asrtool.distributed.settings:Gossip"),
        "adpsgd-d1": ("asrtool.distributed.delay_by_one:delay_by_one", ""),
        "h-adpsgd": ("asrtool.distributed.hierarchical:hierarchical", "asrtool.distributed.settings:Hierarchical"),
        "bmuf": ("asrtool.distributed.bmuf:bmuf", "asrtool.distributed.settings:Bmuf"),
        "ps-async": ("asrtool.distributed.parameter_server:parameter_server", "asrtool.distributed.settings:Servers"),
        "hogwild": ("asrtool.distributed.hogwild:hogwild", ""),
    },
    "ring": {
        "fixed": ("asrtool.distributed.topology:fixed_ring", ""),
        "random": ("asrtool.distributed.topology:random_ring", ""),
    },
    "search": {
        "greedy": ("asrtool.decode.greedy:Greedy", "asrtool.decode.settings:Greedy"),
        "beam": ("asrtool.decode.beam:Beam", "asrtool.decode.settings:Beam"),
        "graph": ("asrtool.decode.graph:Graph", "asrtool.decode.settings:Graph"),
        "rescore": ("asrtool.decode.rescore:Rescore", "asrtool.decode.settings:Rescore"),
    },
}
# kind -> the abstract class whose abstract methods an own class must have; of other kinds any callable will do
PROTOCOLS = {
    "features": "asrtool.corpus.feature_type:FeatureType",
    "corpus": "local.corpus:Corpus",
    "encoder": "asrtool.models.encoder:Encoder",
    "objective": "asrtool.models.objective:Objective",
    "word-encoder": "asrtool.models.neural_lm:WordEncoder",
    "source": "asrtool.train.source:BatchSource",
    "search": "asrtool.decode.method:SearchMethod",
}


def names(kind: str) -> list[str]:
    """The names of `kind` that come with the toolkit."""
    return list(_entries(kind))


def load(kind: str, name: str) -> Any:
    """What `name` stands for, imported now; AsrtoolError for an unknown name, and an own object that does not fit."""
    if ":" not in name:
        return _import(_entry(kind, name)[0], name)
    found = _import(name, name)
    wanted = sorted(_import(PROTOCOLS[kind], kind).__abstractmethods__) if kind in PROTOCOLS else ["__call__"]
    parts = {part: getattr(found, part, None) for part in wanted}
    missing = [part for part, value in parts.items() if value is None or getattr(value, "__isabstractmethod__", False)]
    if missing:
        raise AsrtoolError(f"{name}: no {kind}, it lacks {', '.join(missing)}", "see docs/guide/extending.md")
    return found


def settings_class(kind: str, name: str) -> type[Any]:
    """The dataclass of the settings of `name`; AsrtoolError for an unknown name."""
    if ":" in name:
        own: type[Any] = getattr(load(kind, name), "Settings", NoSettings)
        return own
    path = _entry(kind, name)[1]
    found: type[Any] = _import(path, name) if path else NoSettings
    return found


def module_of(kind: str, name: str) -> str:
    """The module that `name` is in."""
    return (name if ":" in name else _entry(kind, name)[0]).partition(":")[0]


def table_name(name: str) -> str:
    """How the table of the settings of `name` is called: an own class by its name without package and module."""
    return name.rpartition(":")[2]


def check_name(kind: str, name: str) -> None:
    """Raises AsrtoolError for a name that is neither known nor ``package.module:Object``."""
    if ":" not in name:
        _entry(kind, name)


def _entry(kind: str, name: str) -> tuple[str, str]:
    entries = _entries(kind)
    if name not in entries:
        close = difflib.get_close_matches(name, entries, n=1, cutoff=0.0)
        raise AsrtoolError(
            f"unknown {kind} {name!r}, expected one of {', '.join(entries)}",
            f"did you mean {close[0]}? One of your own is package.module:Name",
        )
    return entries[name]


@functools.cache
def _entries(kind: str) -> dict[str, tuple[str, str]]:
    table = TABLE[kind]
    if not isinstance(table, str):
        return table
    package, _, name = table.partition(".*")
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return {module.name: (f"{package}.{module.name}{name}", "") for module in modules}


def _import(path: str, name: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise AsrtoolError(f"{name}: {path} cannot be loaded: {error}", "check the name, and PYTHONPATH") from error
