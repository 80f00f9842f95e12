"""Registry of components that settings choose by name, and their settings.

A name is one of TABLE, or a custom ``package.module:Object`` whose attribute ``Settings``, a dataclass with defaults,
is its settings class. An installed package can register a short name for that as an entry point. Settings of TABLE are
in modules without torch. Nothing is imported before it is used.
"""

from __future__ import annotations

import functools
import pkgutil
from dataclasses import dataclass, is_dataclass
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings.removed import REMOVED_COMPONENTS
from asrtool.settings.values import nearest


@dataclass(frozen=True)
class NoSettings:
    """Settings of a component that has none."""


# kind -> name -> (object, class of its settings or ""); or where a table of name -> object is
TABLE: dict[str, dict[str, tuple[str, str]] | str] = {
    "features": {
        "fbank": ("asrtool.data.features.feature_type:Filterbank", "asrtool.settings.data:Fbank"),
        "spectrogram": ("asrtool.data.features.feature_type:PowerSpectrum", "asrtool.settings.data:Spectrogram"),
    },
    "corpus": "asrtool.local.corpora:CORPORA",
    "encoder": {
        "lstm": ("asrtool.models.encoders.lstm:LstmEncoder", "asrtool.settings.models:Lstm"),
        "deepspeech2": ("asrtool.models.encoders.deepspeech2:DeepSpeech2", "asrtool.settings.models:DeepSpeech2"),
        "conformer": ("asrtool.models.encoders.conformer:Conformer", "asrtool.settings.models:Conformer"),
    },
    "objective": {
        "ctc": ("asrtool.models.objectives.ctc:Ctc", "asrtool.settings.models:Ctc"),
        "transducer": ("asrtool.models.objectives.transducer:Transducer", "asrtool.settings.models:Transducer"),
        "attention": ("asrtool.models.objectives.attention:Attention", "asrtool.settings.models:Attention"),
        "frame-ce": ("asrtool.models.objectives.frame_ce:FrameCe", "asrtool.settings.models:FrameCe"),
        "lf-mmi": ("asrtool.models.objectives.lf_mmi:LfMmi", "asrtool.settings.models:LfMmi"),
    },
    "word-encoder": {"word-lstm": ("asrtool.models.lm.neural_lm:WordLstm", "asrtool.settings.models:WordLstm")},
    "word-output": {
        "softmax": ("asrtool.models.lm.next_word:Softmax", "asrtool.settings.models:Softmax"),
        "adaptive": ("asrtool.models.lm.next_word:Adaptive", "asrtool.settings.models:Adaptive"),
    },
    "source": {"shards": ("asrtool.train.batches.shard_source:Shards", "asrtool.settings.train:Shards")},
    "optimizer": {
        "adamw": ("asrtool.train.optimisation.optimizer:adamw", "asrtool.settings.train:AdamW"),
        "sgd": ("asrtool.train.optimisation.optimizer:sgd", "asrtool.settings.train:Sgd"),
    },
    "schedule": {
        "one-cycle": ("asrtool.train.optimisation.learning_rate:one_cycle", "asrtool.settings.train:OneCycle"),
        "inverse-sqrt": ("asrtool.train.optimisation.learning_rate:inverse_sqrt", "asrtool.settings.train:InverseSqrt"),
        "halving": ("asrtool.train.optimisation.learning_rate:halving", "asrtool.settings.train:Halving"),
        "plateau": ("asrtool.train.optimisation.learning_rate:plateau", "asrtool.settings.train:Plateau"),
    },
    "logger": {"tensorboard": ("asrtool.train.loop.metrics:tensorboard", "")},
    "strategy": {
        "single": ("asrtool.distributed.strategies.strategy:single", ""),
        "allreduce": ("asrtool.distributed.strategies.allreduce:AllReduce", "asrtool.settings.distributed:AllReduce"),
        "adpsgd": ("asrtool.distributed.strategies.gossip:adpsgd", "asrtool.settings.distributed:AdPsgd"),
        "adpsgd-fixed": ("asrtool.distributed.strategies.gossip:adpsgd", "asrtool.settings.distributed:FixedRing"),
        "adpsgd-random": ("asrtool.distributed.strategies.gossip:adpsgd", "asrtool.settings.distributed:RandomRing"),
        "adpsgd-pairs": ("asrtool.distributed.strategies.gossip:adpsgd_pairs", "asrtool.settings.distributed:Pairs"),
        "adpsgd-d1": (
            "asrtool.distributed.strategies.delay_by_one:delay_by_one",
            "asrtool.settings.distributed:DelayByOne",
        ),
        "h-adpsgd": (
            "asrtool.distributed.strategies.hierarchical:hierarchical",
            "asrtool.settings.distributed:Hierarchical",
        ),
        "bmuf": ("asrtool.distributed.strategies.bmuf:bmuf", "asrtool.settings.distributed:Bmuf"),
        "ps-async": (
            "asrtool.distributed.baselines.parameter_server:ParameterServer",
            "asrtool.settings.distributed:Servers",
        ),
        "ps-sync": (
            "asrtool.distributed.baselines.parameter_server:SynchronousParameterServer",
            "asrtool.settings.distributed:SynchronousServers",
        ),
        "hogwild": ("asrtool.distributed.baselines.hogwild:Hogwild", "asrtool.settings.distributed:Hogwild"),
        "none": (
            "asrtool.distributed.strategies.replica:independent",
            "asrtool.settings.distributed:NoMixing",
        ),
    },
    "place": {
        "local": ("asrtool.jobs.job:no_cluster", ""),
        "slurm": ("asrtool.jobs.slurm:SlurmCluster", "asrtool.settings.launch:Slurm"),
        "kubernetes": ("asrtool.jobs.kubernetes:KubernetesCluster", "asrtool.settings.launch:Kubernetes"),
    },
    "ring": {
        "fixed": ("asrtool.distributed.strategies.topology:fixed_ring", ""),
        "random": ("asrtool.distributed.strategies.topology:random_ring", ""),
    },
    "search": {
        "greedy": ("asrtool.decode.search.method:Greedy", "asrtool.settings.decode:Greedy"),
        "beam": ("asrtool.decode.search.beam:Beam", "asrtool.settings.decode:Beam"),
        "graph": ("asrtool.decode.search.graph:Graph", "asrtool.settings.decode:Graph"),
        "rescore": ("asrtool.decode.search.rescore:Rescore", "asrtool.settings.decode:Rescore"),
        "transducer-greedy": ("asrtool.decode.search.transducer:Greedy", "asrtool.settings.decode:TransducerGreedy"),
        "transducer-beam": ("asrtool.decode.search.transducer:Beam", "asrtool.settings.decode:TransducerBeam"),
        "attention-greedy": ("asrtool.decode.search.attention:Greedy", "asrtool.settings.decode:AttentionGreedy"),
        "attention-beam": ("asrtool.decode.search.attention:Beam", "asrtool.settings.decode:AttentionBeam"),
    },
}
# kind -> base class of custom components; other kinds accept anything callable
PROTOCOLS = {
    "features": "asrtool.data.features.feature_type:FeatureType",
    "corpus": "asrtool.local.corpus:Corpus",
    "encoder": "asrtool.models.acoustic:Encoder",
    "objective": "asrtool.models.acoustic:Objective",
    "topology": "asrtool.models.objectives.topology:Topology",  # of an objective, whose settings name it
    "word-encoder": "asrtool.models.lm.neural_lm:WordEncoder",
    "word-output": "asrtool.models.lm.next_word:NextWord",
    "source": "asrtool.train.batches.source:BatchSource",
    "search": "asrtool.decode.search.method:SearchMethod",
}


