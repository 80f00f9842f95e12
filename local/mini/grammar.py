"""Sentences of a small grammar, and marks of transcribers in them.

Sentences are tuples of lower-case words as transcribed (``gonna``, ``uh-huh``, ``t._v.``). They become tokens, which
each corpus layout writes in its own mark-up: partial, laughed, coined and uncertain words, asides.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np

from asrtool.local.mini.telephone import ALONE, IN_SPEECH

# Each name with its options; a number before an option is its weight.
GRAMMAR = """
greeting: hi my name is <name> | hello this is <name> | hello my name is <name> how are you doing |
  hi this is <name> i am calling about <topic>
backchannel: uh-huh | yeah | right | mhm | oh really | oh yeah | okay | i see | that's right | exactly
reply: yeah <statement> | i think so | yes <statement> | no <statement> | oh really <question> |
  well <statement> | right <statement> | okay <question> | that's <adjective> | i see <question> |
  i don't know <statement> | exactly <statement>
turn: 2 <statement> | 2 <opener> <statement> | <statement> <joint> <statement> | <clause> because <clause> |
  <opener> <question>
name: mary | john | susan
opener: well | so | you know | i mean | i guess | but | and | 2 <hesitation>
hesitation: uh | um
joint: and | but | so | and then | <hesitation> and
statement: 3 <clause> | <clause> <when> | i think <clause> | i guess <clause> | 3 <subject> <past> |
  <subject> <past> <when> | <subject> used to <verb> | we're gonna <verb> <often> | i like to <verb> <often> |
  <person> likes to <verb> | <person> wants to <verb> | i don't <verb> very often <place> |
  we've lived <place> for <number> years | the <object> costs about <number> hundred dollars |
  it takes <number> hours to get to <where> | i've got <number> <plural> | <person> has <number> <plural> |
  2 there are <quantity> <plural> <place>
clause: <thing> is <degree> <adjective> | <thing> was <degree> <adjective> | it's <degree> <adjective> <place> |
  it was <degree> <adjective> | we can't <verb> | we have to <verb> | you can <verb> <place> | <subject> <past> |
  i'm interested in <topic> | <person> works <place>
question: do you <verb> <often> | do you like <topic> | what do you think about <topic> |
  what kind of <object> do you have | how many <plural> do you have | did you <verb> <when> |
  is it <adjective> <place> | where did you buy the <object>
subject: i | we | they | he | she | 2 <person>
person: 2 my <relative> | our <relative> | somebody
relative: wife | husband | brother | sister | mother | father | friend | neighbor
past: 2 went to <where> | 2 bought a <quality> <object> | 2 watched the <show> | 2 cooked <food> |
  2 played <game> | 2 talked about <topic> | 2 worked on the <object> | 2 stayed home
verb: 2 go to <where> | buy a <quality> <object> | watch the <show> | watch t._v. | 2 cook <food> |
  2 play <game> | talk about <topic> | work on the <object> | read the newspaper | listen to the radio |
  talk on the phone
