"""Phones as tokens: the CMU dictionary's ARPAbet without stress, and tags.

Writes ``pronunciations.txt``: a word and its phones, one pronunciation a line, the usual one first. It holds the
whole dictionary and further words of the training text. Letter-to-sound rules give a pronunciation, however rough, to
words that the dictionary lacks: names, coinages, words broken off.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.text import read_sentences, read_table, write_symbols
from asrtool.lang.tokenizer import ALPHABET, BPE_FILE, NO_TOKEN, PHONE_FILE, TAGS, UNK, Tokenizer

# ARPAbet as the CMU Pronouncing Dictionary has it, without stress.
PHONES: tuple[str, ...] = (
    "AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY", "JH", "K",
    "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y", "Z", "ZH",
)  # fmt: skip
TOKENS = (NO_TOKEN, UNK, *TAGS, *PHONES)
NUM_NAMED = 10  # words named in the log

Phones = tuple[str, ...]
Dictionary = Mapping[str, list[Phones]]  # the first pronunciation of a word is the usual one

SPOKEN_NOISE = "[vocalized-noise]"  # the pronunciation of a word without letters

SIBILANTS = frozenset(("S", "Z", "SH", "ZH", "CH", "JH"))
VOICELESS = frozenset(("P", "T", "K", "F", "TH", "S", "SH", "CH"))
# Endings and their sound; the phone before decides how Z and D are pronounced.
ENDINGS = {
    "'s": "Z", "s'": "Z", "s": "Z", "'": "", "'d": "D", "ed": "D", "'ll": "AH L", "'ve": "AH V", "'re": "ER",
    "n't": "AH N T", "ing": "IH NG", "in'": "AH N", "er": "ER", "ly": "L IY", "ish": "IH SH", "able": "AH B AH L",
    "ness": "N AH S", "less": "L AH S",
}  # fmt: skip

LETTER_NAMES = {
    "a": "EY", "b": "B IY", "c": "S IY", "d": "D IY", "e": "IY", "f": "EH F", "g": "JH IY", "h": "EY CH", "i": "AY",
    "j": "JH EY", "k": "K EY", "l": "EH L", "m": "EH M", "n": "EH N", "o": "OW", "p": "P IY", "q": "K Y UW",
    "r": "AA R", "s": "EH S", "t": "T IY", "u": "Y UW", "v": "V IY", "w": "D AH B AH L Y UW", "x": "EH K S",
    "y": "W AY", "z": "Z IY",
}  # fmt: skip

# Letters and their phones, the first row that matches wins. In the patterns @ is a silent e: one consonant and e,
# then perhaps an ending. A word broken off ends in -, so rules for its end ($) do not apply.
RULES = r"""
^aa AA ; augh AO ; au|aw AO ; air|aer EH R ; are$ EH R ; ai|ay EY ; a$ AH ; (?<=w)ar AO R ; (?<=.)ard$ ER D
(?<=...)ar$ ER ; arr(?=[aeiou]) EH R ; ar(?=[eiy]) EH R ; ar AA R ; al(?=k) AO ; (?<=..)ally$ AH L IY ; all AO L
al(?=[dt]) AO L ; (?<=.[^aeiou])al$ AH L ; (?<=..)als$ AH L Z ; (?<=[aeiouy][^aeiou])age$ IH JH
(?<=[^aeiou][^aeiou])ant$ AH N T ; (?<=..)ance$ AH N S ; (?<=..)able$ AH B AH L ; (?<=[^aeiou])ably$ AH B L IY
(?<=...)man$ M AH N
(?<=..[^aeiou])an$ AH N ; (?<=..[^aeiou])ans$ AH N Z
(?<=..)ia$ IY AH
ated$ EY T AH D ; ate(?=s?$) EY T ; a(?=ti[ov]) EY ; a(?=cious) EY ; a@ EY ; (?<=[wq])a(?=[^aeioukgxf]) AA
(?<=qu)a AA ; ae EY ; ao AW ; a(?=[^aeiou][aeiou]$) AA ; a AE
bb B ; (?<=m)b(?=s?$) ; bt$ T ; ^bi(?=[aeiou]) B AY ; b B
^chr K R ; ch(?=[lr]) K ; ch CH ; cc(?=[eiy]) K S ; ck|cc|cqu? K ; ci(?=[aou]) SH ; c(?=[eiy]) S ; cz CH
^com(?=[bmp]) K AH M ; ^con(?=[^aeiou]) K AH N ; c K
dg(?=e) JH ; dd D ; dj JH ; dt T ; d D
eau OW ; eigh EY ; ear(?=[ltn]) ER ; ear IH R ; eer IH R ; ere$ IH R ; ea(?=d$|th|lth|ns|sur) EH ; ee|ea IY
ei(?=[nl]) AY ; ei IY ; ^eu Y UW ; eu UW ; ew UW ; ey$ IY ; eys$ IY Z ; ey EY ; eo IY OW ; (?<=..)er(?=s?$) ER
err(?=[aeiouy]) EH R ; er(?=[aeiy]) ER ; er ER ; (?<=..)el$ AH L ; (?<=..)els$ AH L Z ; (?<=..)en(?=s?$) AH N
(?<=..)ent AH N T ; (?<=..)ence$ AH N S ; (?<=[td])ed$ AH D ; (?<=[pkfshcx])ed$ T ; (?<=[^aeiou])ed$ D
(?<=[scxzg])es$ AH Z ; (?<=sh)es$ AH Z ; (?<=ch)es$ AH Z ; (?<=[^aeiou])es$ Z ; (?<=..)ess$ AH S
(?<=..)est$ AH S T ; (?<=..)et$ AH T ; ^e(?=[xmnls][^aeiou]) EH
^re(?=[^aeiou][aeiou]) R IY
(?<=[aeiouy][^aeiou])e(?=ly$|ments?$|ful|less) ; (?<=[aeiouy].[^aeiou])e(?=ly$|ments?$|ful|less)
(?<=[^aeiou])le$ AH L ; (?<=[^aeiou])les$ AH L Z
(?<=[aeiouylr][^aeiouy])e$ ; (?<=[^aeiou][^aeiou])e$ ; (?<=.[aeiouy])e$ ; e$ IY ; e@ IY ; e(?=[^aeiouy][aiou]) EH
e EH
ff F ; f F
^gh G ; ght T ; gh ; ^gn N ; gn$ N ; gg G ; ^ge(?=[ts]) G EH ; ^gi(?=[rvl]) G IH ; g(?=[eiy]) JH ; gu(?=[eiy]) G
g G
^h HH ; (?<=[aeiou])h(?=[^aeiou]|$) ; h HH
igh AY ; ier$ IY ER ; iers$ IY ER Z ; ies$ IY Z ; ied$ IY D ; ie(?=[ltrvfzgn]) IY ; ie$ IY ; ie IY ; io$ IY OW
ious IY AH S ; (?<=[^aeiou])ion Y AH N ; ind$ AY N D ; ild$ AY L D ; irr IH R ; ir(?=e) AY ; ir(?=[aiou]) IH R
ir ER ; ing IH NG ; ique IY K ; (?<=..)ine$ IY N ; (?<=..)ice$ AH S ; (?<=..)ive$ IH V ; (?<=..)ite$ AY T
ize(?=[ds]?$) AY Z ; i@ AY ; ^i(?=-) AY ; i$ IY ; i(?=[ao]) IY ; i IH
j JH
^kn N ; kk K ; kh K ; k K
ll L ; l L
mm M ; ^mc M AH K ; m M
ngue$ NG ; (?<=[ae])ng(?=er) N JH ; ng(?=[aeiouly]) NG G ; ng(?=th|s|$) NG ; ng NG ; n(?=[kxq]) NG
n(?=c[^eiyh]|c$) NG ; nn N ; n N
oa OW ; oor AO R ; ook UH K ; ood UH D ; oo UW ; ough(?=t) AO ; ough OW ; ould UH D ; ous$ AH S ; our AO R
ou(?=p) UW ; ou AW ; ow(?=[nls]?$|er|e$) OW ; ow AW ; oi|oy OY ; oe(?=s?$) OW ; old OW L D ; oll(?=s?$) OW L
olk OW K ; ost OW S T ; ^one W AH N ; (?<=[^aeiou])ory$ ER IY ; (?<=..)or(?=s?$) ER ; (?<=w)or ER ; or AO R
ology AA L AH JH IY ; (?<=..)on(?=s?$) AH N
(?<=..)som S AH M
ome$ AH M ; o@ OW ; o(?=s?$) OW ; o(?=[^aeiouyw][ioau]) OW ; o AA
ph F ; ^ps S ; pp P ; ^pn N ; p P
qu(?=e$) K ; qu K W ; q K
rr R ; rh R ; r R
sch SH ; sh SH ; ssion SH AH N ; sion(?=s?$) ZH AH N ; (?<=[^aeiou])sion SH AH N ; (?<=[aeiou])s(?=ure|ual) ZH
sc(?=[eiy]) S ; ss S ; (?<=[aeiou])s(?=m$) Z ; (?<=[aeiou])s(?=[aeiouy][a-z]) Z ; (?<=[aeiou])se$ Z ; ^s S
(?<=[bdglmnrvw])s$ Z ; (?<=[aeo])s$ Z ; st(?=le|en) S ; s S
^th(?=-) DH ; th(?=er) DH ; thm$ DH AH M ; th TH ; tion SH AH N ; tious SH AH S ; ti(?=[ae]) SH ; ture(?=s?$) CH ER
tu(?=[ao]) CH UW ; tch CH ; tt T ; tz T S ; t T
^un AH N ; ^u(?=[^aeiou][aeiou]) Y UW ; uy AY ; ui UW ; ue(?=s?$) UW ; ur(?=[aeiou]) UH R ; urr ER ; ur ER
(?<=..)um$ AH M ; (?<=..)us$ AH S ; ull UH L ; (?<=[rljs])u@ UW ; u@ Y UW ; (?<=[bcfhmpv])u(?=[^aeiou][aiou]) Y UW
u(?=[^aeiou][aiou]) UW ; ua W AA ; u$ UW ; (?<=g)u(?=[aeio]) W ; u AH
v V
^wh(?=o) HH ; wh W ; ^wr R ; w(?=$|[^aeiouhyr-]) ; w W
^x Z ; x K S
^y Y ; y@ AY ; (?<=^[^aeiou])y(?=$|-) AY ; (?<=[aeiou])y Y ; y$ IY ; ys$ IY Z ; ying$ IY IH NG
(?<=[^aeiou])y(?=[^aeiou][aeiou]) AY ; y IH
zz Z ; zh ZH ; z Z
-
"""


def parse_rules(rules: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return pattern and phones of each rule, in order."""
    silent_e = "(?=[^aeiouywx]e(?:s|d|ly|ful|less|ments?)?$)"
    rows = [rule.split() for rule in rules.replace("\n", ";").split(";") if rule.strip()]
    return [(row[0].replace("@", silent_e), tuple(row[1:])) for row in rows]


