"""What a command line asks of a model: options, a tool to be called, the shape of the answer."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vaka.agents.react import Agent
from vaka.cli.errors import UsageError
from vaka.cli.options import given_path
from vaka.core.types.errors import BadRequest, InvalidInput
from vaka.models.options import read
from vaka.runtime.build import shape_of
from vaka.runtime.shape import Shape

LARGEST = 1024 * 1024
"""Bytes the file of a schema may have."""


def asked(agent: Agent, options: Iterable[str], tool_choice: str | None, schema: str | None) -> Shape | None:
    """Put on an agent what is asked of its model; return the shape its answers are to have, if one is given."""
    agent.options = {**agent.options, **model_options(options)}
    agent.tool_choice = tool_choice or agent.tool_choice
    if not schema:
        return shape_of(agent)
    if "output" in agent.options:
        raise UsageError("--output-schema and --option output=… say the same; leave one of them out")
    shape = output_schema(schema)
    agent.options, agent.output = {**agent.options, **shape.options}, None
    return shape


def model_options(given: Iterable[str]) -> dict[str, Any]:
    """Return what ``KEY=VALUE`` say: a value is JSON where that fits, else a text. Raises ``UsageError``."""
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--option {text}: expected KEY=VALUE, such as reasoning=high or temperature=0")
        if name in options:
            several = '; several texts are stop=["a", "b"]' if name == "stop" else ""
            raise UsageError(f"--option {name} is given twice; leave one of them out{several}")
        options[name] = _value(name, value)
    return options


def output_schema(file: str) -> Shape:
    """Return the shape a file with a JSON Schema describes. Raises ``UsageError``."""
    path = given_path(file)
    try:
        schema = msgspec.json.decode(_beginning(path), type=dict[str, Any])
        shape = Shape(schema)
    except OSError as error:
        raise UsageError(f"--output-schema {file}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"--output-schema {file}: expected a JSON Schema: {error}") from error
    except InvalidInput as error:
        raise UsageError(f"--output-schema {file}: {error}") from error
    shape.name = re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)[:64] or "answer"
    return shape


def _beginning(path: Path) -> bytes:
    """Return what a file holds, unless that has no end."""
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InvalidInput(f"larger than the {LARGEST} bytes a schema may have")
    return data


def _value(name: str, text: str) -> Any:
    """Return the first reading of a text that the option takes."""
    readings: list[Any] = [text]
    try:
        readings.insert(0, msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        pass
    fault: BadRequest | None = None
    for reading in readings:
        try:
            read({name: reading}).shape  # noqa: B018  # asked for what it raises
        except BadRequest as error:
            fault = fault or error
        else:
            return reading
    raise UsageError(f"--option {name}={text}: {fault}")
