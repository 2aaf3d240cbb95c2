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


@click.command(epilog=options.format_examples(
    "vaka trust", "vaka trust ~/work/boat", "vaka trust --no", "vaka trust --list --json"
))  # fmt: skip
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False), metavar="[DIR]")
@click.option("--no", "refused", is_flag=True, help="Do not trust it, and do not ask again.")
@click.option("--forget", is_flag=True, help="Delete the decision; the next run at a terminal asks again.")
@click.option("--list", "listed", is_flag=True, help="List the decisions.")
@options.json_option
def trust(folder: str | None, refused: bool, forget: bool, listed: bool, as_json: bool) -> None:
    """Trust a folder (this one, or DIR): from now on its own settings may also allow things.

    A folder in a repository stands for the whole repository. Until it is trusted, its vaka.toml and .claude settings
    can only tighten. They can never bypass permissions or switch the sandbox off.
    """
    store = config_context().trust
    if refused + forget + listed > 1 or (listed and folder):
        raise UsageError("use only one of --no, --forget and --list; --list takes no folder")
    if listed:
        decisions = list(store.list_decisions())
        if as_json:
            print_json({"folders": decisions})
        else:
            rows = [(decision.folder, "yes" if decision.trusted else "no") for decision in decisions]
            print_table(("FOLDER", "TRUSTED"), rows)
        return
    root = trust_root_of(Path(folder or os.curdir))
    if forget:
        status = "decision deleted" if store.forget(root) else "there was no decision"
    else:
        store.record(root, not refused)
        status = "not trusted" if refused else "trusted"
    if as_json:
        print_json({"folder": str(root), "trusted": store.lookup(root)})
    else:
        click.echo(f"{as_printable(str(root))}: {status}", err=True)


def ask_trust_once(context: ConfigContext) -> None:
    """Ask at the terminal whether to trust a folder that has settings of its own, unless there is a decision."""
    root = trust_root_of(context.cwd)
    if not has_terminal() or context.trust.lookup(root) is not None:
        return
    files = [context.project_file, *project_settings_files(context)]
    inside = [file for file in files if file is not None and file.resolve().is_relative_to(root)]
    if not inside:
        return
    click.echo(f"{as_printable(str(root))} has settings of its own:", err=True)
    for path in inside:
        click.echo(f"  {as_printable(str(path))}", err=True)
    click.echo("Until you trust it they can only tighten what is allowed. `vaka trust` changes your answer.", err=True)
    context.trust.record(root, click.confirm("Trust this folder?", default=False, err=True))
