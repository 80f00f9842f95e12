"""Commands for tokens, lexicon, n-gram and graph: tokenizer, lang, lm, graph."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import PATH, extra_option, settings_options, targets_option
from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("sentences", type=PATH)
@click.argument("out", type=PATH)
@settings_options
def tokenizer(sentences: Path, out: Path, config: Config) -> None:
    """Make the tokens for SENTENCES, one a line, in the folder OUT.

    tokenizer.unit = bpe trains a SentencePiece model of tokenizer.vocab_size pieces, 0 for as many as suit the text;
    phone takes the phones of the CMU Pronouncing Dictionary, and letter-to-sound rules for words it lacks.

    \b
    Example: asrtool tokenizer exp/manifests/train/sentences.txt exp/tokenizer --set tokenizer.vocab_size=0
    """
    from asrtool.lang.tokenizer import make_tokenizer

    make_tokenizer(sentences, out, config.tokenizer)


@click.command(cls=Command)
@click.argument("sentences", type=PATH)
@click.argument("tokenizer", type=PATH)
@click.argument("out", type=PATH)
@extra_option("words")
@settings_options
def lang(sentences: Path, tokenizer: Path, out: Path, extra: Path | None, config: Config) -> None:
    """Write the lexicon of SENTENCES and its symbol tables to OUT.

    TOKENIZER divides the words into tokens.

    \b
    Example: asrtool lang exp/manifests/train/sentences.txt exp/tokenizer exp/lang
    """
    from asrtool.lang.lexicon import build_lang
    from asrtool.lang.text import extra_files

    further = extra_files(extra, config.lm.extra_text) if extra else []
    build_lang(sentences, tokenizer, out, config.lang.max_words, further)


@click.command(cls=Command, groups={"Text": ("texts", "extra", "held_out", "words"), "N-gram": ("arpa", "order")})
@click.option(
    "--text",
    "texts",
    type=PATH,
    required=True,
    multiple=True,
    metavar="FILE...",
    help="Sentences, one a line; a folder stands for its sentences.CORPUS.txt.",
)
@click.argument("more_texts", nargs=-1, type=PATH, metavar="")
@extra_option("texts")
@click.option(
    "--heldout",
    "held_out",
    type=PATH,
    metavar="FILE",
    help="Sentences to tune the weights of several texts on, and to log the perplexity of.  [default: none]",
)
@click.option("--words", type=PATH, help="words.txt; others become <unk>.  [default: all words of the text]")
@click.option(
    "--arpa",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="OUT",
    help="ARPA file to write.",
)
@click.option("--order", type=click.IntRange(1, 6), help="Longest n-gram, in words.  [default: lm.order]")
@settings_options
def lm(
    texts: tuple[Path, ...],
    more_texts: tuple[Path, ...],
    extra: Path | None,
    held_out: Path | None,
    words: Path | None,
    arpa: Path,
    order: int | None,
    config: Config,
) -> None:
    """Estimate an n-gram with interpolated modified Kneser-Ney smoothing.

    Several texts with --heldout are one model each, mixed; without it they are one text.

    \b
    Example: asrtool lm --order 4 --text swbd.txt fisher.txt --heldout dev.txt --words exp/lang/words.txt --arpa G.arpa
    """
    from asrtool.files import writing
    from asrtool.lang.ngram.estimate import LARGE, build_lm
    from asrtool.lang.text import extra_files

    further = extra_files(extra, config.lm.extra_text) if extra else []
    settings = dataclasses.replace(config.lm, order=order or config.lm.order)
    with writing(arpa, *([arpa.parent / LARGE] if settings.large else [])):
        build_lm([*texts, *more_texts, *further], arpa, settings, words, held_out)


@click.command(cls=Command)
@click.argument("lang", type=PATH)
@click.argument("arpa", type=PATH)
@click.argument("out", type=PATH)
@targets_option
@settings_options
def graph(lang: Path, arpa: Path, out: Path, targets: Path | None, config: Config) -> None:
    """Compose lexicon LANG and n-gram ARPA into the decoding graph HLG in OUT.

    H is the one of the objective that is trained, with the decision tree of --targets where it uses one. Settings:
    [graph], model.objective.

    \b
    Example: asrtool graph exp/lang exp/lm/G.arpa exp/graph
    """
    from asrtool.lang.graph import build_graph
    from asrtool.models.objectives.decision_tree import FILE, Tree
    from asrtool.models.objectives.topology import load_topology, uses_tree

    objective = config.model.objective
    if uses_tree(objective) and targets is None:
        what = f"model.objective = {objective.name} has a decision tree, and --targets is not given"
        raise AsrtoolError(what, "name the folder of `asrtool targets` that the model was trained on")
    tree: Tree | None = None
    kept: tuple[Path, ...] = ()
    if uses_tree(objective) and targets:
        tree, kept = Tree.load(targets), (targets / FILE,)
    build_graph(lang, arpa, out, load_topology(objective, tree).transducer, config.graph.backend, kept)
