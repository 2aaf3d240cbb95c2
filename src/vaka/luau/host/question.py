"""What a script may ask a model: a text, a conversation, or both with instructions."""

from typing import Any

import msgspec

from vaka.core.types.content import as_content
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import AssistantMessage, Message, UserMessage
from vaka.luau.host.arguments import items, kind, table, text

_FOR_DATA = (
    "Answer with one JSON value and nothing else: no words around it, no code fence. "
    "It must fit this JSON Schema:\n{schema}"
)
_AGAIN = "That answer cannot be used: {problem}. Answer again, with one JSON value that fits the schema."
_ROLES = {"user": "user", "assistant": "assistant", "model": "assistant", "system": "system"}
_FIELDS = {"system", "messages", "prompt"}

_Said = tuple[str, str]
"""Who said it, and what."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked."""

    messages: tuple[Message, ...]
    system: str = ""
    options: dict[str, Any] = {}

    def with_schema(self, schema: JSON) -> "Question":
        """Return the question for an answer that is data."""
        told = _FOR_DATA.format(schema=msgspec.json.encode(schema).decode())
        return msgspec.structs.replace(self, system=f"{self.system}\n\n{told}".strip())

    def again(self, said: str, problem: str) -> "Question":
        """Return the question after an answer that was no good."""
        more = _message(("assistant", said)), _message(("user", _AGAIN.format(problem=problem)))
        return msgspec.structs.replace(self, messages=(*self.messages, *more))


def question_of(prompt: JSON, options: JSON = None) -> Question:
    """Return what a script asks; raise ``ScriptError`` for what makes no sense.

    ``prompt`` is a text, a list of messages, or a table with ``system``, ``messages`` and ``prompt``; ``options`` may
    have ``system`` and ``messages`` that come before it, and settings of the model.
    """
    settings = table(options, "generate: options")
    said: list[_Said] = []
    for asked in ({field: settings.pop(field, None) for field in ("system", "messages")}, _fields(prompt)):
        if asked.get("system") is not None:
            said.append(("system", text(asked["system"], "generate: system")))
        said += [_said(item) for item in items(asked.get("messages"), "generate: messages")]
        if asked.get("prompt") is not None:
            said.append(("user", text(asked["prompt"], "generate: prompt")))
    system = "\n\n".join(words for role, words in said if role == "system" and words)
    messages = tuple(_message(item) for item in said if item[0] != "system")
    if not messages:
        raise ScriptError("generate: there is nothing to ask: no message")
    return Question(messages=messages, system=system, options=settings)


def _fields(prompt: JSON) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if isinstance(prompt, list):
        return {"messages": prompt}
    if not isinstance(prompt, dict):
        raise ScriptError(f"generate: the prompt must be a string or a table, not {kind(prompt)}")
    fields = table(prompt, "generate: prompt")
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise ScriptError(f"generate: a prompt has system, messages and prompt, and no {unknown[0]!r}")
    return fields


def _said(value: JSON) -> _Said:
    fields = table(value, "generate: a message")
    role = _ROLES.get(str(fields.get("role")))
    if role is None:
        raise ScriptError(f"generate: there is no role {fields.get('role')!r}; it is user, assistant or system")
    return role, text(fields.get("content"), "generate: the content of a message")


def _message(said: _Said) -> Message:
    role, words = said
    if role == "user":
        return UserMessage(content=as_content(words))
    return AssistantMessage(id=MessageId(""), content=as_content(words))
