"""Search one set's posteriors by a CTC prefix beam with its word n-gram.

    beam.py posteriors WORK OUT          # of dev, by asrtool: OUT/posteriors.npz and OUT/texts.json
    beam.py asrtool|flashlight|pyctcdecode WORK OUT BEAM

All have the n-gram of WORK with LM_WEIGHT, and the same bounds on the candidates of a frame. Prints CPU seconds of the
search and the errors; loading is not counted.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LM_WEIGHT, MAX_TOKENS, MIN_PROB = 0.5, 12, 1e-4
BLANK = 0
Search = Callable[[np.ndarray], list[str]]


def main(what: str, work: Path, out: Path, *beam: str) -> None:
    if what == "posteriors":
        write_posteriors(work, out)
        return
    with np.load(out / "posteriors.npz") as file:
        posteriors = {name: np.ascontiguousarray(file[name], np.float32) for name in file.files}
    search = SEARCHES[what](work, int(beam[0]))
    begin = time.process_time()
    found = {name: search(log_probs_TV) for name, log_probs_TV in posteriors.items()}
    cpu_s = time.process_time() - begin
    texts = json.loads((out / "texts.json").read_text(encoding="utf-8"))
    errors = sum(distance(spoken(texts[name].split()), spoken(words)) for name, words in found.items())
    num_words = sum(len(spoken(text.split())) for text in texts.values())
    print(json.dumps({"cpu_s": cpu_s, "result": f"{errors} errors of {num_words} words"}))


def write_posteriors(work: Path, out: Path) -> None:
    """Write log posteriors (T, V) and texts of the utterances of dev."""
    from asrtool.decode.acoustic_model import load_acoustic_model
    from asrtool.decode.forward import compute_scores, open_features

    acoustic = load_acoustic_model(work / "average" / "model.pt")
    scored = list(compute_scores(acoustic.model, open_features(work / "features" / "dev", acoustic), 20_000))
    arrays: dict[str, Any] = {each.utterance.id: each.scores_TV for each in scored}
    np.savez(out / "posteriors.npz", **arrays)
    texts = {each.utterance.id: each.utterance.transcript for each in scored}
    (out / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def open_asrtool(work: Path, beam: int) -> Search:
    """Method beam, times of words included."""
    from asrtool.decode.acoustic_model import load_acoustic_model
    from asrtool.decode.parameters import DecodingParameters
    from asrtool.decode.resources import Resources
    from asrtool.decode.search.method import make_methods
    from asrtool.settings.config import Config
    from asrtool.settings.decode import Decode
    from asrtool.settings.schema import SEARCHED, Choice

    config = Config(decode=Decode(methods=(Choice.of("search", "beam"),)))
    acoustic = load_acoustic_model(work / "average" / "model.pt")
    resources = Resources(acoustic, {folder: work / folder for folder in SEARCHED}, config)
    parameters = DecodingParameters.of("beam", lm_weight=LM_WEIGHT, word_penalty=0.0, beam=float(beam))
    method = make_methods(config.decode, resources)["beam"]
    method.open({name: [value] for name, value in parameters.items})
    method.prepare([parameters])
    return lambda log_probs_TV: [word.text for word in method.search(log_probs_TV, parameters).words]


def open_flashlight(work: Path, beam: int) -> Search:
    """Open LexiconDecoder with sums over paths and KenLM; its logarithms are decimal."""
    from flashlight.lib.text.decoder import CriterionType, LexiconDecoder, LexiconDecoderOptions, SmearingMode, Trie
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    number = {token: i for i, token in enumerate(read_tokens(work))}
    spellings = [(word, [number[token] for token in tokens]) for word, *tokens in read_lexicon(work)]
    words = Dictionary([word for word, _ in spellings])
    words.add_entry("<unk>")
    lm = KenLM(str(work / "lm" / "G.arpa"), words)
    trie, start = Trie(len(number), BLANK), lm.start(False)
    for word, tokens in spellings:
        index = words.get_index(word)
        trie.insert(tokens, index, lm.score(start, index)[1])
    trie.smear(SmearingMode.MAX)
    options = LexiconDecoderOptions(
        beam_size=beam,
        beam_size_token=MAX_TOKENS,
        beam_threshold=-math.log(MIN_PROB) * 5,
        lm_weight=LM_WEIGHT * math.log(10),
        word_score=0.0,
        unk_score=-math.inf,
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconDecoder(options, trie, lm, BLANK, BLANK, words.get_index("<unk>"), [], False)

    def search(log_probs_TV: np.ndarray) -> list[str]:
        best = decoder.decode(log_probs_TV.ctypes.data, *log_probs_TV.shape)[0]
        return [words.get_entry(index) for index in best.words if index >= 0]

    return search


def open_pyctcdecode(work: Path, beam: int) -> Search:
    """Open its beam search in Python, with defaults for bounds that asrtool lacks."""
    from pyctcdecode import build_ctcdecoder

    tokens = read_tokens(work)
    tokens[BLANK] = ""
    words = [word for word, *_ in read_lexicon(work)]
    decoder = build_ctcdecoder(tokens, str(work / "lm" / "G.arpa"), words, alpha=LM_WEIGHT, beta=0.0)

    def search(log_probs_TV: np.ndarray) -> list[str]:
        text: str = decoder.decode(log_probs_TV, beam_width=beam, token_min_logp=math.log(MIN_PROB))
        return text.split()

    return search


def read_tokens(work: Path) -> list[str]:
    """Return the tokens by the model's outputs, without symbols of graphs."""
    lines = (work / "lang" / "tokens.txt").read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines[1:] if not line.startswith("#")]


def read_lexicon(work: Path) -> list[list[str]]:
    """Words with their tokens."""
    return [line.split() for line in (work / "lang" / "lexicon.txt").read_text(encoding="utf-8").splitlines()]


def spoken(words: list[str]) -> list[str]:
    """Remove tags such as [noise]."""
    return [word for word in words if not word.startswith(("[", "<"))]


def distance(reference: list[str], found: list[str]) -> int:
    """Fewest substitutions, deletions and insertions."""
    row = list(range(len(found) + 1))
    for i, word in enumerate(reference, 1):
        before, row = row, [i]
        for j, other in enumerate(found, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (word != other)))
    return row[-1]


SEARCHES = {"asrtool": open_asrtool, "flashlight": open_flashlight, "pyctcdecode": open_pyctcdecode}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
