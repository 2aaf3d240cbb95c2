"""Checks for arguments that scripts pass to host functions, and prompts built from them."""

from typing import Any, TypeGuard

import msgspec

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import AssistantMessage, Message, UserMessage, as_content


def is_table(value: JSON) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def type_name(value: JSON) -> str:
    """Return the Luau name of a value's type, for error messages."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, bytes):
        return "a string that is not UTF-8"
    return "a string" if isinstance(value, str) else "a table"


def as_string(value: JSON, label: str) -> str:
    if not isinstance(value, str):
        raise ScriptError(f"{label} must be a string, not {type_name(value)}")
    return value


def as_table(value: JSON, label: str) -> dict[str, Any]:
    """Return a copy of a table with string keys; nil and an empty list are empty tables."""
    if value is None or value == []:
        return {}
    if not is_table(value) or not all(isinstance(key, str) for key in value):
        kind = "a list" if isinstance(value, list) else type_name(value)
        raise ScriptError(f"{label} must be a table with names, not {kind}")
    return dict(value)


def as_list(value: JSON, label: str) -> list[Any]:
    """Return a list; nil and an empty table are empty lists."""
    if value is None or value == {}:
        return []
    if not is_list(value):
        raise ScriptError(f"{label} must be a list, not {type_name(value)}")
    return value


def as_count(value: JSON, label: str) -> int:
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

_RoleText = tuple[str, str]  # a role, and what it said


class PromptArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The messages, system prompt and options of a model call."""

    messages: tuple[Message, ...]
    system: str = ""
    options: dict[str, Any] = {}

    def with_schema(self, schema: JSON) -> "PromptArgs":
        """Return the prompt with an instruction to answer with JSON that fits a schema."""
        instruction = _SCHEMA_INSTRUCTION.format(schema=msgspec.json.encode(schema).decode())
        return msgspec.structs.replace(self, system=f"{self.system}\n\n{instruction}".strip())

    def with_retry(self, answer: str, problem: str) -> "PromptArgs":
        """Return the prompt extended by a rejected answer and the reason."""
        more = _make_message(("assistant", answer)), _make_message(("user", _RETRY_INSTRUCTION.format(problem=problem)))
        return msgspec.structs.replace(self, messages=(*self.messages, *more))


def parse_prompt_args(prompt: JSON, options: JSON = None) -> PromptArgs:
    """Return the prompt of a script's arguments; raise ``ScriptError`` for invalid ones.

    ``prompt`` is a text, a list of messages, or a table with ``system``, ``messages`` and ``prompt``; ``options`` may
    have ``system`` and ``messages`` that come before it, and settings of the model.
    """
    settings = as_table(options, "generate: options")
    texts: list[_RoleText] = []
    for fields in ({field: settings.pop(field, None) for field in ("system", "messages")}, _prompt_fields(prompt)):
        if fields.get("system") is not None:
            texts.append(("system", as_string(fields["system"], "generate: system")))
        texts += [_parse_message(item) for item in as_list(fields.get("messages"), "generate: messages")]
        if fields.get("prompt") is not None:
            texts.append(("user", as_string(fields["prompt"], "generate: prompt")))
    system = "\n\n".join(text for role, text in texts if role == "system" and text)
    messages = tuple(_make_message(item) for item in texts if item[0] != "system")
    if not messages:
        raise ScriptError("generate: the prompt has no message")
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
        raise ScriptError(f"generate: unknown prompt field {unknown[0]!r}; expected system, messages or prompt")
    return fields


def _parse_message(value: JSON) -> _RoleText:
    fields = as_table(value, "generate: a message")
    role = _ROLES.get(str(fields.get("role")))
    if role is None:
        raise ScriptError(f"generate: unknown role {fields.get('role')!r}; expected user, assistant or system")
    return role, as_string(fields.get("content"), "generate: the content of a message")


def _make_message(role_text: _RoleText) -> Message:
    role, text = role_text
    if role == "user":
        return UserMessage(content=as_content(text))
    return AssistantMessage(id=MessageId(""), content=as_content(text))
