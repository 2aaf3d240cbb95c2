"""``vaka keys``: create, list, revoke and rotate the API keys of the server, and make links to its console."""

import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import with_runtime
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.render import as_printable, format_age, print_json, print_table
from vaka.cli.kit.stdout import echo
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import NotFound
from vaka.core.types.message import replace_surrogates
from vaka.runtime.runtime import Runtime
from vaka.server.auth.addresses import find_addresses, login_url
from vaka.server.auth.api_keys import DEFAULT_SCOPES, ApiKey, ApiKeys, KeyOptions, open_api_keys
from vaka.server.auth.pepper import load_pepper
from vaka.server.auth.tickets import Tickets
from vaka.server.kit.principal import LOCAL_PRINCIPAL, SCOPES

T = TypeVar("T")

DEFAULT_OVERLAP = 24 * 3600.0


@click.group()
def keys() -> None:
    """Create, list, revoke and rotate API keys of `vaka serve`, and print links to its console."""


@keys.command(
    epilog=options.format_examples(
        "vaka keys create --name ci",
        "vaka keys create --name app --scope runs:read --scope runs:write --tenant acme --expires 90d",
        "export VAKA_API_KEY=$(vaka keys create)",
    )
)
@click.option("--name", default="", help="What the key is for; shown by `vaka keys list`.")
@click.option(
    "--scope",
    multiple=True,
    type=click.Choice(SCOPES),
    default=DEFAULT_SCOPES,
    show_default=True,
    help="What the key may do; may be repeated. admin: everything in its tenant; operator: the whole server.",
)
@click.option("--tenant", default="", help="The namespace of the store that the key sees; default: as in `vaka run`.")
@click.option("--owner", default="", help="The owner of the sessions that it creates; default: the key itself.")
@click.option("--own-sessions-only", is_flag=True, help="Hide the sessions of other owners from it.")
@click.option(
    "--expires", type=options.Duration(), metavar="TIME", help="Its lifetime, such as 90d; default: for ever."
)
@click.option(
    "--rpm", type=click.IntRange(min=1), default=None, help="Requests per minute; default: as the server says."
)
@options.json_option
@options.store_options
def create(expires: float | None, rpm: int | None, **flags: Any) -> None:
    """Create a key and print it. It cannot be shown again: the store has only a digest of it."""
    wanted = KeyOptions(
        name=replace_surrogates(flags["name"]),
        namespace=replace_surrogates(flags["tenant"]),
        owner=replace_surrogates(flags["owner"]),
        scopes=tuple(flags["scope"]),
        own_sessions_only=flags["own_sessions_only"],
        requests_per_minute=rpm or 0,
        lifetime=expires,
    )
    key, text = _with_keys(flags, lambda keys: keys.create(wanted))
    _print_new_key(key, text, as_json=flags["as_json"])


@keys.command("list", epilog=options.format_examples("vaka keys list", "vaka keys list --json"))
@options.json_option
@options.store_options
def list_(**flags: Any) -> None:
    """List the keys, the oldest first, without their secrets."""

    async def work(keys: ApiKeys) -> list[dict[str, Any]]:
        return [_describe(key, keys.status_of(key), await keys.last_used(key.id)) for key in await keys.list()]

    rows = _with_keys(flags, work, to_list=True)
    if flags["as_json"]:
        print_json({"keys": rows})
        return
    columns = ("ID", "NAME", "STATUS", "TENANT", "OWNER", "SCOPES", "AGE", "EXPIRES", "USED")
    print_table(
        columns,
        [
            (
                row["id"],
                row["name"],
                row["status"],
                row["tenant"],
                row["owner"],
                " ".join(row["scopes"]),
                format_age(row["created"]),
                row["expires"] or "",
                format_age(row["last_used"]) if row["last_used"] else "",
            )
            for row in rows
        ],
    )