# Entry points of a kind are in the group asrtool.KINDs; these plurals are others.
PLURALS = {"features": "features", "corpus": "corpora", "strategy": "strategies", "search": "searches"}


def plugins(kind: str) -> dict[str, str]:
    """Return name -> ``package.module:Object`` of `kind` in installed packages."""
    import importlib.metadata  # a seventh of the start of a command, and few name a plugin

    group = f"asrtool.{PLURALS.get(kind, f'{kind}s').replace('-', '_')}"
    return {point.name: point.value for point in importlib.metadata.entry_points(group=group)}


def full_name(kind: str, name: str) -> str:
    """Return `name`, or the ``package.module:Object`` that a package registers as it."""
    return name if ":" in name or name in _entries(kind) else plugins(kind).get(name, name)


def names(kind: str) -> list[str]:
    """Return the built-in names of `kind`."""
    return list(_entries(kind))


def load(kind: str, name: str) -> Any:
    """Import the component `name`; AsrtoolError if it is unknown or does not fit."""
    if ":" not in name:
        return pkgutil.resolve_name(_entry(kind, name)[0])
    try:
        found = pkgutil.resolve_name(name)
    except Exception as error:  # a custom module may raise anything, reported in one line
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
    """Return the methods that `found` lacks or leaves abstract."""
    if kind not in PROTOCOLS:
        return [] if callable(found) else ["__call__"]
    protocol = pkgutil.resolve_name(PROTOCOLS[kind])
    wanted = sorted(protocol.__abstractmethods__)
    left = {part: [getattr(base, part, None) for base in protocol.__mro__] for part in wanted}
    return [part for part in wanted if getattr(found, part, None) in left[part]]


