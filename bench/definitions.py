"""How long a folder with 200 definitions takes to load."""

import time
from pathlib import Path

from bench.row import Row
from bench.stores import temporary_folder
from vaka.genx.definitions.folder import load_definitions

MAX_MS = 150.0

AGENT = """
prompt: You are agent {number}. Be kind and brief.
generator: {{$ref: "generator:small"}}
context_layers: [{{$this: .prompt}}, {{$ref: "context:c{context}"}}, {{$mem: {{recent: 20}}}}]
tools: [{{$ref: "tool:t{tool}"}}, {{$ref: tool:goodbye, quit: true}}]
"""
TOOL = """
description: Does thing number {number}.
params: {{city: {{type: string, description: The city.}}, days: {{type: integer, default: 3}}}}
lua: |
  function invoke(ctx, args)
    return args.city .. " " .. args.days
  end
"""
RULE = """
vars: {{city: {{label: City, type: string}}}}
patterns: ["weather {number} in [city]", "how is it in [city]", ["forecast of [city]", "r{number}: city=[City]"]]
examples: [[one, weather in Rome, "r{number}: city=Rome"]]
"""


def write_definitions(folder: Path) -> int:
    """Write a project with agents, tools, rules and contexts; return how many definitions it has."""
    files = {
        f"agents/a{number}": AGENT.format(number=number, context=number % 18, tool=number % 50) for number in range(80)
    }
    files |= {f"tools/t{number}": TOOL.format(number=number) for number in range(50)}
    files |= {f"rules/r{number}": RULE.format(number=number) for number in range(50)}
    files |= {f"contexts/c{number}": "prompt: |\n  Be kind.\n  Be brief.\n" for number in range(18)}
    files |= {"tools/goodbye": 'lua: function invoke() return "bye" end\n', "models/small": "model: openai/small\n"}
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return len(files)


def measure_definitions(quick: bool) -> list[Row]:
    """Measure the first load, with the import of the YAML library, and the next ones."""
    times: list[float] = []
    with temporary_folder() as folder:
        count = write_definitions(folder)
        for _ in range(3 if quick else 10):
            start = time.perf_counter()
            found = load_definitions(folder)
            times.append((time.perf_counter() - start) * 1e3)
            assert (len(found), found.problems) == (count, ())
    first, *rest = times
    return [
        Row(name=f"definitions: load {count}", value=first, unit="ms", target=MAX_MS, note="with the import of yaml"),
        Row(name=f"definitions: load {count} again", value=min(rest), unit="ms", low=min(rest), high=max(rest)),
    ]