_RULES = parse_rules(RULES)
_PATTERN = re.compile("|".join(f"({pattern})" for pattern, _ in _RULES))  # a group for each rule


def sound_letters(letters: str) -> tuple[str, ...]:
    """Return the phones of a word of a-z and - by rules; maybe none."""
    phones: list[str] = []
    position = 0
    while position < len(letters):
        match = _PATTERN.match(letters, position)
        assert match is not None, f"no rule for {letters[position:]!r}"
        assert match.lastindex is not None, match
        phones += _RULES[match.lastindex - 1][1]
        position = match.end()
    return tuple(phones)


def read_cmudict() -> dict[str, list[Phones]]:
    """Read the CMU Pronouncing Dictionary: lower-case word -> pronunciations.

    It has no stress here. The package ``pocketsphinx`` brings it. Raises AsrtoolError if that is not installed.
    """
    try:
        package = importlib.metadata.distribution("pocketsphinx")
    except importlib.metadata.PackageNotFoundError as error:
        what = "tokenizer.unit = phone needs the package pocketsphinx, which is not installed"
        raise AsrtoolError(what, "pip install 'asrtool[phones]'") from error
    path = package.locate_file("pocketsphinx/model/en-us/cmudict-en-us.dict")
    dictionary: dict[str, list[Phones]] = {}
    for line in Path(str(path)).read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        dictionary.setdefault(re.sub(r"\(\d+\)$", "", word), []).append(tuple(phones))
    return dictionary


