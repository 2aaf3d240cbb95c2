"""Names of packages, paths and references: valid ones are accepted, others raise ``PackageError``."""

import pytest

from vaka.luau.packages.files import check_path
from vaka.luau.packages.package import PackageReference, check_package_name
from vaka.luau.packages.versions import PackageError, Range


@pytest.mark.parametrize("name", ["json", "@haivivi/http", "a", "3d", "a_b-c", "@a/b"])
def test_a_package_name_may_have_a_scope(name: str) -> None:
    assert check_package_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "@",
        "@a",
        "@a/",
        "@/b",
        "/b",
        "a/b",
        "@a/b/c",
        "A",
        "@A/b",
        "a.b",
        "..",
        "@../b",
        "@a/..",
        "a b",
        "a\n",
        "a\0",
        "-a",
        "_a",
        "ä",
        "a" * 65,
        "con",
        "@nul/x",
        "@x/com1",
        "a\\b",
        "a@1",
        "@@a/b",
        ".hidden",
    ],
)
def test_an_invalid_package_name_is_refused(name: str) -> None:
    with pytest.raises(PackageError, match="is not a package name"):
        check_package_name(name)


UNSAFE_PATHS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../b",
    "a/..",
    "a//b",
    "a/",
    "./a",
    "a/.",
    "a\\b",
    "c:/x",
    "a:b",
    "a\nb",
    "a\0b",
    "a\x7f",
    "a\u202eb",
    "\udcff",
    "a.",
    "a ",
    " a",
    "a/b./c",
    "nul",
    "x/CON.luau",
    "a*",
    "a?",
    "a|b",
    '"',
    "x" * 201,
    "é" * 101,
    "a/" * 40 + "b",
    "abcdefgh/" * 60 + "b",
]


def is_accepted(path: str) -> bool:
    try:
        check_path(path)
    except PackageError as error:
        assert "expected a relative path" in str(error)  # noqa: PT017  # the caller collects accepted paths
        return False
    return True


def test_paths_that_are_not_safe_on_every_system_are_refused() -> None:
    assert [path for path in UNSAFE_PATHS if is_accepted(path)] == []


@pytest.mark.parametrize("path", ["init.luau", "sub/module.luau", ".luaurc", "é.luau", "a b.luau", "a-b_c.d.luau"])
def test_an_ordinary_path_is_accepted(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("json", PackageReference("json")),
        ("json/decode", PackageReference("json", None, "decode")),
        ("json@1", PackageReference("json", Range("1"))),
        ("@scope/pkg", PackageReference("@scope/pkg")),
        ("@scope/pkg@^1.0.0", PackageReference("@scope/pkg", Range("^1.0.0"))),
        ("@scope/pkg@^1.0.0/sub/module", PackageReference("@scope/pkg", Range("^1.0.0"), "sub/module")),
        ("@scope/pkg@>=1.0 <2/sub", PackageReference("@scope/pkg", Range(">=1.0 <2"), "sub")),
        ("@scope/pkg/sub/a@b", PackageReference("@scope/pkg", None, "sub/a@b")),
    ],
)
def test_require_names_a_package_a_range_and_a_module(text: str, expected: PackageReference) -> None:
    assert PackageReference.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "@scope",
        "@scope/",
        "@scope/pkg@",
        "json@",
        "json@ ",
        "json/",
        "json/../x",
        "json//x",
        "/json",
        "./json",
        "../json",
        "\\json",
        "json@nope",
        "@scope/pkg@^1.0.0/",
        "@scope/pkg@^1.0.0/../../x",
        "@scope/pkg@^1@2",
        "json@1/\\x",
    ],
)
def test_an_invalid_reference_is_refused(text: str) -> None:
    with pytest.raises(PackageError):
        PackageReference.parse(text)
