"""``vaka trust``: folders whose own settings count, and the question that is asked once."""

import os
from pathlib import Path

import click

from vaka.cli import options
from vaka.cli.errors import UsageError
from vaka.cli.render import printable
from vaka.cli.report import print_json
from vaka.cli.start import has_terminal, here
from vaka.cli.table import print_table
from vaka.config.layers import Place
from vaka.config.permissions import settings_files
from vaka.config.trust import trusted_root


@click.command(
    epilog=options.examples("vaka trust", "vaka trust ~/work/boat", "vaka trust --no", "vaka trust --list --json")
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
    known = here().trust
    if refused + forget + listed > 1 or (listed and folder):
        raise UsageError("--no, --forget and --list are different wishes; --list takes no folder")
    if listed:
        answers = list(known.all())
        if as_json:
            print_json({"folders": answers})
        else:
            rows = [(printable(answer.folder), "yes" if answer.trusted else "no") for answer in answers]
            print_table(("FOLDER", "TRUSTED"), rows)
        return
    root = trusted_root(Path(folder or os.curdir))
    if forget:
        said = "forgotten" if known.forget(root) else "nothing was said of it"
    else:
        known.remember(root, not refused)
        said = "not trusted" if refused else "trusted"
    if as_json:
        print_json({"folder": str(root), "trusted": known.of(root)})
    else:
        click.echo(f"{printable(str(root))}: {said}", err=True)


def ask_once(place: Place) -> None:
    """Ask the person at the terminal about a folder that brings settings of its own, unless they were asked before."""
    root = trusted_root(place.cwd)
    if not has_terminal() or place.trust.of(root) is not None:
        return
    project = place.project_file
    found = [*([project] if project else []), *settings_files(place)]
    mine = [path for path in found if path.resolve().is_relative_to(root)]
    if not mine:
        return
    click.echo(f"{printable(str(root))} brings settings of its own:", err=True)
    for path in mine:
        click.echo(f"  {printable(str(path))}", err=True)
    click.echo("Until you trust it they can only tighten what is allowed. `vaka trust` changes your answer.", err=True)
    place.trust.remember(root, click.confirm("Trust this folder?", default=False, err=True))
