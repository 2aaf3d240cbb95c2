"""A package is equal whether it is read from a folder or an archive, and changed files are detected."""

import hashlib
import os
from pathlib import Path

import pytest

from tests.luau.packages.sample_packages import gzip_bytes, make_tar, manifest_json, tar_entry, write_files
from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.files import PackageLimits, unpack_archive
from vaka.luau.packages.package import (
    ModuleSource,
    pack_folder,
    read_manifest,
    read_package,
    read_package_folder,
)
from vaka.luau.packages.versions import PackageError

FILES = {
    "pkg.json": manifest_json("@demo/text", "1.2.0+local", dependencies={"json": "^1"}),
    "init.luau": b"return require('./trim')",
    "trim.luau": b"return 1",
    "sub/init.luau": b"return 2",
    "sub/deep.luau": b"return 3",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "text", FILES)


async def test_a_packed_folder_contains_its_files_and_their_checksum(folder: Path) -> None:
    package = read_package(await pack_folder(folder))
    assert dict(package.files) | {"pkg.json": b""} == FILES | {"pkg.json": b""}
    assert package.manifest.checksum == package.checksum == read_package_folder(folder).checksum
    assert str(package) == "'@demo/text' 1.2.0+local"


async def test_a_package_is_the_same_from_a_folder_and_from_an_archive(folder: Path, tmp_path: Path) -> None:
    opened = [read_package_folder(folder), read_package(await pack_folder(folder))]
    assert opened[0].checksum == opened[1].checksum
    assert opened[0].module_source("sub") == opened[1].module_source("sub")
    with pytest.raises(NotFound, match="no such folder"):
        read_package_folder(tmp_path / "nowhere")


async def test_packing_equal_files_gives_equal_bytes_regardless_of_place_order_and_times(
    folder: Path, tmp_path: Path
) -> None:
    first = await pack_folder(folder)
    other = write_files(tmp_path / "other", dict(reversed(FILES.items())))
    os.utime(other / "init.luau", (1, 1))
    (other / "trim.luau").chmod(0o700)
    unpacked = write_files(tmp_path / "unpacked", unpack_archive(first))
    assert [await pack_folder(other), await pack_folder(str(unpacked))] == [first, first]


async def test_the_checksum_is_the_documented_one(folder: Path) -> None:
    package = read_package(await pack_folder(folder))
    plain = package.files["pkg.json"].replace(f',\n  "checksum": "{package.checksum}"'.encode(), b"")
    lines = [
        f"{hashlib.sha256(plain if path == 'pkg.json' else data).hexdigest()}  {path}\n"
        for path, data in sorted(package.files.items())
    ]
    assert package.checksum == "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


async def test_hidden_files_and_installed_packages_are_left_out(folder: Path) -> None:
    write_files(
        folder,
        {".git/config": b"x", ".env": b"SECRET", "luau_packages/json/1.0.0/init.luau": b"x", "vaka-luau.lock": b"{}"},
    )
    write_files(folder, {"sub/.cache": b"x"})
    assert set(unpack_archive(await pack_folder(folder))) == set(FILES)


async def test_a_stale_checksum_is_replaced_by_packing_and_refused_by_reading(folder: Path) -> None:
    stale = "sha256:" + "0" * 64
    (folder / "pkg.json").write_bytes(manifest_json("@demo/text", "1.2.0", checksum=stale))
    assert read_manifest(unpack_archive(await pack_folder(folder))["pkg.json"]).checksum != stale
    with pytest.raises(Corrupt, match=f"its pkg.json has {stale}, its files have sha256:"):
        read_package_folder(folder)


async def test_an_archive_whose_files_were_changed_is_refused(folder: Path) -> None:
    files = unpack_archive(await pack_folder(folder))
    changed = make_tar(*(tar_entry(path, b"evil" if path == "trim.luau" else data) for path, data in files.items()))
    with pytest.raises(Corrupt, match="its files have sha256:"):
        read_package(gzip_bytes(changed))


async def test_a_link_in_a_folder_is_refused(folder: Path) -> None:
    (folder / "passwd.luau").symlink_to("/etc/passwd")
    with pytest.raises(PackageError, match=r"'passwd\.luau' is a link; expected regular files and folders only"):
        await pack_folder(folder)


async def test_a_linked_folder_is_refused(folder: Path) -> None:
    (folder / "more").symlink_to(folder / "sub")
    with pytest.raises(PackageError, match="'more' is a link"):
        await pack_folder(folder)


async def test_a_pipe_in_a_folder_is_refused_and_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe.luau")
    with pytest.raises(PackageError, match=r"'pipe\.luau' is a special file"):
        await pack_folder(folder)


async def test_a_folder_with_too_many_folders_is_refused(folder: Path) -> None:
    for number in range(20):
        (folder / f"empty{number}").mkdir()
    with pytest.raises(PackageError, match="more than 5 files"):
        await pack_folder(folder, PackageLimits(entries=5))


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (PackageLimits(unpacked=60), "more than"),
        (PackageLimits(entries=4), "more than 4 files"),
        (PackageLimits(entries=2), "more than 2 files"),
        (PackageLimits(packed=50), "when packed"),
    ],
)
async def test_a_folder_beyond_the_limits_is_refused(folder: Path, limits: PackageLimits, problem: str) -> None:
    with pytest.raises(PackageError, match=problem):
        await pack_folder(folder, limits)


async def test_a_folder_that_is_not_a_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such folder"):
        await pack_folder(tmp_path / "nowhere")
    with pytest.raises(PackageError, match=r"no pkg\.json at the top level"):
        await pack_folder(write_files(tmp_path / "a", {"init.luau": b""}))
    with pytest.raises(PackageError, match=r"entry 'init\.luau' of pkg\.json does not exist"):
        await pack_folder(write_files(tmp_path / "b", {"pkg.json": manifest_json()}))
    with pytest.raises(PackageError, match=r"pkg\.json: Expected `str`, got `int` - at `\$\.entry`"):
        await pack_folder(write_files(tmp_path / "c", {"pkg.json": manifest_json(entry=1)}))


def test_an_archive_needs_its_manifest_at_the_top() -> None:
    with pytest.raises(PackageError, match=r"archive: no pkg\.json at the top level"):
        read_package(
            gzip_bytes(make_tar(tar_entry("package/pkg.json", manifest_json()), tar_entry("package/init.luau", b"")))
        )


@pytest.mark.parametrize(
    ("module", "path"),
    [("", "init.luau"), ("trim", "trim.luau"), ("sub", "sub/init.luau"), ("sub/deep", "sub/deep.luau")],
)
def test_a_module_is_a_file_or_the_init_of_a_folder(folder: Path, module: str, path: str) -> None:
    found = read_package_folder(folder).module_source(module)
    assert found == ModuleSource(f"@demo/text@1.2.0/{path}", path, FILES[path])


def test_the_error_of_a_missing_module_names_the_files_searched(folder: Path) -> None:
    with pytest.raises(NotFound, match=r"has no module 'trims'; looked for 'trims\.luau' and 'trims/init\.luau'"):
        read_package_folder(folder).module_source("trims")


@pytest.mark.parametrize("module", ["../x", "/etc/passwd", "a/../../b", "a\\b", "a\0"])
def test_a_module_name_never_leaves_its_package(folder: Path, module: str) -> None:
    with pytest.raises(PackageError, match="expected a relative path"):
        read_package_folder(folder).module_source(module)
