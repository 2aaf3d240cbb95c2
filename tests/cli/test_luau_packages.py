"""Packages of Luau libraries from the shell: pack, publish, install, list, and require."""

import json

from tests.cli.shell import Shell


def write_package(shell: Shell, name: str, version: str, code: str, **dependencies: str) -> str:
    folder = f"libraries/{name}/{version}"
    shell.write_file(f"{folder}/pkg.json", json.dumps({"name": name, "version": version, "dependencies": dependencies}))
    shell.write_file(f"{folder}/init.luau", code)
    return folder


def test_a_package_is_packed_published_installed_listed_and_required(shell: Shell) -> None:
    words = write_package(shell, "words", "1.2.0", "return { hello = 'Aloha' }")
    greet = write_package(
        shell,
        "@demo/greet",
        "0.1.0",
        "return function(who) return require('words').hello .. ' ' .. who end",
        words="^1",
    )
    packed = shell.vaka("luau", "pack", words)
    assert (packed.code, packed.out) == (0, "words-1.2.0.tar.gz\n")
    published = [shell.vaka("luau", "publish", what, "--registry", "shelf").out for what in (packed.out.strip(), greet)]
    assert published == ["words@1.2.0\n", "@demo/greet@0.1.0\n"]
    installed = shell.vaka("luau", "install", "@demo/greet", "--registry", "shelf")
    assert (installed.code, installed.out) == (0, "@demo/greet@0.1.0\nwords@1.2.0\n")
    assert shell.vaka("luau", "list", "--json").json["packages"] == [
        {"name": "@demo/greet", "version": "0.1.0"},
        {"name": "words", "version": "1.2.0"},
    ]
    assert shell.vaka("luau", "install", "--registry", "shelf").out == ""
    source = "print(require('@demo/greet')('Kai'), require('words').hello, require('words@^1').hello)"
    shell.write_file("hi.luau", source)
    assert shell.vaka("luau", "hi.luau").out == "Aloha Kai\tAloha\tAloha\n"


def test_a_package_command_without_what_it_needs_is_a_usage_error(shell: Shell) -> None:
    nothing = shell.vaka("luau", "install", "--registry", "shelf")
    assert (nothing.code, "name a package to install" in nothing.err) == (2, True)
    module = shell.vaka("luau", "install", "@demo/greet/sub", "--registry", "shelf")
    assert (module.code, "expected the name of a package" in module.err) == (2, True)
    missing = shell.vaka("luau", "install", "nowhere", "--registry", "shelf")
    assert (missing.code != 0, "nowhere" in missing.err) == (True, True)
