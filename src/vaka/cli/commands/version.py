"""``vaka version`` and ``vaka completion``."""

import platform

import click
from click.shell_completion import get_completion_class

from vaka import __version__
from vaka.cli.command_table import format_examples
from vaka.cli.kit.options import json_option
from vaka.cli.kit.render import print_json
from vaka.core.types.event import VERSION


@click.command(epilog=format_examples("vaka version --json"))
@json_option
def version(as_json: bool) -> None:
    """Print versions."""
    facts = {"vaka": __version__, "events": VERSION, "python": platform.python_version(), "system": platform.platform()}
    if as_json:
        print_json(facts)
    else:
        click.echo(f"vaka {__version__} (events v{VERSION}, Python {facts['python']}, {facts['system']})")


@click.command(
    epilog=format_examples(
        'eval "$(vaka completion bash)"     # in ~/.bashrc',
        'eval "$(vaka completion zsh)"      # in ~/.zshrc',
        "vaka completion fish > ~/.config/fish/completions/vaka.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    root = context.find_root()
    name = root.info_name or "vaka"
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  # click knows the three
    click.echo(kind(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
