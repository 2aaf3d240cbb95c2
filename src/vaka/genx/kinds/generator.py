"""Generator and text processor tools of definitions: one question to a model, answered with text or JSON."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.ports.agent import AgentServices
from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput, InvalidOutput
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.keywords import suggest_keywords
from vaka.core.types.message import AssistantMessage, Message, UserMessage, as_content
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.tools.arguments import ArgumentReader, parse_json
from vaka.tools.function import sanitize_name
from vaka.tools.validate import Validator

GENERATOR_MODES = ("generate", "json_output")
OUTPUT_MODES = ("text", "json")
TIMEOUT = 300.0

_JSON_INSTRUCTION = (
    "Answer with one JSON value and nothing else: no words around it, no code fence. "
    "It must fit this JSON Schema:\n{schema}"
)
_RETRY_INSTRUCTION = "That answer cannot be used: {problem}. Answer again, with one JSON value that fits the schema."
_CODE_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


class ModelTool:
    """A tool whose argument is a message to a model; ``bind`` connects it to the models of a runtime.

    The model is asked within the budgets of the turn and its usage is recorded under the name of the tool. A call is
    repeated after a crash: a question has no effect but its cost.
    """

    def __init__(
        self,
        spec: ToolSpec,
        argument: str,
        model: str,
        system: str,
        schema: dict[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        self.spec = spec
        self.argument = argument
        self.model = model
        self.schema = schema
        self.validator: Validator | None = None
        self.options = dict(options)
        if schema is not None:
            self.validator = Validator(schema)
            self.validator.compile()
            system = f"{system}\n\n{_JSON_INSTRUCTION.format(schema=msgspec.json.encode(schema).decode())}".strip()
            if schema.get("type") == "object":
                self.options["output"] = {"schema": schema, "name": "output"}
        self.system = system

    def bind(self, services: AgentServices) -> "BoundModelTool":
        """Return the tool connected to the services of a runtime."""
        return BoundModelTool(self, services)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec.name!r})"


class GeneratorTool(ModelTool):
    """Asks ``model``: ``prompt`` and then ``context`` are the system prompt, the argument ``input`` is the message.

    The result is the text of the answer, or with the mode ``json_output`` the JSON that fits ``output_schema``.
    ``model`` may be ``default``, the model of the agent; ``options`` are model options.
    """

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every option
        self,
        name: str,
        *,
        model: str,
        description: str = "",
        mode: str = "generate",
        prompt: str = "",
        context: Sequence[str] = (),
        output_schema: dict[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        layer: str = "code",
    ) -> None:
        """Raise ``InvalidInput`` for an invalid option."""
        _check_required("generator tool", name, {"model": model})
        if mode not in ("", *GENERATOR_MODES):
            raise InvalidInput(f"tool {name}: invalid generator mode {mode!r}; expected {' or '.join(GENERATOR_MODES)}")
        is_json = mode == "json_output"
        if is_json and not output_schema:
            raise InvalidInput(f"tool {name}: output_schema is required for json_output mode")
        spec = _model_tool_spec(name, description or f"Ask the model {model}.", "input", layer)
        system = "\n\n".join(text for text in (prompt, *context) if text)
        super().__init__(spec, "input", model, system, output_schema if is_json else None, options or {})


class TextProcessorTool(ModelTool):
    """Lets ``model`` process the argument ``content`` as the system prompt ``prompt`` says.

    The result is the text of the answer, or with the output mode ``json`` the JSON that fits ``output_schema``.
    """

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every option
        self,
        name: str,
        *,
        prompt: str,
        model: str,
        description: str = "",
        output_mode: str = "text",
        output_schema: dict[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        layer: str = "code",
    ) -> None:
        """Raise ``InvalidInput`` for an invalid option."""
        _check_required("text processor tool", name, {"prompt": prompt, "model": model})
        if output_mode not in ("", *OUTPUT_MODES):
            raise InvalidInput(
                f"tool {name}: invalid text processor output mode {output_mode!r}; expected {' or '.join(OUTPUT_MODES)}"
            )
        is_json = output_mode == "json"
        if is_json and not output_schema:
            raise InvalidInput(f"tool {name}: output_schema is required for json output mode")
        spec = _model_tool_spec(name, description or "Process a text.", "content", layer)
        super().__init__(spec, "content", model, prompt, output_schema if is_json else None, options or {})


class BoundModelTool:
    """A tool that asks a model, with the models of a runtime; implements ``Tool``."""

    def __init__(self, tool: ModelTool, services: AgentServices) -> None:
        self.spec = tool.spec
        self._tool = tool
        self._services = services
        self._reader = ArgumentReader(tool.spec.parameters)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments that the model wrote, or what is wrong with them."""
        return self._reader.read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> JSON:
        """Ask the model and return its answer; an answer that is not the wanted JSON is asked for once more.

        Raises ``ModelError``, and ``InvalidOutput`` if the second answer does not fit either.
        """
        tool = self._tool
        model = self._services.find_model(tool.model)
        messages: tuple[Message, ...] = (UserMessage(content=as_content(arguments[tool.argument])),)
        problem = ""
        for _ in range(2):
            prompt = Prompt(messages=messages, system=tool.system, options=tool.options, session=context.session)
            answer = await context.ask_model(model, prompt)
            if tool.validator is None:
                return answer
            value, problem = _parse_answer(answer, tool.validator)
            if not problem:
                return value
            retry = UserMessage(content=as_content(_RETRY_INSTRUCTION.format(problem=problem)))
            messages += (AssistantMessage(id=MessageId(""), content=as_content(answer)), retry)
        raise InvalidOutput(f"{model.name} did not answer with JSON that fits output_schema: {problem}")


def _parse_answer(answer: str, validator: Validator) -> tuple[JSON, str]:
    """Return the JSON of an answer, or what is wrong with it."""
    fenced = _CODE_FENCE.match(answer)
    parsed = parse_json(fenced.group(1) if fenced else answer.strip())
    if isinstance(parsed, InvalidArguments):
        return None, parsed.message.replace("the arguments are", "it is")
    return parsed[0], "; ".join(validator.find_faults(parsed[0]))


def _check_required(kind: str, name: str, fields: Mapping[str, str]) -> None:
    if not name:
        raise InvalidInput(f"{kind}: name is required")
    for field, value in fields.items():
        if not value:
            raise InvalidInput(f"tool {name}: {field} is required")


def _model_tool_spec(name: str, description: str, argument: str, layer: str) -> ToolSpec:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
        "additionalProperties": False,
    }
    return ToolSpec(
        name=sanitize_name(name),
        description=description,
        parameters=parameters,
        effect="read",
        timeout=TIMEOUT,
        layer=layer,
        strict=True,
    )
