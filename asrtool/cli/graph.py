"""asrtool graph: compose the decoding graph."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("lang", type=click.Path(path_type=Path))
@click.argument("arpa", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def graph(lang: Path, arpa: Path, out: Path, config: Config) -> None:
    """Compose the lexicon in the folder LANG with the n-gram ARPA into the decoding graph HLG in the folder OUT.

    H is the one of the objective that is trained. Settings: [graph], model.objective.

    \b
    Example: asrtool graph exp/lang exp/lm/G.arpa exp/graph
    """
    from asrtool.lang.graph import build_graph
    from asrtool.models.topology import load_topology

    build_graph(lang, arpa, out, load_topology(config.model.objective).transducer, config.graph.backend)
