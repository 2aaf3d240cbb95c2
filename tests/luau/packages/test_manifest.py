"""``pkg.json`` is parsed strictly; errors name the path of the field."""

import json
from typing import Any

import pytest

from vaka.luau.packages.package import Manifest, read_manifest, write_manifest
from vaka.luau.packages.versions import PackageError, Range, Version

SMALLEST = {"name": "demo", "version": "1.0.0"}


def read_fields(**fields: Any) -> Manifest:
    return read_manifest(json.dumps({**SMALLEST, **fields}).encode())


def test_only_name_and_version_are_required() -> None:
    assert read_fields() == Manifest("demo", Version(1, 0, 0), "lib", "init.luau", {}, "")


def test_every_field_survives_a_round_trip() -> None:
    digest = "sha256:" + "0a" * 32
    manifest = read_fields(type="tool", entry="src/main.luau", dependencies={"@a/b": ">=1  <2"}, checksum=digest)
    assert manifest == Manifest("demo", Version(1, 0, 0), "tool", "src/main.luau", {"@a/b": Range(">=1 <2")}, digest)
    assert read_manifest(write_manifest(manifest)) == manifest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nmae": "x"}, "unknown key 'nmae'; did you mean 'name'?"),
        ({"dependancies": {}}, "unknown key 'dependancies'; did you mean 'dependencies'?"),
        ({"license": "MIT"}, "unknown key 'license'; expected one of name, version, type"),
        ({"name": 1}, "Expected `str`, got `int` - at `$.name`"),
        ({"name": "../x"}, "'../x' is not a package name"),
        ({"version": 1.0}, "Expected `str`, got `float` - at `$.version`"),
        ({"version": None}, "got `NoneType` - at `$.version`"),
        ({"version": "1.0"}, "'1.0' is not a version: it has fewer than three numbers"),
        ({"type": "plugin"}, "Invalid enum value 'plugin' - at `$.type`"),
        ({"entry": "/init.luau"}, "path '/init.luau' is absolute"),
        ({"entry": "../init.luau"}, "leads out of its folder"),
        ({"entry": "init.lua"}, "entry 'init.lua' is not a .luau file"),
        ({"entry": ["init.luau"]}, "Expected `str`, got `array` - at `$.entry`"),
        ({"dependencies": ["json"]}, "Expected `object`, got `array` - at `$.dependencies`"),
        ({"dependencies": {"json": 1}}, "Expected `str`, got `int` - at `$.dependencies[...]`"),
        ({"dependencies": {"json": "newest"}}, "range 'newest'"),
        ({"dependencies": {"../json": "*"}}, "'../json' is not a package name"),
        ({"checksum": "md5:abc"}, "checksum 'md5:abc'; expected 'sha256:' and 64 hexadecimal digits"),
        ({"checksum": 5}, "Expected `str`, got `int` - at `$.checksum`"),
    ],
)
def test_the_error_names_an_invalid_field_and_what_was_expected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PackageError) as error:
        read_fields(**fields)
    assert message in str(error.value)
    assert str(error.value).startswith("pkg.json: ")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"{}",
        b'{"name": "demo"}',
        b'{"version": "1.0.0"}',
        b"\xff\xfe{}",
        b'{"name": "\xff", "version": "1.0.0"}',
        b'{"name": "demo", "version": "1.0.0"} x',
        b"[" * 60_000,
        b'{"name":' * 7_000,
        b" " * 70_000,
    ],
)
def test_an_invalid_manifest_is_a_package_error(data: bytes) -> None:
    with pytest.raises(PackageError, match=r"^pkg\.json: "):
        read_manifest(data)