def _missing_base(kind: str, found: Any) -> str:
    """Return the base class that `found` should derive from and does not."""
    base = PROTOCOLS.get(kind, "")
    fits = not base or (isinstance(found, type) and issubclass(found, pkgutil.resolve_name(base)))
    return "" if fits else base


def check_returned(what: str, found: object, expected: type) -> None:
    """Raise AsrtoolError if a custom component returned another class than expected.

    Used for rare calls or the first call: steps are not checked.
    """
    if not isinstance(found, expected):
        path = f"{expected.__module__}:{expected.__qualname__}"
        hint = "return one, see docs/guide/extending.md"
        raise AsrtoolError(f"{what} returned {type(found).__name__}, expected {path}", hint)


def settings_class(kind: str, name: str) -> type[Any]:
    """Return the settings dataclass of `name`; AsrtoolError if unknown."""
    path = _entry(kind, name)[1]
    found: type[Any] = pkgutil.resolve_name(path) if path else NoSettings
    if ":" in name:
        found = getattr(load(kind, name), "Settings", NoSettings)
        if not is_dataclass(found):
            raise AsrtoolError(f"{name}: its Settings is no dataclass", "put @dataclass(frozen=True) above it")
    return found


def path_of(kind: str, name: str) -> str:
    """Return ``package.module:Object`` of `name`; AsrtoolError if it is unknown."""
    return _entry(kind, name)[0]


def _entry(kind: str, name: str) -> tuple[str, str]:
    entries = {name: (name, "")} if ":" in name else _entries(kind)
    if name not in entries:
        entries = {**entries, **dict.fromkeys(plugins(kind), ("", ""))}
        what = f"unknown {kind} {name!r}, expected one of {', '.join(entries)}"
        if why := REMOVED_COMPONENTS.get((kind, name)):
            raise AsrtoolError(what, f"{name} was removed: {why}")
        raise AsrtoolError(
            what, f"{nearest(name, entries) or 'choose one of these.'} One of your own is package.module:Name"
        )
    return entries[name]


@functools.cache
def _entries(kind: str) -> dict[str, tuple[str, str]]:
    table = TABLE[kind]
    if not isinstance(table, str):
        return table
    return {name: (path, "") for name, path in pkgutil.resolve_name(table).items()}
