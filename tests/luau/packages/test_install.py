"""``install`` adds packages completely and checked, or changes nothing; ``require`` finds the right version."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.luau.packages.sample_packages import make_archive, manifest_json, publish_package, write_files
from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.files import LOCK_FILE, PACKAGES_FOLDER, PackageLimits
from vaka.luau.packages.install import InstalledPackages, install, open_installed
from vaka.luau.packages.package import PackageReference, pack_folder
from vaka.luau.packages.registry import FolderRegistry, Release
from vaka.luau.packages.resolution import Resolution, resolve, write_lock
from vaka.luau.packages.versions import PackageError, Range, Version


class LyingRegistry:
    """A registry that sends other bytes than its release announces."""

    def __init__(self, honest: FolderRegistry, bytes_sent: bytes) -> None:
        self.honest = honest
        self.bytes_sent = bytes_sent

    async def releases(self, name: str) -> Sequence[Release]:
        return await self.honest.releases(name)

    async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
        return self.bytes_sent if name == "text" else await self.honest.fetch(name, version, limit=limit)


@pytest.fixture
async def registry(tmp_path: Path) -> FolderRegistry:
    registry = FolderRegistry(tmp_path / "registry")
    await publish_package(registry, "json", "1.0.0")
    await publish_package(registry, "json", "1.1.0")
    await publish_package(registry, "json", "2.0.0-rc.1")
    await publish_package(registry, "text", "1.0.0", json="^1")
    files = {
        "pkg.json": manifest_json("@demo/web", "1.2.0", type="tool", dependencies={"text": "~1.0"}),
        "init.luau": b"return {}",
        "sub/module.luau": b"return 'sub'",
    }
    await registry.publish(await pack_folder(write_files(tmp_path / "made" / "web", files)))
    return registry


@pytest.fixture
async def resolution(registry: FolderRegistry) -> Resolution:
    return await resolve({"@demo/web": "^1"}, registry)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project" / PACKAGES_FOLDER


def file_tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def test_all_packages_of_a_resolution_are_unpacked_by_name_and_version(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    assert await install(resolution, root, registry) == ["@demo/web@1.2.0", "json@1.1.0", "text@1.0.0"]
    assert file_tree(root) == [
        "@demo/web/1.2.0/init.luau",
        "@demo/web/1.2.0/pkg.json",
        "@demo/web/1.2.0/sub/module.luau",
        "json/1.1.0/init.luau",
        "json/1.1.0/pkg.json",
        "text/1.0.0/init.luau",
        "text/1.0.0/pkg.json",
    ]


async def test_installed_packages_are_not_fetched_again(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(resolution, root, registry)
    shutil.rmtree(registry.root)
    assert await install(resolution, root, registry) == []


async def test_only_missing_packages_are_added(resolution: Resolution, registry: FolderRegistry, root: Path) -> None:
    await install(resolution, root, registry)
    shutil.rmtree(root / "json")
    assert await install(resolution, root, registry) == ["json@1.1.0"]


async def test_several_versions_of_a_package_are_installed_beside_each_other(
    registry: FolderRegistry, root: Path
) -> None:
    for wanted in ("1.0.0", "1.1.0"):
        await install(await resolve({"json": wanted}, registry), root, registry)
    assert await InstalledPackages(root).versions("json") == [Version(1, 0, 0), Version(1, 1, 0)]


@pytest.mark.parametrize(
    "other", ["return 'evil'", "return 1 -- a comment that makes the archive longer than announced"]
)
async def test_an_archive_with_another_digest_is_refused_and_nothing_is_installed(
    resolution: Resolution, registry: FolderRegistry, root: Path, tmp_path: Path, other: str
) -> None:
    evil = await make_archive(tmp_path, "text", "1.0.0", other, dependencies={"json": "^1"})
    with pytest.raises(Corrupt, match=r"text 1\.0\.0: the archive has sha256 .*; expected"):
        await install(resolution, root, LyingRegistry(registry, evil))
    assert not root.exists() or list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": Version(1, 0, 1)}, "instead of 'text'"),
        ({"checksum": "sha256:" + "0" * 64}, "its files have sha256:"),
        ({"dependencies": {"json": Range("*")}}, "its dependencies differ from those in the registry"),
    ],
)
async def test_an_archive_that_differs_from_its_release_is_refused(
    resolution: Resolution, registry: FolderRegistry, root: Path, change: dict[str, object], problem: str
) -> None:
    honest = resolution.packages["text"]
    sent = await registry.fetch("text", honest.version, limit=honest.size)
    false_release = msgspec.structs.replace(honest, **change)
    wrong = msgspec.structs.replace(resolution, packages={**resolution.packages, "text": false_release})
    with pytest.raises(Corrupt, match=problem):
        await install(wrong, root, LyingRegistry(registry, sent))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("size", [-1, 9_000_000, 2**62])
async def test_a_size_beyond_the_limits_is_refused_before_anything_is_fetched(
    resolution: Resolution, registry: FolderRegistry, root: Path, size: int
) -> None:
    large = msgspec.structs.replace(resolution.packages["json"], size=size)
    wrong = msgspec.structs.replace(resolution, packages={"json": large})
    with pytest.raises(PackageError, match="bytes"):
        await install(wrong, root, LyingRegistry(registry, b""))
    assert not root.exists()


async def test_packages_that_are_too_large_together_are_refused(
    resolution: Resolution, root: Path, registry: FolderRegistry
) -> None:
    large = msgspec.structs.replace(resolution.packages["json"], size=8_000_000)
    wrong = msgspec.structs.replace(resolution, packages={f"p{number}": large for number in range(40)})
    with pytest.raises(PackageError, match="320000000 bytes together; expected at most 268435456"):
        await install(wrong, root, registry)


async def test_a_package_beyond_the_limits_of_the_project_is_refused(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    with pytest.raises(PackageError, match="more than 2 files"):
        await install(resolution, root, registry, limits=PackageLimits(entries=2))
    assert list(root.iterdir()) == []


async def test_a_changed_file_is_an_error_and_is_replaced_only_with_repair(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(resolution, root, registry)
    (root / "json/1.1.0/init.luau").write_bytes(b"return 'mine'")
    with pytest.raises(Corrupt, match=r"json/1\.1\.0: .*; install with repair to replace it"):
        await install(resolution, root, registry)
    assert await install(resolution, root, registry, repair=True) == ["json@1.1.0"]
    assert (root / "json/1.1.0/init.luau").read_bytes() == b"return 1"
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("damage", ["extra", "hidden", "missing", "link", "empty"])
async def test_every_kind_of_damage_is_repaired(
    resolution: Resolution, registry: FolderRegistry, root: Path, damage: str
) -> None:
    await install(resolution, root, registry)
    folder = root / "json/1.1.0"
    match damage:
        case "extra":
            (folder / "more.luau").write_bytes(b"")
        case "hidden":
            (folder / ".more").write_bytes(b"")
        case "missing":
            (folder / "init.luau").unlink()
        case "link":
            (folder / "init.luau").unlink()
            (folder / "init.luau").symlink_to("/etc/hostname")
        case _:
            shutil.rmtree(folder)
            folder.mkdir()
    with pytest.raises(Corrupt):
        await install(resolution, root, registry)
    assert await install(resolution, root, registry, repair=True) == ["json@1.1.0"]
    assert file_tree(folder) == ["init.luau", "pkg.json"]
    assert await install(resolution, root, registry) == []


async def test_concurrent_installs_do_not_disturb_each_other(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await asyncio.gather(*(install(resolution, root, registry) for _ in range(6)))
    assert await install(resolution, root, registry) == []
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


async def test_a_range_finds_the_highest_installed_match(registry: FolderRegistry, root: Path) -> None:
    for wanted in ("1.0.0", "1.1.0", "2.0.0-rc.1"):
        await install(await resolve({"json": wanted}, registry), root, registry)
    installed = InstalledPackages(root)
    found = [await installed.find("json", wanted) for wanted in ("^1", "<1.1", ">=2.0.0-0", Range("latest"), None)]
    assert [package.manifest.version.without_build for package in found] == [
        "1.1.0",
        "1.0.0",
        "2.0.0-rc.1",
        "1.1.0",
        "1.1.0",
    ]


async def test_a_pre_release_is_found_without_a_range_if_nothing_else_is_installed(
    registry: FolderRegistry, root: Path
) -> None:
    await install(await resolve({"json": "2.0.0-rc.1"}, registry), root, registry)
    assert (await InstalledPackages(root).find("json")).manifest.version == Version(2, 0, 0, ("rc", 1))
    with pytest.raises(NotFound, match=r"'json': \* is required, installed: 2\.0\.0-rc\.1"):
        await InstalledPackages(root).find("json", "*")


async def test_without_a_range_the_lock_decides_then_the_manifest_then_the_highest(
    registry: FolderRegistry, root: Path
) -> None:
    old = await resolve({"json": "1.0.0"}, registry)
    await install(old, root, registry)
    await install(await resolve({"json": "1.1.0"}, registry), root, registry)
    project = root.parent
    (project / "pkg.json").write_bytes(manifest_json("project", dependencies={"json": "<1.1"}))
    assert (await (await open_installed(project)).find("json")).manifest.version.without_build == "1.0.0"
    (project / "pkg.json").write_bytes(manifest_json("project", dependencies={"json": "^1"}))
    assert (await (await open_installed(project)).find("json")).manifest.version.without_build == "1.1.0"
    await write_lock(project / LOCK_FILE, old)
    locked = await open_installed(str(project))
    assert (await locked.find("json")).manifest.version.without_build == "1.0.0"
    assert (await locked.find("json", "^1")).manifest.version.without_build == "1.0.0"
    assert (await locked.find("json", ">1.0.0")).manifest.version.without_build == "1.1.0"


async def test_a_locked_version_that_is_not_installed_is_an_error(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(await resolve({"json": "1.0.0"}, registry), root, registry)
    with pytest.raises(NotFound, match=r"'json': the lock file requires 1\.1\.0, installed: 1\.0\.0"):
        await InstalledPackages(root, lock=resolution).find("json")


async def test_a_package_that_is_not_installed_is_an_error(root: Path) -> None:
    with pytest.raises(NotFound, match=r"package 'json': \^1 is required, no version is installed"):
        await InstalledPackages(root).find("json", "^1")
    with pytest.raises(NotFound, match="package 'json': any version is required, no version is installed"):
        await InstalledPackages(root).find("json")
    with pytest.raises(PackageError, match="is not a package name"):
        await InstalledPackages(root).find("../json")


async def test_require_finds_the_entry_and_the_modules_of_a_package(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(resolution, root, registry)
    installed = InstalledPackages(root, lock=resolution, verify=True)
    found = [
        await installed.module_source(reference)
        for reference in ("@demo/web", "@demo/web@^1.0.0/sub/module", PackageReference("@demo/web", None, "sub/module"))
    ]
    assert [(source.chunk, source.code) for source in found] == [
        ("@demo/web@1.2.0/init.luau", b"return {}"),
        ("@demo/web@1.2.0/sub/module.luau", b"return 'sub'"),
        ("@demo/web@1.2.0/sub/module.luau", b"return 'sub'"),
    ]
    with pytest.raises(NotFound, match="has no module 'sub/other'"):
        await installed.module_source("@demo/web/sub/other")


async def test_a_package_is_read_only_once(resolution: Resolution, registry: FolderRegistry, root: Path) -> None:
    await install(resolution, root, registry)
    installed = InstalledPackages(root)
    first = await installed.find("json")
    (root / "json/1.1.0/init.luau").write_bytes(b"return 'changed'")
    assert await installed.find("json", "^1") is first


async def test_a_changed_package_is_refused_when_it_is_loaded(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(resolution, root, registry)
    (root / "json/1.1.0/init.luau").write_bytes(b"return 'evil'")
    with pytest.raises(Corrupt, match=r"its pkg\.json has sha256:"):
        await InstalledPackages(root).find("json")


async def test_only_the_lock_detects_a_package_whose_checksum_was_changed_too(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(resolution, root, registry)
    write_files(root / "json/1.1.0", {"init.luau": b"return 'evil'", "pkg.json": manifest_json("json", "1.1.0")})
    assert (await InstalledPackages(root, lock=resolution).module_source("json")).code == b"return 'evil'"
    with pytest.raises(Corrupt, match="its files have sha256:"):
        await InstalledPackages(root, lock=resolution, verify=True).module_source("json")
    with pytest.raises(Corrupt, match="cannot be verified: no lock file names it"):
        await InstalledPackages(root, verify=True).module_source("json")


async def test_a_package_with_a_checksum_is_verified_without_a_lock(
    resolution: Resolution, registry: FolderRegistry, root: Path
) -> None:
    await install(resolution, root, registry)
    assert (await InstalledPackages(root, verify=True).module_source("json")).code == b"return 1"


async def test_a_package_in_the_folder_of_another_is_refused(root: Path) -> None:
    write_files(root / "json/1.0.0", {"pkg.json": manifest_json("other", "1.0.0"), "init.luau": b""})
    with pytest.raises(Corrupt, match=r"json/1\.0\.0: contains 'other' 1\.0\.0"):
        await InstalledPackages(root).find("json")


async def test_installed_folders_that_are_not_versions_are_ignored(root: Path) -> None:
    write_files(root / "json", {"1.0.0/pkg.json": b"", "notes/a": b"", ".new-x/a": b"", "2.0.0": b"a file"})
    assert await InstalledPackages(root).versions("json") == [Version(1, 0, 0)]


async def test_an_invalid_lock_or_manifest_of_a_project_is_an_error(root: Path) -> None:
    project = write_files(root.parent, {LOCK_FILE: b"{}"})
    with pytest.raises(PackageError, match=r"vaka-luau\.lock: Object missing required field"):
        await open_installed(project)
    write_files(project, {"pkg.json": b"[]"})
    with pytest.raises(PackageError, match=r"pkg\.json: expected an object"):
        await open_installed(project)
