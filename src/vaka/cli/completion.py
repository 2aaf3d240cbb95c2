"""``vaka completion``: what a shell needs to complete our commands."""

import click
from click.shell_completion import get_completion_class

from vaka.cli import options

_HOW = options.examples(
    'eval "$(vaka completion bash)"     # in ~/.bashrc',
    'eval "$(vaka completion zsh)"      # in ~/.zshrc',
    "vaka completion fish > ~/.config/fish/completions/vaka.fish",
)


@click.command(epilog=_HOW)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    root = context.find_root()
    name = root.info_name or "vaka"
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  # click knows the three
    click.echo(kind(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