def pronounce(word: str, dictionary: Dictionary) -> list[Phones]:
    """Return the pronunciations of a word of a-z, ' and -, at least one.

    They come from `dictionary`, else from the word's parts, its stem, or letter-to-sound rules.
    """
    if word in dictionary:
        return dictionary[word]
    if word.startswith("-") or word.endswith("-"):  # broken off: whole words of these letters are read otherwise
        return [sound_letters(word.replace("'", "")) or _name_letters(word)]
    parts = [part for part in word.split("-") if part.strip("'")]
    if "-" in word and parts:
        return [tuple(itertools.chain.from_iterable(pronounce(part, dictionary)[0] for part in parts))]
    return _inflect(word, dictionary) or [_read(word)]


def _inflect(word: str, dictionary: Dictionary) -> list[Phones]:
    """Return the pronunciations of a dictionary word with one of ENDINGS."""
    for ending, sound in ENDINGS.items():
        base = word.removesuffix(ending)
        stems = [base]
        if ending[0] in "aei":  # hop-e-d, hop-p-ed
            stems += [base + "e", base[:-1] if base[-1:] == base[-2:-1] else base]
        for stem in stems:
            if base != word and len(stem) > 1 and stem in dictionary:
                return [(*spoken, *_sound_ending(sound, spoken[-1])) for spoken in dictionary[stem]]
    return []