@keys.command(epilog=options.format_examples("vaka keys revoke 4f8a0c2d"))
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@options.store_options
def revoke(ids: tuple[str, ...], **flags: Any) -> None:
    """Revoke keys, for ever. A running server refuses them within two seconds."""

    async def work(keys: ApiKeys) -> list[ApiKey]:
        found = [await keys.find(id) for id in ids]  # before the first is revoked: a wrong id changes nothing
        return [await keys.revoke(key.id) for key in found]

    for key in _with_keys(flags, work):
        click.echo(f"revoked {_label(key)} at {key.revoked}", err=True)


@keys.command(epilog=options.format_examples("vaka keys rotate 4f8a0c2d", "vaka keys rotate 4f8a0c2d --overlap 1h"))
@click.argument("id", metavar="ID")
@click.option(
    "--overlap",
    type=options.Duration(),
    default=DEFAULT_OVERLAP,
    metavar="TIME",
    help="How long the old key still works, such as 1h; default: 1d.",
)
@options.json_option
@options.store_options
def rotate(id: str, overlap: float, **flags: Any) -> None:
    """Create a key like another one and print it; the other one expires after the overlap."""
    key, text, old = _with_keys(flags, lambda keys: keys.rotate(id, overlap))
    click.echo(f"{_label(old)} expires at {old.expires}", err=True)
    _print_new_key(key, text, as_json=flags["as_json"])


@keys.command(
    epilog=options.format_examples(
        "vaka keys link",
        "vaka keys link --store postgresql:///vaka",
        "vaka keys link --url https://agents.example.com",
    )
)
@click.option("--url", default="", metavar="URL", help="The address of the server, if it is not found by its store.")
@options.store_options
def link(url: str, **flags: Any) -> None:
    """Print a new link that logs a browser in to the console of a running server, once and within an hour.

    Who opens it may do everything, as with the link that `vaka serve` prints. The command needs access to the store of
    the server, which other users of the machine do not have.
    """

    async def work(runtime: Runtime) -> str:
        values = runtime.store.values
        address = url or await _find_address(values)
        tickets = Tickets(values, await load_pepper(values, os.environ), runtime.env.clock)
        return login_url(address, await tickets.issue_link(LOCAL_PRINCIPAL))

    echo(_with_store(flags, work))


async def _find_address(values: KeyValueStore) -> str:
    found = await find_addresses(values)
    if not found:
        raise NotFound("no server of this store runs here; start `vaka serve`, or name its address with --url")
    if len(found) > 1:
        raise UsageError(f"several servers use this store: {', '.join(found)}; name one of them with --url")
    return found[0]


def _with_keys(flags: dict[str, Any], work: Callable[[ApiKeys], Coroutine[Any, Any, T]], *, to_list: bool = False) -> T:
    """Run ``work`` with the keys of the store that flags and settings name."""

    async def work_with_store(runtime: Runtime) -> T:
        keys = await open_api_keys(runtime.store.values, os.environ, runtime.env.clock, to_list=to_list)
        return await work(keys)

    return _with_store(flags, work_with_store)


def _with_store(flags: dict[str, Any], work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on the store of a server, which flags and settings name."""

    async def work_with_runtime(runtime: Runtime) -> T:
        if runtime.store.url.startswith("memory:"):
            raise UsageError("memory: ends with this command; name the store of the server, such as sqlite:///vaka.db")
        return await work(runtime)

    return with_runtime(flags, work_with_runtime)


def _print_new_key(key: ApiKey, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": text, **_describe(key, "active", "")})
        return
    until = f", until {key.expires}" if key.expires else ""
    click.echo(f"key {_label(key)} with {' '.join(key.scopes)}{until}; it is shown only now:", err=True)
    echo(text)


def _label(key: ApiKey) -> str:
    return f"{key.id} ({as_printable(key.name, lines=False)})" if key.name else key.id


def _describe(key: ApiKey, status: str, last_used: str) -> dict[str, Any]:
    fields = msgspec.structs.asdict(key)
    shown = {name: fields[name] for name in ("id", "name", "owner", "scopes", "own_sessions_only", "created")}
    times = {name: fields[name] or None for name in ("expires", "revoked")}
    return {
        **shown,
        **times,
        "tenant": key.namespace,
        "status": status,
        "last_used": last_used or None,
        "requests_per_minute": key.requests_per_minute or None,
    }
