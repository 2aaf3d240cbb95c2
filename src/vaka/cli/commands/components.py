"""``vaka skills``, ``vaka commands``, ``vaka agents``: list what the ``.claude`` folders and plugins define."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, print_notes
from vaka.cli.kit.render import print_json, print_table
from vaka.core.types.errors import ConfigError
from vaka.policy.tool_targets import BUILTIN_TOOLS, FOREIGN_TOOLS, builtin_name_of
from vaka.project.claude_settings import load_settings_files
from vaka.project.components import AgentFile, CommandFile, Component, Components, Skill, components_in_force


def _make_group(
    name: str,
    noun: str,
    select: Callable[[Components], Sequence[Component]],
    find_defined: "Callable[[list[str]], list[dict[str, Any]]]" = lambda notes: [],
) -> click.Group:
    """Return a group of commands about one kind of component.

    ``find_defined`` returns what definitions describe, which comes first, and adds what is wrong with them.
    """

    @click.group(name, help=f"List the {noun} of the project, of your home folder and of plugins.")
    def group() -> None:
        """Take a command."""

    @group.command(
        "list",
        help=f"List the {noun}; problems are printed on stderr.",
        epilog=options.format_examples(
            f"vaka {name} list",
            f"vaka {name} list --json",
        ),
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, with all fields.")
    @options.plugin_option
    @click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
    def list_components(as_json: bool, plugin_dir: tuple[str, ...], verbose: bool) -> None:
        context, unreadable = config_context(), list[str]()
        try:
            files = load_settings_files(context)
        except ConfigError as error:  # what they switch off is listed then
            files = []
            unreadable.append(str(error))
        found = components_in_force(context, [Path(folder) for folder in plugin_dir], files)
        items = select(found)
        defined = find_defined(unreadable)
        first: dict[str, Component | None] = {component.name: component for component in reversed(items)}
        first |= dict.fromkeys(item["name"] for item in defined)
        if as_json:
            print_json([*defined, *(_describe(item, active=first[item.name] is item) for item in items)])
        else:
            rows = [(item["name"], item["source"], item["description"]) for item in defined]
            rows += [(item.name, _origin_of(item), item.description) for item in items]
            print_table(("NAME", "SOURCE", "DESCRIPTION"), rows)
        print_notes(unreadable, found.problems, (problem for item in items for problem in _problems_of(item)))

    return group


def _origin_of(item: Component) -> str:
    return f"plugin {item.plugin}" if item.plugin else item.source


def _problems_of(item: Component) -> tuple[str, ...]:
    """Return what is wrong with a component; here the tools are known that an agent may name."""
    tools = (item.tools or ()) if isinstance(item, AgentFile) else ()
    names = [builtin_name_of(tool.partition("(")[0].strip()) for tool in tools]
    unknown = [name for name in names if name not in {*BUILTIN_TOOLS, *FOREIGN_TOOLS} and not name.startswith("mcp__")]
    wrong = f"{item.path}: tools: there is no {', no '.join(unknown)} here"
    return (*item.problems, *([wrong] if unknown else []))


def _describe(item: Component, *, active: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": item.name,
        "description": item.description,
        "source": item.source,
        "plugin": item.plugin,
        "path": str(item.path),
        "model": item.model,
        "active": active,
        "problems": _problems_of(item),
    }
    match item:
        case Skill():
            more: dict[str, Any] = {
                "allowed_tools": item.allowed_tools,
                "model_invocable": item.model_invocable,
                "user_invocable": item.user_invocable,
            }
        case CommandFile():
            more = {
                "allowed_tools": item.allowed_tools,
                "argument_hint": item.argument_hint,
                "model_invocable": item.model_invocable,
            }
        case AgentFile():
            more = {
                "tools": item.tools,
                "disallowed_tools": item.disallowed_tools,
                "skills": item.skills,
                "permission_mode": item.permission_mode,
                "max_turns": item.max_turns,
            }
        case _:
            more = {}
    return described | more


def _describe_defined_agents(notes: list[str]) -> list[dict[str, Any]]:
    from vaka.cli.project_agents import describe_defined_agents

    return describe_defined_agents(notes)


skills = _make_group("skills", "skills", lambda found: found.skills)
commands = _make_group("commands", "slash commands", lambda found: found.commands)
agents = _make_group("agents", "agents", lambda found: found.agents, _describe_defined_agents)
