"""Answers that a journey gives to its provider, independent of the API that carries them."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 60
"""Seconds until a journey gives up waiting for something that must happen."""


class Pause:
    """A place in an answer at which the provider waits until the test opens it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def wait_reached(self) -> None:
        """Wait until the provider has sent everything before this place."""
        assert self._reached.wait(PATIENCE), "the provider did not reach the pause"

    def open(self) -> None:
        """Let the provider send the rest."""
        self._opened.set()

    def hold(self) -> None:
        """Report the place as reached and wait until it is opened."""
        self._reached.set()
        self._opened.wait()


@dataclass(frozen=True)
class Call:
    """A tool call of an answer."""

    name: str
    arguments: Mapping[str, Any]
    id: str


@dataclass(frozen=True)
class Answer:
    """One answer: its reasoning, pieces of text with pauses between them, and calls."""

    reasoning: str = ""
    pieces: Sequence[str | Pause] = ()
    calls: Sequence[Call] = ()
    cut: bool = False
    """The connection is closed after the pieces, before the end of the answer."""

    @property
    def text(self) -> str:
        return "".join(piece for piece in self.pieces if isinstance(piece, str))


@dataclass(frozen=True)
class Failure:
    """An answer with an HTTP error."""

    status: int
    message: str = "The model is not available."
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def say(*pieces: str | Pause, reasoning: str = "") -> Answer:
    """Return an answer of text, one event for each piece."""
    return Answer(pieces=pieces, reasoning=reasoning)


def cut(*pieces: str | Pause) -> Answer:
    """Return an answer whose connection is closed after its pieces."""
    return Answer(pieces=pieces, cut=True)


def call(name: str, /, **arguments: Any) -> Answer:
    """Return an answer with one tool call."""
    return calls((name, arguments))


def calls(*wanted: tuple[str, Mapping[str, Any]], text: str = "") -> Answer:
    """Return an answer with several tool calls."""
    made = [Call(name, arguments, f"call_{name}_{number}") for number, (name, arguments) in enumerate(wanted)]
    return Answer(pieces=[text] if text else [], calls=made)


def reject(status: int, **headers: str) -> Failure:
    """Return an HTTP error; ``retry_after=0`` becomes the header ``retry-after: 0``."""
    return Failure(status, headers={name.replace("_", "-"): value for name, value in headers.items()})
