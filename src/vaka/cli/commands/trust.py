"""``vaka trust``: trust a folder's own settings, and the question asked on the first run in it."""

import os
from pathlib import Path

import click

from vaka.cli import options
from vaka.cli.bootstrap import config_context, has_terminal
from vaka.cli.errors import UsageError
from vaka.cli.render import as_printable, print_json, print_table
from vaka.config.claude_settings import project_settings_files
from vaka.config.settings import ConfigContext, trust_root_of


@click.command(
    epilog=options.format_examples(
        "vaka trust", "vaka trust ~/work/boat", "vaka trust --no", "vaka trust --list --json"
    )
)
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False), metavar="[DIR]")
@click.option("--no", "refused", is_flag=True, help="Do not trust it, and do not ask again.")
@click.option("--forget", is_flag=True, help="Forget what was said; the next run at a terminal asks again.")
@click.option("--list", "listed", is_flag=True, help="List what was said of which folder.")
@options.json_option
def trust(folder: str | None, refused: bool, forget: bool, listed: bool, as_json: bool) -> None:
    """Trust a folder (this one, or DIR): what its own settings allow counts from now on.

    It is the repository that is meant, if the folder is in one. Until a folder is trusted its vaka.toml and .claude
    settings can only tighten. Whatever it says, it cannot bypass permissions or switch the sandbox off.
    """
    known = config_context().trust
    if refused + forget + listed > 1 or (listed and folder):
        raise UsageError("--no, --forget and --list are different wishes; --list takes no folder")
    if listed:
        answers = list(known.list_decisions())
        if as_json:
            print_json({"folders": answers})
        else:
            rows = [(as_printable(answer.folder), "yes" if answer.trusted else "no") for answer in answers]
            print_table(("FOLDER", "TRUSTED"), rows)
        return
    root = trust_root_of(Path(folder or os.curdir))
    if forget:
        said = "forgotten" if known.forget(root) else "nothing was said of it"
    else:
        known.record(root, not refused)
        said = "not trusted" if refused else "trusted"
    if as_json:
        print_json({"folder": str(root), "trusted": known.lookup(root)})
    else:
        click.echo(f"{as_printable(str(root))}: {said}", err=True)


def ask_trust_once(context: ConfigContext) -> None:
    """Ask the person at the terminal about a folder that brings settings of its own, unless they were asked before."""
    root = trust_root_of(context.cwd)
    if not has_terminal() or context.trust.lookup(root) is not None:
        return
    project = context.project_file
    found = [*([project] if project else []), *project_settings_files(context)]
    mine = [path for path in found if path.resolve().is_relative_to(root)]
    if not mine:
        return
    click.echo(f"{as_printable(str(root))} brings settings of its own:", err=True)
    for path in mine:
        click.echo(f"  {as_printable(str(path))}", err=True)
    click.echo("Until you trust it they can only tighten what is allowed. `vaka trust` changes your answer.", err=True)
    context.trust.record(root, click.confirm("Trust this folder?", default=False, err=True))
