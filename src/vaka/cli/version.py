"""``vaka version``."""

import platform

import click

from vaka import __version__
from vaka.cli import options
from vaka.cli.report import print_json
from vaka.core.types.event import VERSION


@click.command(epilog=options.examples("vaka version --json"))
@options.json_option
def version(as_json: bool) -> None:
    """Print versions."""
    facts = {"vaka": __version__, "events": VERSION, "python": platform.python_version(), "system": platform.platform()}
    if as_json:
        print_json(facts)
    else:
        click.echo(f"vaka {__version__} (events v{VERSION}, Python {facts['python']}, {facts['system']})")
