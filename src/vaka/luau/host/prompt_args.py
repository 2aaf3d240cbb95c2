"""Arguments of host functions that scripts pass as tables, and prompts made of them."""

from typing import Any, TypeGuard

import msgspec

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import AssistantMessage, Message, UserMessage, as_content


def is_table(value: JSON) -> TypeGuard[dict[Any, Any]]:
    """Whether a value is a table with names, or an empty one."""
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def type_name(value: JSON) -> str:
    """Say in the words of a script what a value is."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, bytes):
        return "a string that is no text"
    return "a string" if isinstance(value, str) else "a table"


def as_string(value: JSON, label: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ScriptError(f"{label} must be a string, not {type_name(value)}")
    return value


def as_table(value: JSON, label: str) -> dict[str, Any]:
    """Return a table with names, as one of its own; an empty one may look like a list, and nothing is an empty one."""
    if value is None or value == []:
        return {}
    if not is_table(value) or not all(isinstance(key, str) for key in value):
        raise ScriptError(
            f"{label} must be a table with names, not {'a list' if isinstance(value, list) else type_name(value)}"
        )
    return dict(value)


def as_list(value: JSON, label: str) -> list[Any]:
    """Return a list; an empty one may look like a table with names, and nothing is an empty one."""
    if value is None or value == {}:
        return []
    if not is_list(value):
        raise ScriptError(f"{label} must be a list, not {type_name(value)}")
    return value


def as_count(value: JSON, label: str) -> int:
    """Return a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ScriptError(f"{label} must be a whole number, not {value!r}")
    return value


_SCHEMA_INSTRUCTION = (
    "Answer with one JSON value and nothing else: no words around it, no code fence. "
    "It must fit this JSON Schema:\n{schema}"
)

_RETRY_INSTRUCTION = "That answer cannot be used: {problem}. Answer again, with one JSON value that fits the schema."

_ROLES = {"user": "user", "assistant": "assistant", "model": "assistant", "system": "system"}

_PROMPT_FIELDS = {"system", "messages", "prompt"}

_RoleText = tuple[str, str]
"""Who said it, and what."""


class PromptArgs(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked."""

    messages: tuple[Message, ...]
    system: str = ""
    options: dict[str, Any] = {}

    def with_schema(self, schema: JSON) -> "PromptArgs":
        """Return the question for an answer that is data."""
        told = _SCHEMA_INSTRUCTION.format(schema=msgspec.json.encode(schema).decode())
        return msgspec.structs.replace(self, system=f"{self.system}\n\n{told}".strip())

    def with_retry(self, answer: str, problem: str) -> "PromptArgs":
        """Return the question after an answer that was no good."""
        more = _make_message(("assistant", answer)), _make_message(("user", _RETRY_INSTRUCTION.format(problem=problem)))
        return msgspec.structs.replace(self, messages=(*self.messages, *more))


def parse_prompt_args(prompt: JSON, options: JSON = None) -> PromptArgs:
    """Return what a script asks; raise ``ScriptError`` for what makes no sense.

    ``prompt`` is a text, a list of messages, or a table with ``system``, ``messages`` and ``prompt``; ``options`` may
    have ``system`` and ``messages`` that come before it, and settings of the model.
    """
    settings = as_table(options, "generate: options")
    said: list[_RoleText] = []
    for asked in ({field: settings.pop(field, None) for field in ("system", "messages")}, _prompt_fields(prompt)):
        if asked.get("system") is not None:
            said.append(("system", as_string(asked["system"], "generate: system")))
        said += [_parse_message(item) for item in as_list(asked.get("messages"), "generate: messages")]
        if asked.get("prompt") is not None:
            said.append(("user", as_string(asked["prompt"], "generate: prompt")))
    system = "\n\n".join(words for role, words in said if role == "system" and words)
    messages = tuple(_make_message(item) for item in said if item[0] != "system")
    if not messages:
        raise ScriptError("generate: there is nothing to ask: no message")
    return PromptArgs(messages=messages, system=system, options=settings)


def _prompt_fields(prompt: JSON) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if isinstance(prompt, list):
        return {"messages": prompt}
    if not isinstance(prompt, dict):
        raise ScriptError(f"generate: the prompt must be a string or a table, not {type_name(prompt)}")
    fields = as_table(prompt, "generate: prompt")
    unknown = sorted(fields.keys() - _PROMPT_FIELDS)
    if unknown:
        raise ScriptError(f"generate: a prompt has system, messages and prompt, and no {unknown[0]!r}")
    return fields


def _parse_message(value: JSON) -> _RoleText:
    fields = as_table(value, "generate: a message")
    role = _ROLES.get(str(fields.get("role")))
    if role is None:
        raise ScriptError(f"generate: there is no role {fields.get('role')!r}; it is user, assistant or system")
    return role, as_string(fields.get("content"), "generate: the content of a message")


def _make_message(role_text: _RoleText) -> Message:
    role, words = role_text
    if role == "user":
        return UserMessage(content=as_content(words))
    return AssistantMessage(id=MessageId(""), content=as_content(words))
