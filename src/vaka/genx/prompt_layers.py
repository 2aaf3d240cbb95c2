"""The layers of a system prompt, and the part of a conversation that a model sees."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from vaka.agents.react import InstructionsLike
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.prompt import Conversation
from vaka.core.ports.log import conversation_key
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import InvalidInput
from vaka.core.types.history import history_line
from vaka.core.types.message import Message, ToolMessage, UserMessage, text_of

RECENT_MESSAGES = 100
"""The number of messages that a model sees unless the definition of its agent says otherwise."""
SUMMARY_KEY = "$summary"
"""The key of the session value that has the summary of the conversation."""
SEARCHED_MESSAGES, SEARCHED_CHARS = 200, 500
"""A search looks at the beginnings of so many messages, the latest ones."""
FOUND_MESSAGES = 5
_WORD = re.compile(r"\w+")
_FIRST_IDEOGRAPH = "\u2e80"
"""From here on words are not divided by spaces."""


class EnvironmentText(msgspec.Struct, frozen=True):
    """A layer with the text of an environment variable."""

    variable: str
    default: str = ""
    """The text if the variable has none."""


class MixedText(msgspec.Struct, frozen=True):
    """A layer of texts and of variables of the environment."""

    parts: "tuple[str | EnvironmentText, ...]"


TextLayer: TypeAlias = "str | EnvironmentText | MixedText | Callable[[], str]"
"""A layer of a system prompt: texts, variables of the environment, or a function that returns a text."""


def build_instructions(layers: Sequence[TextLayer], environment: Mapping[str, str] | None = None) -> InstructionsLike:
    """Return the instructions of an agent; layers without text are left out.

    Without variables and functions they are a str. Otherwise they are made at the start of each turn, and known
    secrets in the text of variables are redacted.
    """
    if all(isinstance(layer, str) for layer in layers):
        return join_layers(layers)

    def instructions(turn: Turn) -> str:
        return join_layers(layers, environment, turn.log.secrets.redact_data)

    return instructions


def join_layers(
    layers: Sequence[TextLayer],
    environment: Mapping[str, str] | None = None,
    redact: Callable[[str], str] = lambda text: text,
) -> str:
    """Return the text of layers, in their order; ``redact`` is applied to the text of environment variables."""
    texts = [_layer_text(layer, environment or {}, redact) for layer in layers]
    return "\n\n".join(text for text in texts if text.strip())


def _layer_text(layer: TextLayer, environment: Mapping[str, str], redact: Callable[[str], str]) -> str:
    match layer:
        case str():
            return layer
        case EnvironmentText():
            return redact(environment.get(layer.variable, "")) or layer.default
        case MixedText():
            return "".join(_layer_text(part, environment, redact) for part in layer.parts)
        case _:
            return layer()


class ConversationMemory(Middleware):
    """Shows the model the last messages of the conversation, and a summary of the earlier messages.

    The model sees at most ``recent`` messages, but never less than the input and the last call with its result. The
    first one is an input. From 20 on it changes only every ``recent // 10`` messages, so that providers can cache
    prompts. ``summary`` adds the summary of the session to the system prompt, if there is one. ``query`` adds
    earlier messages that share words with the input.
    """

    inherited = ()

    def __init__(self, *, recent: int = RECENT_MESSAGES, summary: bool = False, query: bool = False) -> None:
        if recent < 0:
            raise InvalidInput(f"recent must be 0 or more messages, not {recent}")
        self.recent = recent
        self.summary = summary
        self.query = query

    @property
    def recent_messages(self) -> int:
        """The most messages of a prompt. The runtime reads it, to choose them before their blobs are loaded."""
        return self.recent

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        if not self.summary and not self.query:
            return prompt
        texts = [prompt.system, *self._memory_texts(turn, prompt.messages)]
        return msgspec.structs.replace(prompt, system="\n\n".join(text for text in texts if text))

    def _memory_texts(self, turn: Turn, shown: Sequence[Message]) -> Iterator[str]:
        """Yield the summary and the messages found by one search for the turn, so that its prompts begin alike."""
        summary = turn.get_state(conversation_key(turn.log.window, turn.path, SUMMARY_KEY)) if self.summary else None
        if isinstance(summary, str) and summary:
            yield f"Summary of the conversation so far:\n{summary}"
        if self.query:
            key = f"memory.found.{id(self)}"
            if key not in turn.values:
                turn.values[key] = _find_earlier(turn, shown)
            if turn.values[key]:
                yield "\n".join(["Earlier messages of this conversation that may matter:", *turn.values[key]])


def _find_earlier(turn: Turn, shown: Sequence[Message]) -> list[str]:
    """Return the lines of earlier messages than the prompt's that share words with its last input."""
    messages = turn.log.window.view(turn.path, partial(Conversation, turn.path)).messages()
    asked = next((message for message in reversed(shown) if isinstance(message, UserMessage)), None)
    older = messages[: max(len(messages) - len(shown), 0)]
    return find_related(older, text_of(asked.content)) if asked is not None else []


def find_related(messages: Sequence[Message], query: str) -> list[str]:
    """Return the lines of the messages that share the most and rarest words with ``query``, oldest first."""
    wanted = _words_of(query)
    found: list[tuple[int, str, set[str]]] = []
    for position, message in enumerate(messages[-SEARCHED_MESSAGES:]) if wanted else ():
        if isinstance(message, ToolMessage):
            continue
        text = text_of(message.content)[:SEARCHED_CHARS]
        if shared := wanted & _words_of(text):
            role = "user" if isinstance(message, UserMessage) else "model"
            found.append((position, history_line(role, text), shared))
    counts = Counter(word for *_, shared in found for word in shared)
    total = len(found)
    scored = [(sum(math.log(1 + total / counts[word]) for word in shared), at, line) for at, line, shared in found]
    scored.sort(key=lambda item: (-item[0], -item[1]))
    best = [(at, line) for score, at, line in scored[:FOUND_MESSAGES] if score * 2 >= scored[0][0]]
    return [line for _, line in sorted(best)]


def _words_of(text: str) -> set[str]:
    """Return the words of three and more letters; of a text without spaces between words, each two characters."""
    words: set[str] = set()
    for word in _WORD.findall(text[:SEARCHED_CHARS].casefold()):
        if word[-1] >= _FIRST_IDEOGRAPH:
            words.update(word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        elif len(word) > 2:
            words.add(word)
    return words
