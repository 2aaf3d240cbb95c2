"""A scripted conversation of 300 turns with 40 planted facts, and a scripted model that summarises it.

Standard library only: peers run in environments that have nothing else. What counts is how many facts the last prompt
still has, after the runtime has summarised the conversation as often as its defaults say.
"""

import re
from collections import Counter
from typing import NamedTuple

TURNS, FACTS = 300, 40
WINDOW = 16_000
"""Tokens of the model's context window, of four characters each."""
SUMMARY_FACTS = 24
"""Facts that fit into a summary: as a real model, the scripted one leaves out the oldest when there are more."""
PLACES = ("input", "result", "argument", "answer", "input")
"""Where the facts are planted, in turn."""
QUESTION = "What do you remember?"

_THINGS = ("gate", "boat", "door", "mast", "lamp", "rope", "well", "barn")
_COLOURS = ("red", "blue", "green", "white", "black")
_FACT = re.compile(r"The code of the [a-z]+ [a-z]+ is [A-Z]{2}-\d{4}\.")
_FILLER = "We went on along the shore, looked at what lies there, and wrote down nothing that matters later. "


class Fact(NamedTuple):
    """A sentence that the agent should still know at the end."""

    turn: int
    place: str
    text: str


class ScriptedTurn(NamedTuple):
    """What happens in a turn: an input, a tool call with its result, and the answer."""

    text: str
    argument: str
    result: str
    answer: str


def make_facts() -> list[Fact]:
    """Return the facts, spread evenly over the turns."""
    facts: list[Fact] = []
    for number in range(FACTS):
        thing, colour = _THINGS[number % len(_THINGS)], _COLOURS[number // len(_THINGS)]
        code = f"{chr(65 + number % 26)}{chr(65 + number * 7 % 26)}-{1000 + number * 211}"
        turn = 2 + number * (TURNS - 10) // FACTS
        facts.append(Fact(turn, PLACES[number % len(PLACES)], f"The code of the {colour} {thing} is {code}."))
    return facts


def make_turns() -> list[ScriptedTurn]:
    """Return the whole conversation, and the question at its end."""
    planted = {fact.turn: fact for fact in make_facts()}

    def text(turn: int, place: str, length: int) -> str:
        fact = planted.get(turn)
        return _FILLER * length + (fact.text if fact is not None and fact.place == place else "") + f" ({turn})"

    turns = [
        ScriptedTurn(text(at, "input", 3), text(at, "argument", 1), text(at, "result", 12), text(at, "answer", 2))
        for at in range(1, TURNS + 1)
    ]
    return [*turns, ScriptedTurn(QUESTION, "codes", "none", "I remember.")]


def write_summary(prompt: str) -> str:
    """Return the answer of the scripted summary model: the newest facts that it was shown."""
    found = list(dict.fromkeys(_FACT.findall(prompt)))
    return "\n".join(["The travellers walk along the shore.", *found[-SUMMARY_FACTS:]])


class ScriptedTalk:
    """Plays the agent's model and its tool, and remembers what the model was shown."""

    def __init__(self) -> None:
        self.turns = make_turns()
        self.at = -1
        self.shown = ""
        """The last prompt."""
        self.most_tokens = 0
        self.summaries = 0

    def next_input(self) -> str:
        """Begin the next turn and return its input."""
        self.at += 1
        return self.turns[self.at].text

    def summarise(self, prompt: str) -> str:
        """Answer a call of the summary model."""
        self.summaries += 1
        return write_summary(prompt)

    def reply(self, prompt: str, *, has_result: bool) -> tuple[str, str]:
        """Answer a call of the agent's model: with the argument of the tool, or with a text."""
        self.shown, self.most_tokens = prompt, max(self.most_tokens, len(prompt) // 4)
        turn = self.turns[self.at]
        return ("", turn.answer) if has_result else (turn.argument, "")

    def look_up(self) -> str:
        """Return the result of the tool."""
        return self.turns[self.at].result

    def report(self, name: str) -> dict[str, object]:
        """Return which facts the last prompt has."""
        facts = make_facts()
        kept = [fact for fact in facts if fact.text in self.shown]
        planted, found = Counter(fact.place for fact in facts), Counter(fact.place for fact in kept)
        places = {place: f"{found[place]}/{planted[place]}" for place in sorted(planted)}
        return {
            "name": name,
            "kept": len(kept),
            "places": places,
            "most_tokens": self.most_tokens,
            "summaries": self.summaries,
            "keeps": "",
        }
