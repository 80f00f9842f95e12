"""Everything that settings choose by name: what the name loads, and the class of its settings.

A name is one of TABLE, or ``package.module:Object``, a person's own; its attribute ``Settings``, a dataclass in which
everything has a default, is the class of its settings. Those of TABLE lie in modules that load no torch. Nothing is
imported before it is used.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from dataclasses import dataclass, is_dataclass
from typing import Any

from asrtool.config_value import nearest
from asrtool.errors import AsrtoolError


@dataclass(frozen=True)
class NoSettings:
    """What has nothing to set."""


# kind -> name -> (object, class of its settings or ""); or a package in which every module holds an object so called
TABLE: dict[str, dict[str, tuple[str, str]] | str] = {
    "features": {
        "fbank": ("asrtool.corpus.filterbank:Filterbank", "asrtool.corpus.settings:Fbank"),
        "spectrogram": ("asrtool.corpus.spectrogram:PowerSpectrum", "asrtool.corpus.settings:Spectrogram"),
    },
    "corpus": "asrtool.local.corpora.*:Corpus",
    "encoder": {
        "lstm": ("asrtool.models.lstm:LstmEncoder", "asrtool.models.settings:Lstm"),
        "deepspeech2": ("asrtool.models.deepspeech2:DeepSpeech2", "asrtool.models.settings:DeepSpeech2"),
        "conformer": ("asrtool.models.conformer:Conformer", "asrtool.models.settings:Conformer"),
    },
    "objective": {
        "ctc": ("asrtool.models.ctc:Ctc", "asrtool.models.settings:Ctc"),
        "k2-ctc": ("asrtool.models.ctc:K2Ctc", "asrtool.models.settings:K2Ctc"),
        "transducer": ("asrtool.models.transducer:Transducer", "asrtool.models.settings:Transducer"),
        "attention": ("asrtool.models.attention:Attention", "asrtool.models.settings:Attention"),
        "frame-ce": ("asrtool.models.frame_ce:FrameCe", "asrtool.models.settings:FrameCe"),
        "lf-mmi": ("asrtool.models.lf_mmi:LfMmi", "asrtool.models.settings:LfMmi"),
    },
    "word-encoder": {"word-lstm": ("asrtool.models.neural_lm:WordLstm", "asrtool.models.settings:WordLstm")},
    "word-output": {
        "softmax": ("asrtool.models.next_word:Softmax", "asrtool.models.settings:Softmax"),
        "adaptive": ("asrtool.models.next_word:Adaptive", "asrtool.models.settings:Adaptive"),
    },
    "source": {"shards": ("asrtool.train.shards:Shards", "asrtool.train.settings:Shards")},
    "optimizer": {
        "adamw": ("asrtool.train.optimizer:adamw", "asrtool.train.settings:AdamW"),
        "sgd": ("asrtool.train.optimizer:sgd", "asrtool.train.settings:Sgd"),
        "lamb": ("asrtool.train.optimizer:lamb", "asrtool.train.settings:Lamb"),
    },
    "schedule": {
        "one-cycle": ("asrtool.train.schedule:one_cycle", "asrtool.train.settings:OneCycle"),
        "inverse-sqrt": ("asrtool.train.schedule:inverse_sqrt", "asrtool.train.settings:InverseSqrt"),
        "halving": ("asrtool.train.schedule:halving", "asrtool.train.settings:Halving"),
        "plateau": ("asrtool.train.schedule:plateau", "asrtool.train.settings:Plateau"),
    },
    "strategy": {
        "single": ("asrtool.distributed.synchronous:single", ""),
        "allreduce": ("asrtool.distributed.allreduce:AllReduce", "asrtool.distributed.settings:AllReduce"),
        "adpsgd": ("asrtool.distributed.adpsgd:adpsgd", "asrtool.distributed.settings:AdPsgd"),
        "adpsgd-fixed": ("asrtool.distributed.adpsgd:adpsgd_fixed", "asrtool.distributed.settings:Gossip"),
        "adpsgd-random": ("asrtool.distributed.adpsgd:adpsgd_random", "asrtool.distributed.settings:Gossip"),
        "adpsgd-pairs": ("asrtool.distributed.pairs:adpsgd_pairs", "asrtool.distributed.settings:Pairs"),
        "adpsgd-d1": ("asrtool.distributed.delay_by_one:delay_by_one", "asrtool.distributed.settings:DelayByOne"),
        "h-adpsgd": ("asrtool.distributed.hierarchical:hierarchical", "asrtool.distributed.settings:Hierarchical"),
        "bmuf": ("asrtool.distributed.bmuf:bmuf", "asrtool.distributed.settings:Bmuf"),
        "ps-async": ("asrtool.distributed.parameter_server:parameter_server", "asrtool.distributed.settings:Servers"),
        "ps-sync": (
            "asrtool.distributed.synchronous_server:synchronous_parameter_server",
            "asrtool.distributed.settings:SynchronousServers",
        ),
        "hogwild": ("asrtool.distributed.hogwild:hogwild", "asrtool.distributed.settings:Hogwild"),
        "none": ("asrtool.distributed.no_mixing:no_communication", "asrtool.distributed.settings:NoMixing"),
    },
    "ring": {
        "fixed": ("asrtool.distributed.topology:fixed_ring", ""),
        "random": ("asrtool.distributed.topology:random_ring", ""),
    },
    "search": {
        "greedy": ("asrtool.decode.method:Greedy", "asrtool.decode.settings:Greedy"),
        "beam": ("asrtool.decode.beam:Beam", "asrtool.decode.settings:Beam"),
        "graph": ("asrtool.decode.graph:Graph", "asrtool.decode.settings:Graph"),
        "rescore": ("asrtool.decode.rescore:Rescore", "asrtool.decode.settings:Rescore"),
        "transducer-greedy": ("asrtool.decode.transducer:Greedy", "asrtool.decode.settings:TransducerGreedy"),
        "transducer-beam": ("asrtool.decode.transducer:Beam", "asrtool.decode.settings:TransducerBeam"),
        "attention-greedy": ("asrtool.decode.attention:Greedy", "asrtool.decode.settings:AttentionGreedy"),
        "attention-beam": ("asrtool.decode.attention:Beam", "asrtool.decode.settings:AttentionBeam"),
    },
}
# kind -> the class that an own one derives from, with its abstract methods; of others all that can be called will do
PROTOCOLS = {
    "features": "asrtool.corpus.feature_type:FeatureType",
    "corpus": "asrtool.local.corpus:Corpus",
    "encoder": "asrtool.models.acoustic:Encoder",
    "objective": "asrtool.models.acoustic:Objective",
    "topology": "asrtool.models.topology:Topology",  # of an objective, whose settings name it
    "word-encoder": "asrtool.models.neural_lm:WordEncoder",
    "word-output": "asrtool.models.next_word:NextWord",
    "source": "asrtool.train.source:BatchSource",
    "search": "asrtool.decode.method:SearchMethod",
}


def names(kind: str) -> list[str]:
    """The names of `kind` that come with the toolkit."""
    return list(_entries(kind))


def load(kind: str, name: str) -> Any:
    """What `name` stands for, imported now; AsrtoolError for an unknown name, and an own object that does not fit."""
    if ":" not in name:
        return pkgutil.resolve_name(_entry(kind, name)[0])
    try:
        found = pkgutil.resolve_name(name)
    except Exception as error:  # an own module: whatever it raises is reported in one line
        hint = "correct the name or the module; the folder of its package has to be on PYTHONPATH"
        reason = str(error).partition("\n")[0]
        raise AsrtoolError(f"{name} cannot be loaded: {type(error).__name__}: {reason}", hint) from error
    if missing := _missing(kind, found):
        raise AsrtoolError(f"{name}: no {kind}, it lacks {', '.join(missing)}", "see docs/guide/extending.md")
    if base := _missing_base(kind, found):
        hint = "name it as the base of the class, see docs/guide/extending.md"
        raise AsrtoolError(f"{name}: no {kind}, it does not derive from {base}", hint)
    return found


def _missing(kind: str, found: Any) -> list[str]:
    """The methods that `found` lacks, or has as the protocol or a base of that leaves them."""
    if kind not in PROTOCOLS:
        return [] if callable(found) else ["__call__"]
    protocol = pkgutil.resolve_name(PROTOCOLS[kind])
    wanted = sorted(protocol.__abstractmethods__)
    left = {part: [getattr(base, part, None) for base in protocol.__mro__] for part in wanted}
    return [part for part in wanted if getattr(found, part, None) in left[part]]


def _missing_base(kind: str, found: Any) -> str:
    """The class that `found` does not derive from and should: what it inherits of the protocol is called as well."""
    base = PROTOCOLS.get(kind, "")
    fits = not base or (isinstance(found, type) and issubclass(found, pkgutil.resolve_name(base)))
    return "" if fits else base


def check_returned(what: str, found: object, expected: type) -> None:
    """Raises AsrtoolError where `found`, which the own component `what` has returned, is not of the class `expected`.

    For what is called seldom, or by its first call: nothing is checked in each step.
    """
    if not isinstance(found, expected):
        path = f"{expected.__module__}:{expected.__qualname__}"
        hint = "return one, see docs/guide/extending.md"
        raise AsrtoolError(f"{what} returned {type(found).__name__}, expected {path}", hint)


def settings_class(kind: str, name: str) -> type[Any]:
    """The dataclass of the settings of `name`; AsrtoolError for an unknown name."""
    path = _entry(kind, name)[1]
    found: type[Any] = pkgutil.resolve_name(path) if path else NoSettings
    if ":" in name:
        found = getattr(load(kind, name), "Settings", NoSettings)
        if not is_dataclass(found):
            raise AsrtoolError(f"{name}: its Settings is no dataclass", "put @dataclass(frozen=True) above it")
    return found


def path_of(kind: str, name: str) -> str:
    """Where `name` lies, as ``package.module:Object``; AsrtoolError for an unknown name."""
    return _entry(kind, name)[0]


def _entry(kind: str, name: str) -> tuple[str, str]:
    entries = {name: (name, "")} if ":" in name else _entries(kind)
    if name not in entries:
        what = f"unknown {kind} {name!r}, expected one of {', '.join(entries)}"
        raise AsrtoolError(
            what, f"{nearest(name, entries) or 'choose one of these.'} One of your own is package.module:Name"
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
