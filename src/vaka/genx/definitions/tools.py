"""Definitions of tools, one type for each kind but ``agent``, which is beside the definitions of agents."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from vaka.genx.definitions.context_layers import ContextLayer
from vaka.genx.definitions.references import Slot

HttpMethod: TypeAlias = Literal["GET", "POST", "PUT", "DELETE", "PATCH"]
HttpAuthType: TypeAlias = Literal["bearer", "basic"]
GeneratorMode: TypeAlias = Literal["generate", "json_output"]
OutputMode: TypeAlias = Literal["text", "json"]
CompositeMode: TypeAlias = Literal["seq"]

DEPRECATED_TOOL_TYPES = ("http", "generator", "text_processor", "composite")
"""Kinds that a script in Luau replaces."""


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every kind of tool."""

    type: ClassVar[str] = ""

    name: Annotated[str, Meta(description="The name that the model calls.")]
    description: Annotated[str, Meta(description="What the tool does, for the model.")] = ""


class ToolSlot(Slot[ToolDefinition], frozen=True):
    """A tool of an agent or of a step."""

    quit: bool = False
    """Whether the agent is finished after the turn in which this tool has run."""


class BuiltinToolDefinition(ToolDefinition, frozen=True, kw_only=True):
    """A tool that the host registers in code or vaka brings along, found by its name."""

    type: ClassVar[str] = "built-in"

    params: Annotated[dict[str, Any] | None, Meta(description="JSON Schema of the arguments.")] = None


class HttpAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of an HTTP request; ``$VAR`` and ``${VAR}`` are replaced when the request is made."""

    type: Annotated[HttpAuthType, Meta(description="The scheme of the Authorization header.")]
    token: Annotated[str, Meta(description="The token; for `basic` the user and password as `user:password`.")] = ""
    username: Annotated[str, Meta(description="The user of `basic`, instead of `token`.")] = ""
    password: Annotated[str, Meta(description="The password of `basic`, instead of `token`.")] = ""


class HttpToolDefinition(ToolDefinition, frozen=True, kw_only=True):
    """An HTTP request."""

    type: ClassVar[str] = "http"

    endpoint: Annotated[str, Meta(description="The URL; `{argument}` and `${VARIABLE}` are replaced.")] = ""
    method: Annotated[HttpMethod, Meta(description="The method of the request.")] = "GET"
    params: Annotated[dict[str, Any] | None, Meta(description="JSON Schema of the arguments.")] = None
    query: Annotated[dict[str, str], Meta(description="Parameters of the URL; `{argument}` is replaced.")] = {}
    headers: Annotated[dict[str, str], Meta(description="Headers; `${VARIABLE}` is replaced.")] = {}
    auth: Annotated[HttpAuth | None, Meta(description="The credentials of the request.")] = None
    req_body_jq: Annotated[str, Meta(description="jq that makes the body from the arguments.")] = ""
    resp_body_jq: Annotated[str, Meta(description="jq that makes the result from the response.")] = ""
    max_response_size_mb: Annotated[float, Meta(description="The largest response, in MiB.")] = 1
    timeout: Annotated[float | None, Meta(description="Seconds until the request fails.")] = None


class GeneratorToolDefinition(ToolDefinition, frozen=True, kw_only=True):
    """A request to a model; its argument `input` is the user's message."""

    type: ClassVar[str] = "generator"

    model: Annotated[str, Meta(description="The name of the model.")] = ""
    mode: Annotated[GeneratorMode, Meta(description="Whether the result is text or JSON.")] = "generate"
    prompt: Annotated[str, Meta(description="The system prompt.")] = ""
    context_layers: Annotated[
        tuple[ContextLayer, ...], Meta(description="Pieces of the system prompt after `prompt`; `$mem` has no effect.")
    ] = ()
    output_schema: Annotated[dict[str, Any] | None, Meta(description="JSON Schema of the result.")] = None


class TextProcessorDefinition(ToolDefinition, frozen=True, kw_only=True):
    """A request to a model that processes the argument `content`."""

    type: ClassVar[str] = "text_processor"

    prompt: Annotated[str, Meta(description="The system prompt.")] = ""
    model: Annotated[str, Meta(description="The name of the model.")] = ""
    output_mode: Annotated[OutputMode, Meta(description="Whether the result is text or JSON.")] = "text"
    output_schema: Annotated[dict[str, Any] | None, Meta(description="JSON Schema of the result.")] = None


class CompositeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a composite tool."""

    id: Annotated[str, Meta(description="The name under which later steps find the output.")]
    tool: Annotated[ToolSlot, Meta(description="The tool.")]
    input_jq: Annotated[
        str, Meta(description="jq over `{input, steps}` that makes the arguments; the first step has none.")
    ] = ""


class CompositeToolDefinition(ToolDefinition, frozen=True, kw_only=True):
    """Several tools, one after the other."""

    type: ClassVar[str] = "composite"

    mode: Annotated[CompositeMode, Meta(description="The order of the steps.")] = "seq"
    steps: Annotated[tuple[CompositeStep, ...], Meta(description="The calls.")] = ()


class ScriptDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A Luau script: its text, or the file it is in."""

    text: str = ""
    file: str = ""
    """The file as the definition names it."""
    path: Path | None = None
    """The file that was found; ``None`` for a definition that does not come from a file."""
    libs: Path | None = None
    """The folder ``libs`` beside the folder of the file, if the project has it."""


class LuaToolDefinition(ToolDefinition, frozen=True, kw_only=True):
    """A Luau script with a function `invoke`."""

    type: ClassVar[str] = "lua"

    params: Annotated[
        dict[str, Any] | None, Meta(description="JSON Schema of the arguments, or only its `properties`.")
    ] = None
    script: ScriptDefinition
