"""Context-free grammar of telephone small talk with two hundred words.

Sentences are tuples of lower-case words as transcribed (``gonna``, ``uh-huh``, ``t._v.``).
"""

from __future__ import annotations

import re

import numpy as np

GREETINGS = (
    "hi my name is <name>",
    "hello this is <name>",
    "hello my name is <name> how are you doing",
    "hi this is <name> i am calling about <topic>",
)
BACKCHANNELS = ("uh-huh", "yeah", "right", "mhm", "oh really", "oh yeah", "okay", "i see", "that's right", "exactly")
REPLIES = (
    "yeah <statement>",
    "i think so",
    "yes <statement>",
    "no <statement>",
    "oh really <question>",
    "well <statement>",
    "right <statement>",
    "okay <question>",
    "that's <adjective>",
    "i see <question>",
    "i don't know <statement>",
    "exactly <statement>",
)
TURNS = (
    "<statement>",
    "<statement>",
    "<opener> <statement>",
    "<opener> <statement>",
    "<statement> <joint> <statement>",
    "<clause> because <clause>",
    "<opener> <question>",
)
RULES: dict[str, tuple[str, ...]] = {
    "name": ("mary", "john", "susan"),
    "opener": ("well", "so", "you know", "i mean", "i guess", "but", "and", "<hesitation>", "<hesitation>"),
    "hesitation": ("uh", "um"),
    "joint": ("and", "but", "so", "and then", "<hesitation> and"),
    "statement": (
        "<clause>",
        "<clause>",
        "<clause>",
        "<clause> <when>",
        "i think <clause>",
        "i guess <clause>",
        "<subject> <past>",
        "<subject> <past>",
        "<subject> <past>",
        "<subject> <past> <when>",
        "<subject> used to <verb>",
        "we're gonna <verb> <often>",
        "i like to <verb> <often>",
        "<person> likes to <verb>",
        "<person> wants to <verb>",
        "i don't <verb> very often <place>",
        "we've lived <place> for <number> years",
        "the <object> costs about <number> hundred dollars",
        "it takes <number> hours to get to <where>",
        "i've got <number> <plural>",
        "<person> has <number> <plural>",
        "there are <quantity> <plural> <place>",
        "there are <quantity> <plural> <place>",
    ),
    "clause": (
        "<thing> is <degree> <adjective>",
        "<thing> was <degree> <adjective>",
        "it's <degree> <adjective> <place>",
        "it was <degree> <adjective>",
        "we can't <verb>",
        "we have to <verb>",
        "you can <verb> <place>",
        "<subject> <past>",
        "i'm interested in <topic>",
        "<person> works <place>",
    ),
    "question": (
        "do you <verb> <often>",
        "do you like <topic>",
        "what do you think about <topic>",
        "what kind of <object> do you have",
        "how many <plural> do you have",
        "did you <verb> <when>",
        "is it <adjective> <place>",
        "where did you buy the <object>",
    ),
    "subject": ("i", "we", "they", "he", "she", "<person>", "<person>"),
    "person": ("my <relative>", "my <relative>", "our <relative>", "somebody"),
    "relative": ("wife", "husband", "brother", "sister", "mother", "father", "friend", "neighbor"),
    "past": (
        "went to <where>",
        "went to <where>",
        "bought a <quality> <object>",
        "bought a <quality> <object>",
        "watched the <show>",
        "watched the <show>",
        "cooked <food>",
        "cooked <food>",
        "played <game>",
        "played <game>",
        "talked about <topic>",
        "talked about <topic>",
        "worked on the <object>",
        "worked on the <object>",
        "stayed home",
        "stayed home",
    ),
    "verb": (
        "go to <where>",
        "go to <where>",
        "buy a <quality> <object>",
        "watch the <show>",
        "watch t._v.",
        "cook <food>",
        "cook <food>",
        "play <game>",
        "play <game>",
        "talk about <topic>",
        "work on the <object>",
        "read the newspaper",
        "listen to the radio",
        "talk on the phone",
    ),
    "where": ("the lake", "the beach", "the mountains", "the park", "the city", "school"),
    "place": ("at home", "at school", "here", "in texas", "in the city", "by the lake", "in the mountains"),
    "when": ("yesterday", "last <period>", "last <period>", "today", "on <day>"),
    "often": ("every <period>", "every <period>", "on <day>", "tonight"),
    "period": ("week", "summer", "winter", "year"),
    "day": ("saturday", "sunday"),
    "thing": (
        "the weather",
        "the <object>",
        "the <quality> <object>",
        "the <show>",
        "the <food>",
        "our <relative>",
        "<topic>",
    ),
    "degree": ("really", "pretty", "very", "so", "a little", "a little", "not", "probably"),
    "adjective": (
        "nice",
        "good",
        "cheap",
        "cold",
        "hot",
        "hard",
        "fun",
        "terrible",
        "beautiful",
    ),
    "quality": ("new", "old", "big"),
    "object": ("car", "truck", "boat", "house", "computer", "kitchen", "garden"),
    "plural": ("kids", "dogs", "cats", "cars", "horses", "people"),
    "quantity": ("many", "a lot of"),
    "show": ("movie", "game"),
    "food": ("chicken", "fish", "pizza"),
    "game": ("baseball", "golf", "football"),
    "topic": ("politics", "music", "history", "the weather", "money", "taxes", "the government", "computers"),
    "number": ("two", "three", "four", "five", "ten"),
}

_SLOT = re.compile(r"<(\w+)>")


def draw_sentence(patterns: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    """Draw a sentence from `patterns`; each ``<slot>`` takes one of its rules."""
    text = _draw(patterns, rng)
    while slot := _SLOT.search(text):
        text = text[: slot.start()] + _draw(RULES[slot.group(1)], rng) + text[slot.end() :]
    return tuple(text.split())


def _draw(options: tuple[str, ...], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
