"""``vaka keys``: what it prints, what it stores, and what it refuses."""

import re

from tests.cli.shell import Shell

KEY = re.compile(r"ak_[a-z0-9]{8}_[A-Za-z0-9_-]{43}")


def test_a_key_is_printed_once_listed_rotated_and_revoked(shell: Shell) -> None:
    created = shell.vaka(
        "keys",
        "create",
        "--name",
        "ci",
        "--scope",
        "runs:read",
        "--scope",
        "operator",
        "--tenant",
        "acme",
        "--owner",
        "kim",
        "--own-sessions-only",
        "--expires",
        "90d",
        "--rpm",
        "30",
    )
    key = created.out.strip()
    assert (created.code, bool(KEY.fullmatch(key))) == (0, True)
    assert re.fullmatch(
        rf"key {key[3:11]} \(ci\) with runs:read operator, until \S+Z; it is shown only now:\n", created.err
    )
    (row,) = shell.vaka("keys", "list", "--json").json["keys"]
    assert row == {
        "id": key[3:11],
        "name": "ci",
        "owner": "kim",
        "scopes": ["runs:read", "operator"],
        "own_sessions_only": True,
        "created": row["created"],
        "expires": row["expires"],
        "revoked": None,
        "tenant": "acme",
        "status": "active",
        "last_used": None,
        "requests_per_minute": 30,
    }
    rotated = shell.vaka("keys", "rotate", key, "--overlap", "1h", "--json").json
    assert KEY.fullmatch(rotated.pop("key"))
    assert rotated == row | {name: rotated[name] for name in ("id", "created", "expires")}
    listed = shell.vaka("keys", "list").out
    assert [line.split()[:3] for line in listed.splitlines()] == [
        ["ID", "NAME", "STATUS"],
        [key[3:11], "ci", "active"],
        [rotated["id"], "ci", "active"],
    ]
    assert key not in listed
    wrong = shell.vaka("keys", "revoke", rotated["id"], "no-such")
    assert (wrong.code, wrong.err) == (2, "error: there is no key 'no-such'; `vaka keys list` shows them\n")
    revoked = shell.vaka("keys", "revoke", key, f"ak_{rotated['id']}")
    assert [line.split()[:2] for line in revoked.err.splitlines()] == [
        ["revoked", key[3:11]],
        ["revoked", rotated["id"]],
    ]
    assert {row["status"] for row in shell.vaka("keys", "list", "--json").json["keys"]} == {"revoked"}
    again = shell.vaka("keys", "rotate", key)
    assert (again.code, again.err) == (2, f"error: the key {key[3:11]} is revoked; create a new one\n")


def test_a_key_that_could_not_be_used_is_not_created(shell: Shell) -> None:
    for words, message in (
        (("--store", "memory:"), "memory: ends with this command"),
        (("--scope", "runs:reed"), "'runs:reed' is not one of"),
        (("--expires", "soon"), "Invalid value for '--expires'"),
        (("--rpm", "0"), "Invalid value for '--rpm'"),
        (("--name", "a\nb"), "the name of a key has at most 128 printable characters"),
    ):
        refused = shell.vaka("keys", "create", *words)
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.err
    assert shell.vaka("keys", "create", VAKA_SERVER_PEPPER="short").code == 3
    assert shell.vaka("keys", "list", "--json").json == {"keys": []}


def test_a_key_of_another_pepper_is_marked_in_the_list(shell: Shell) -> None:
    pepper = "0123456789abcdef"
    shell.vaka("keys", "create", VAKA_SERVER_PEPPER=pepper)
    listed = shell.vaka("keys", "list", "--json", VAKA_SERVER_PEPPER=pepper)
    assert [row["status"] for row in listed.json["keys"]] == ["active"]
    assert [row["status"] for row in shell.vaka("keys", "list", "--json").json["keys"]] == ["other pepper"]
