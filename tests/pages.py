"""Code in the pages of the manual: its blocks, and the commands in them.

A comment above a block, which no reader sees, holds for it:
`<!-- needs: WHAT -->` says what its commands need beside asrtool, two cores and some minutes.
`<!-- tests add: SETTINGS -->` is added to each `asrtool run` of a tutorial from there on where a test types it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
COMMENT = re.compile(r"<!-- (needs|tests add): (.*?) -->", re.DOTALL)
SEPARATORS = set("();<>|&\n")
# Programs that are not on a machine with asrtool and two cores.
FOREIGN = ["arecord", "awk", "aws", "dask", "docker", "kubectl", "sherpa-onnx-offline", "sox", "srun", "torchrun"]
OF_SHELL = ["cat", "cd", "head", "make", "mkdir", "tail", "zcat"]
OURS = [*OF_SHELL, "asrtool", "bench.py", "lhotse", "pip", "python", "tensorboard"]
SHELL = re.compile(rf"^\s*(\w+=\S* )*(\S*/)?({'|'.join(FOREIGN + OURS)})( |$)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Fenced or indented code; `language` is empty for a shell and for output."""

    language: str
    text: str
    above: str  # text of the paragraph before it
    marks: dict[str, str]  # comments before it

    @property
    def is_shell(self) -> bool:
        """True if the block has commands."""
        return self.language in ("", "bash") and bool(SHELL.search(self.text))

    def commands(self) -> Iterator[list[str]]:
        """Yield the words of each command of a shell's block, without variables before it, and of output in it."""
        text = re.sub(r"(^|\s)#.*", r"\1", self.text.replace("\\\n", " "))
        lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
        words: list[str] = []
        for word in [*lexer, "\n"]:
            if not set(word) <= SEPARATORS:
                words += [word] if words or not re.match(r"\w+=", word) else []
            elif words:
                yield words
                words = []


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the code of a page, in order."""
    above, marks = "", dict[str, str]()
    for token in MarkdownIt().disable(["inline", "text_join"]).parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            marks |= COMMENT.findall(token.content)
        elif token.type == "inline":
            above = token.content
        elif token.type in ("fence", "code_block"):
            yield Block(token.info, token.content, above, marks)
            above, marks = "", {}