where: the lake | the beach | the mountains | the park | the city | school
place: at home | at school | here | in texas | in the city | by the lake | in the mountains
when: yesterday | 2 last <period> | today | on <day>
often: 2 every <period> | on <day> | tonight
period: week | summer | winter | year
day: saturday | sunday
thing: the weather | the <object> | the <quality> <object> | the <show> | the <food> | our <relative> | <topic>
degree: really | pretty | very | so | 2 a little | not | probably
adjective: nice | good | cheap | cold | hot | hard | fun | terrible | beautiful
quality: new | old | big
object: car | truck | boat | house | computer | kitchen | garden
plural: kids | dogs | cats | cars | horses | people
quantity: many | a lot of
show: movie | game
food: chicken | fish | pizza
game: baseball | golf | football
topic: politics | music | history | the weather | money | taxes | the government | computers
number: two | three | four | five | ten
"""


def _read_rules(grammar: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for line in grammar.replace("|\n", "|").strip().splitlines():
        name, _, options = line.partition(":")
        weighted = [re.fullmatch(r"(\d*) *(.*)", option.strip()) for option in options.split("|")]
        yield name, tuple(match[2] for match in weighted if match for _ in range(int(match[1] or 1)))


RULES = dict(_read_rules(GRAMMAR))
_SLOT = re.compile(r"<(\w+)>")


def draw_sentence(name: str, rng: np.random.Generator) -> tuple[str, ...]:
    """Draw a sentence for a `name` of the grammar; each ``<slot>`` is drawn in turn."""
    text = f"<{name}>"
    while slot := _SLOT.search(text):
        options = RULES[slot[1]]
        text = text[: slot.start()] + options[int(rng.integers(len(options)))] + text[slot.end() :]
    return tuple(text.split())


@dataclass(frozen=True)
class Token:
    """A word or a sound.

    `kind` is word, partial (only its start is spoken), tail (only its end), mispronounced, laughed, coined, uncertain,
    aside, or one of the sounds, whose `word` is empty. `pronounced` spells its pronunciation if that is not `word`.
    """

    word: str
    kind: str = "word"
    pronounced: str = ""

    @property
    def is_sound(self) -> bool:
        return self.kind in IN_SPEECH or self.kind in ALONE


PARTIALS = {  # word: (spoken part, its spelling for espeak-ng)
    "the": ("th", "thuh"),
    "think": ("th", "thih"),
    "went": ("we", "weh"),
    "because": ("be", "bih"),
    "really": ("re", "ree"),
    "what": ("wh", "wuh"),
    "about": ("a", "uh buh"),
    "like": ("l", "lie"),
    "my": ("m", "muh"),
    "have": ("ha", "hah"),
    "was": ("w", "wuh"),
    "to": ("t", "tuh"),
}
TAILS = {"because": ("cause", "cuz"), "about": ("bout", "bout")}
MISPRONOUNCED = {  # word: as pronounced, which espeak-ng reads as spelled
    "probably": "probly",
    "interested": "intrested",
    "government": "goverment",
    "football": "foobaw",
    "really": "reely",
    "terrible": "tebble",
    "yesterday": "yestiday",
    "somebody": "summody",
    "mountains": "mounens",
    "computer": "puter",
    "sister": "sissa",
    "about": "abowd",
}
COINED = ("gardeny", "fishable", "footbally", "beachish")
ASIDES = ("hold on", "hold on i'm on the phone")
RESPELLED = {  # words that espeak-ng would spell out or stress wrongly
    "uh-huh": "uh huh",
    "mhm": "um hum",
    "um-hum": "um hum",
    "t._v.": "tee vee",
    "uh": "uhh",
    "gonna": "gunna",
}
MARKS = ("partial", "laughed", "tail", "uncertain", "mispronounced", "aside", "coined", *IN_SPEECH)
ABLE: dict[str, Container[str]] = {  # words that can bear a mark; any word can bear the others
    "partial": PARTIALS,
    "tail": TAILS,
    "mispronounced": MISPRONOUNCED,
    "coined": RULES["adjective"],
}


def spoken_form(token: Token) -> str:
    """Return the text for espeak-ng of a token that is not a sound."""
    if token.kind == "partial":
        return PARTIALS[token.word][1]
    if token.kind == "tail":
        return TAILS[token.word][1]
    return token.pronounced or RESPELLED.get(token.word, token.word)


def add_mark(tokens: list[Token], mark: str, rng: np.random.Generator) -> list[Token] | None:
    """Return `tokens` with one more `mark`, or None if no word can bear it."""
    if mark in IN_SPEECH:
        at = int(rng.integers(len(tokens) + 1))
        return [*tokens[:at], Token("", mark), *tokens[at:]]
    if mark == "aside":
        return [Token(word, mark) for word in ASIDES[int(rng.integers(len(ASIDES)))].split()] + tokens
    able = ABLE.get(mark)
    places = [i for i, token in enumerate(tokens) if token.kind == "word" and (able is None or token.word in able)]
    if not places:
        return None
    at = places[int(rng.integers(len(places)))]
    word = tokens[at].word
    if mark == "partial":  # the speaker breaks off and repeats the word
        return [*tokens[:at], Token(word, mark, PARTIALS[word][0]), *tokens[at:]]
    if mark == "coined":
        return [*tokens[:at], Token(COINED[int(rng.integers(len(COINED)))], mark), *tokens[at + 1 :]]
    pronounced = {"tail": TAILS.get(word, ("",))[0], "mispronounced": MISPRONOUNCED.get(word, "")}.get(mark, "")
    return [*tokens[:at], Token(word, mark, pronounced), *tokens[at + 1 :]]