def _sound_ending(sound: str, before: str) -> list[str]:
    """Return the phones of an ending after `before`: cats, dogs, horses."""
    if sound == "Z":
        return ["AH", "Z"] if before in SIBILANTS else ["S"] if before in VOICELESS else ["Z"]
    if sound == "D":
        return ["AH", "D"] if before in ("T", "D") else ["T"] if before in VOICELESS else ["D"]
    return sound.split()


def _read(word: str) -> Phones:
    """Return the phones of letters and ' by rules; spelled if without a vowel."""
    letters = word.replace("'", "")
    return (sound_letters(letters) if re.search("[aeiouy]", letters) else ()) or _name_letters(letters)


def _name_letters(word: str) -> Phones:
    """Return the phones of the letters' names in `word`."""
    return tuple(" ".join(LETTER_NAMES.get(letter, "") for letter in word).split()) or (SPOKEN_NOISE,)


class PhoneTokenizer(Tokenizer):
    """Words to phones by dictionary, else by rules; a tag is one token."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(TOKENS, " ".join(TOKENS).encode())  # for any dictionary
        self._dictionary = dictionary
        self._ids = {token: number for number, token in enumerate(TOKENS)}

    @classmethod
    def read(cls, path: Path) -> PhoneTokenizer:
        """Read ``pronunciations.txt``; AsrtoolError naming a malformed line."""
        again = "fix the line, or run `asrtool tokenizer` again"
        known = {*PHONES, *TAGS}
        dictionary: dict[str, list[Phones]] = {}
        for number, fields in read_table(path, "tokenizer"):
            if len(fields) < 2:
                raise AsrtoolError(f"{path}:{number}: {' '.join(fields)!r}, expected a word and its phones", again)
            word, *phones = fields
            if not known.issuperset(phones):
                unknown = next(phone for phone in phones if phone not in known)
                raise AsrtoolError(f"{path}:{number}: {unknown} is no phone, known are {' '.join(PHONES)}", again)
            pronunciations = dictionary.setdefault(word, [])
            if tuple(phones) not in pronunciations:  # else a repeated line would be in the lexicon twice
                pronunciations.append(tuple(phones))
        if not dictionary:
            raise AsrtoolError(f"{path}: empty, expected a word and its phones a line", "run `asrtool tokenizer` again")
        return cls(dictionary)

    def encode(self, text: str) -> list[int]:
        return [self._ids[phone] for word in text.split() for phone in self.tokenizations(word)[0]]

    def tokenizations(self, word: str) -> list[Phones]:
        if word in TAGS:
            return [(word,)]
        unknown = sorted(set(word) - set(ALPHABET))
        if unknown:
            raise AsrtoolError(
                f"{word!r}: {', '.join(map(repr, unknown))} outside the alphabet of letters, ' and -",
                "normalise the text",
            )
        return pronounce(word, self._dictionary)


def write_phones(sentences: Path, out: Path) -> None:
    """Write phones and pronunciations for the words of `sentences` to `out`.

    Raises AsrtoolError if the text cannot be read, a word has characters outside normalised text, or the package with
    the dictionary is missing.
    """
    dictionary = read_cmudict()
    tokenizer = PhoneTokenizer(dictionary)
    words = {word for sentence in read_sentences(sentences) for word in sentence}
    lacking = sorted(words - dictionary.keys() - set(TAGS))
    try:
        guessed = {word: tokenizer.tokenizations(word) for word in lacking}
    except AsrtoolError as error:
        raise AsrtoolError(f"{sentences}: {error.what}", error.hint) from error
    named = " ".join(lacking[:NUM_NAMED]) + (" ..." if len(lacking) > NUM_NAMED else "")
    logging.info("%s: %d words, %d pronounced by rules: %s", sentences, len(words), len(lacking), named)
    with write_folder(out, BPE_FILE, PHONE_FILE) as temporary:
        write_symbols(temporary / "tokens.txt", TOKENS)
        (temporary / PHONE_FILE).write_text("".join(_lines({**dictionary, **guessed})), encoding="utf-8")


def _lines(dictionary: Dictionary) -> Iterable[str]:
    return (f"{word} {' '.join(phones)}\n" for word in sorted(dictionary) for phones in dictionary[word])
