"""asrtool graph: compose the decoding graph."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options, targets_option
from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("lang", type=click.Path(path_type=Path))
@click.argument("arpa", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@targets_option
@settings_options
def graph(lang: Path, arpa: Path, out: Path, targets: Path | None, config: Config) -> None:
    """Compose the lexicon in the folder LANG with the n-gram ARPA into the decoding graph HLG in the folder OUT.

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
