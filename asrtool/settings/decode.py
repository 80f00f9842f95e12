"""Settings of decoding, and of each search method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from asrtool.settings import registry
from asrtool.settings.schema import Choice, at_least, between, check_executor, choices, one_of, positive

if TYPE_CHECKING:
    from asrtool.settings.config import Config

# Least and greatest. Posteriors are divided by the language-model weight, which must leave them their accuracy.
BEAM_SIZES, LM_WEIGHTS, NNLM_WEIGHTS, WORD_PENALTIES = (1, 10_000), (0.001, 1000), (0, 100), (-20, 20)
CTC_WEIGHTS = (0, 1)
MAX_ACTIVE = 2**31 - 1  # largest int32, the type of both back ends


@dataclass(frozen=True)
class Decode:
    """Search."""

    no_part: ClassVar[tuple[str, ...]] = ("num_jobs", "executor")  # keys that do not change the outputs of a stage

    methods: tuple[Choice, ...] = choices("search", "greedy", "beam", "graph")  # search methods, in the order reported
    batch_s: float = 200.0  # seconds of speech in an acoustic batch
    num_jobs: int = 0  # processes; 0 is one per core
    executor: str = "local"  # decoding by local processes, or dask:ADDRESS, the workers of a Dask scheduler

    def __post_init__(self) -> None:
        if not self.methods:
            raise ValueError("decode.methods is empty, expected at least one search method")
        positive("decode", self, "batch_s")
        between("decode.num_jobs", self.num_jobs, 0, 1024)
        check_executor("decode.executor", self.executor)

    def check(self, config: Config) -> None:
        """Check that methods suit objective and tokens, and every input is used."""
        check_searches(self, config.model.objective, config.tokenizer.unit, suiting_methods(config))
        used = {switch for method in self.methods for switch in _switches(method)}
        for method in _known():
            for switch in _switches(method):
                if _is_on(switch, config) and switch not in used:
                    found = f"{switch} is true but decode.methods has no {method.name}, which uses it"
                    fault = _fault(method, config.model.objective, config.tokenizer.unit)
                    raise ValueError(
                        f"{found} and {fault}: set it to false" if fault else f"{found}: add {method.name}"
                    )


def check_searches(decode: Decode, objective: Choice, unit: str = "bpe", suiting: Sequence[str] = ()) -> None:
    """Raise ValueError for a method that does not fit `objective` or `unit`.

    The message names `suiting` methods.
    """
    suiting = suiting or [other.name for other in _known() if not _fault(other, objective, unit)]
    for method in decode.methods:
        if fault := _fault(method, objective, unit):
            advice = f"use --set decode.methods={','.join(suiting)}"
            if not suiting:
                fault += f", and no other method suits tokenizer.unit = {unit}"
                advice = "use --set tokenizer.unit=bpe" if unit != "bpe" else "name one of your own"
            raise ValueError(f"decode.methods names {method.name}, which {fault}: {advice}")


def suiting_methods(config: Config) -> list[str]:
    """Return the methods for objective and tokens; switched ones if switched on."""
    suiting = [each for each in _known() if not _fault(each, config.model.objective, config.tokenizer.unit)]
    wanted = [(each, [_is_on(switch, config) for switch in _switches(each)]) for each in suiting]
    return [method.name for method, switches in wanted if any(switches) or not switches]


def settings_of(decode: Decode, method: str) -> Any:
    """Return the settings of `method`; None if it is not chosen."""
    return next((chosen.settings for chosen in decode.methods if chosen.name == method), None)


def _known() -> list[Choice]:
    """Return the built-in search methods."""
    return [Choice.of("search", name) for name in registry.names("search")]


def _fault(method: Choice, objective: Choice, unit: str) -> str:
    """Return why `method` does not suit `objective` and `unit`, or ''."""
    searches: Sequence[str] | None = getattr(objective.settings, "searches", None)
    searches = getattr(objective.load(), "searches", ()) if searches is None else searches
    if objective.name not in getattr(method.settings, "objectives", ()) and method.name not in searches:
        return f"cannot search the scores of model.objective = {objective.name}"
    if unit == "phone" and getattr(method.settings, "needs_words", False):
        return "needs tokens that show where a word begins, as those of tokenizer.unit = phone do not"
    return ""


def _switches(method: Choice) -> Sequence[str]:
    """Return the settings that turn on the inputs of `method` alone."""
    return getattr(method.settings, "uses", ())


def _is_on(switch: str, config: Config) -> bool:
    section, _, key = switch.partition(".")
    return bool(getattr(getattr(config, section), key))


@dataclass(frozen=True)
class Greedy:
    """The most probable token of each row; no language model."""

    needs: ClassVar[tuple[str, ...]] = ()
    needs_words: ClassVar[bool] = True  # tokens have to show where a word begins


@dataclass(frozen=True)
class Beam:
    """Prefix beam search with a word n-gram.

    `asrtool tune` tries all values of each list on dev.
    """

    needs: ClassVar[tuple[str, ...]] = ("lang", "lm")  # stages whose outputs it reads
    needs_words: ClassVar[bool] = True
    table: ClassVar[str] = "decode.beam"  # of these settings
    objectives: ClassVar[tuple[str, ...]] = ("ctc",)  # it sums over CTC paths

    lm_weights: tuple[float, ...] = (0.3, 0.5, 0.8, 1.1)  # weights of the language model
    word_penalties: tuple[float, ...] = (-0.5, 0.0, 0.5)  # of each word, in the scale of the language model
    beam_sizes: tuple[int, ...] = (16, 32)  # hypotheses kept after each row

    def __post_init__(self) -> None:
        _check_weights(self.table, self.lm_weights, self.word_penalties)
        _in_range(f"{self.table}.beam_sizes", self.beam_sizes, BEAM_SIZES)


@dataclass(frozen=True)
class TransducerGreedy(Greedy):
    """Greedy search of a transducer: the most probable token until the blank."""


@dataclass(frozen=True)
class TransducerBeam(Beam):
    """Beam search of a transducer with a word n-gram.

    `asrtool tune` tries all values of each list on dev.
    """

    table: ClassVar[str] = "decode.transducer-beam"
    objectives: ClassVar[tuple[str, ...]] = ("transducer",)

    lm_weights: tuple[float, ...] = (0.1, 0.2, 0.4)  # weights of the language model
    beam_sizes: tuple[int, ...] = (4, 8)  # hypotheses kept after each row


@dataclass(frozen=True)
class AttentionGreedy(Greedy):
    """Greedy search of an attention decoder: the most probable token until the end."""


@dataclass(frozen=True)
class AttentionBeam(Beam):
    """Beam search of an attention decoder with CTC and a word n-gram.

    `asrtool tune` tries all values on dev.
    """

    table: ClassVar[str] = "decode.attention-beam"
    objectives: ClassVar[tuple[str, ...]] = ("attention",)

    lm_weights: tuple[float, ...] = (0.1, 0.2, 0.4)  # weights of the language model
    beam_sizes: tuple[int, ...] = (4, 8)  # hypotheses kept after each token
    ctc_weights: tuple[float, ...] = (0.0, 0.3)  # of CTC, the rest is of the decoder; 0 where the model has no CTC

    def __post_init__(self) -> None:
        super().__post_init__()
        _in_range(f"{self.table}.ctc_weights", self.ctc_weights, CTC_WEIGHTS)


@dataclass(frozen=True)
class Graph:
    """Search of the decoding graph.

    `asrtool tune` tries all values of each list on dev.
    """

    needs: ClassVar[tuple[str, ...]] = ("lang", "lm", "graph")  # stages whose outputs it reads

    backend: str = "kaldi-decoder"  # or k2, see graph.backend
    lm_weights: tuple[float, ...] = (0.3, 0.5, 0.8, 1.1)  # weights of the language model
    word_penalties: tuple[float, ...] = (-0.5, 0.0, 0.5)  # of each word, in the scale of the language model
    beams: tuple[float, ...] = (10.0, 14.0)  # log-probability range, in the scale of the graph
    max_active: int = 3000  # states

    def __post_init__(self) -> None:
        one_of("decode.graph.backend", self.backend, ("kaldi-decoder", "k2"))
        _check_weights("decode.graph", self.lm_weights, self.word_penalties)
        if not self.beams or min(self.beams) <= 0:
            raise ValueError(f"decode.graph.beams is {self.beams}, expected positive numbers, one or several")
        at_least(1, "decode.graph", self, "max_active")
        if self.max_active > MAX_ACTIVE:
            raise ValueError(f"decode.graph.max_active is {self.max_active}, expected {MAX_ACTIVE} or less")


@dataclass(frozen=True)
class Rescore:
    """Lattices of the graph search, ranked by other language models.

    `asrtool tune` tries all combinations.
    """

    needs: ClassVar[tuple[str, ...]] = ("lang", "lm", "graph")  # stages whose outputs it reads
    uses: ClassVar[tuple[str, ...]] = ("lm.large", "nnlm.enabled")  # switches of inputs that only this method uses

    lm_weights: tuple[float, ...] = (0.3, 0.5, 0.8, 1.1)  # weights of the n-gram
    word_penalties: tuple[float, ...] = (-0.5, 0.0, 0.5)  # of each word, in the scale of the language model
    nnlm_weights: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6)  # weights of the neural language model
    lattice_beam: float = 10.0  # what lattices keep below the best path, in the scale of the graph
    num_paths: int = 100  # sentences of an n-best list

    def __post_init__(self) -> None:
        _check_weights("decode.rescore", self.lm_weights, self.word_penalties)
        _in_range("decode.rescore.nnlm_weights", self.nnlm_weights, NNLM_WEIGHTS)
        positive("decode.rescore", self, "lattice_beam")
        at_least(1, "decode.rescore", self, "num_paths")

    def check(self, config: Config) -> None:
        """Check that the graph search, which makes the lattices, is chosen."""
        if "graph" not in [method.name for method in config.decode.methods]:
            raise ValueError("decode.methods has rescore without graph, whose lattices it rescores: add graph")


def _check_weights(table: str, lm_weights: Sequence[float], word_penalties: Sequence[float]) -> None:
    _in_range(f"{table}.lm_weights", lm_weights, LM_WEIGHTS)
    _in_range(f"{table}.word_penalties", word_penalties, WORD_PENALTIES)


def _in_range(name: str, values: Sequence[float], limits: tuple[float, float]) -> None:
    if not values:
        raise ValueError(f"{name} is empty, expected one number to use or several to try")
    for value in values:
        between(name, value, *limits)
