"""The registry in a folder: a published version never changes, and modified files are detected."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.luau.packages.sample_packages import (
    gzip_bytes,
    make_archive,
    make_tar,
    manifest_json,
    publish_package,
    tar_entry,
)
from vaka.core.types.errors import Corrupt, NotFound, StoreError
from vaka.luau.packages.files import PackageLimits
from vaka.luau.packages.package import read_package
from vaka.luau.packages.registry import FolderRegistry, Release
from vaka.luau.packages.versions import PackageError, Range, Version

LIMIT = 100_000


@pytest.fixture
def registry(tmp_path: Path) -> FolderRegistry:
    return FolderRegistry(tmp_path / "registry")


async def published_versions(registry: FolderRegistry, name: str) -> list[str]:
    return [str(release.version) for release in await registry.releases(name)]


async def test_a_published_package_is_listed_and_fetched(registry: FolderRegistry, tmp_path: Path) -> None:
    archive = await make_archive(tmp_path, "@demo/text", "1.0.0", type="tool", dependencies={"json": "^1"})
    release = await registry.publish(archive)
    assert release == Release(
        Version(1, 0, 0),
        hashlib.sha256(archive).hexdigest(),
        len(archive),
        read_package(archive).checksum,
        "tool",
        {"json": Range("^1")},
    )
    assert await registry.releases("@demo/text") == [release]
    assert await registry.fetch("@demo/text", Version(1, 0, 0), limit=LIMIT) == archive
    assert await registry.names() == ["@demo/text"]


async def test_archives_and_index_are_stored_by_name_and_version(registry: FolderRegistry) -> None:
    await publish_package(registry, "@demo/text", "1.0.0")
    await publish_package(registry, "json", "2.0.0-rc.1+build")
    found = sorted(path.relative_to(registry.root).as_posix() for path in registry.root.rglob("*") if path.is_file())
    assert found == [
        "@demo/text/1.0.0.tar.gz",
        "@demo/text/index.json",
        "json/2.0.0-rc.1.tar.gz",
        "json/index.json",
    ]


async def test_versions_are_listed_in_their_order(registry: FolderRegistry) -> None:
    for version in ("1.10.0", "1.2.0", "1.2.0-rc.1"):
        await publish_package(registry, "json", version)
    assert await published_versions(registry, "json") == ["1.2.0-rc.1", "1.2.0", "1.10.0"]


async def test_an_unknown_package_has_no_releases_and_cannot_be_fetched(registry: FolderRegistry) -> None:
    assert await registry.releases("nothing") == []
    assert await registry.reindex("nothing") == []
    assert await registry.names() == []
    with pytest.raises(NotFound, match=r"the registry has no nothing 1\.0\.0"):
        await registry.fetch("nothing", Version(1, 0, 0), limit=LIMIT)


async def test_the_same_files_may_be_published_again(registry: FolderRegistry, tmp_path: Path) -> None:
    first = await registry.publish(await make_archive(tmp_path))
    package = read_package(await make_archive(tmp_path))
    repacked = gzip_bytes(make_tar(*(tar_entry(path, data) for path, data in package.files.items())))
    assert await registry.publish(await make_archive(tmp_path)) == first
    assert await registry.publish(repacked) == first
    assert await registry.releases("demo") == [first]


async def test_other_files_under_a_published_version_are_refused_and_change_nothing(
    registry: FolderRegistry, tmp_path: Path
) -> None:
    first = await make_archive(tmp_path)
    await registry.publish(first)
    for version in ("1.0.0", "1.0.0+other"):
        with pytest.raises(PackageError, match="is published already with other files"):
            await registry.publish(await make_archive(tmp_path, version=version, code="return 2"))
    assert await registry.fetch("demo", Version(1, 0, 0), limit=LIMIT) == first


async def test_of_many_concurrent_publishers_of_a_version_one_succeeds_and_the_others_fail(
    registry: FolderRegistry, tmp_path: Path
) -> None:
    archives = [await make_archive(tmp_path, code=f"return {number}") for number in range(8)]
    outcomes = await asyncio.gather(*map(registry.publish, archives), return_exceptions=True)
    published = [archive for archive, end in zip(archives, outcomes, strict=True) if isinstance(end, Release)]
    assert len(published) == 1
    assert sum(isinstance(end, PackageError) for end in outcomes) == 7
    assert await registry.fetch("demo", Version(1, 0, 0), limit=LIMIT) == published[0]


async def test_many_versions_published_at_once_are_all_listed(registry: FolderRegistry) -> None:
    await asyncio.gather(*(publish_package(registry, "json", f"1.{number}.0") for number in range(10)))
    assert await published_versions(registry, "json") == [f"1.{number}.0" for number in range(10)]


async def test_an_invalid_archive_is_not_published(registry: FolderRegistry) -> None:
    for data in (b"", b"junk", gzip_bytes(make_tar(tar_entry("init.luau", b"")))):
        with pytest.raises(PackageError):
            await registry.publish(data)
    assert not registry.root.exists()


async def test_a_name_never_leads_out_of_the_registry(registry: FolderRegistry) -> None:
    for name in ("../x", "/etc", "@../x", ""):
        with pytest.raises(PackageError, match="is not a package name"):
            await registry.releases(name)
        with pytest.raises(PackageError, match="is not a package name"):
            await registry.fetch(name, Version(1, 0, 0), limit=LIMIT)


async def test_a_lost_index_is_rebuilt_from_the_archives(registry: FolderRegistry) -> None:
    releases = [
        await publish_package(registry, "json", "1.0.0"),
        await publish_package(registry, "json", "1.1.0", other="^2"),
    ]
    index = registry.root / "json" / "index.json"
    written = index.read_bytes()
    index.unlink()
    assert await registry.releases("json") == releases
    assert await registry.reindex("json") == releases
    assert index.read_bytes() == written


async def test_an_archive_that_is_missing_in_the_index_is_listed(registry: FolderRegistry) -> None:
    await publish_package(registry, "json", "1.0.0")
    index = registry.root / "json" / "index.json"
    old = index.read_bytes()
    await publish_package(registry, "json", "1.1.0")
    index.write_bytes(old)
    assert await published_versions(registry, "json") == ["1.0.0", "1.1.0"]


async def test_an_archive_that_was_removed_is_not_listed(registry: FolderRegistry) -> None:
    await publish_package(registry, "json", "1.0.0")
    await publish_package(registry, "json", "1.1.0")
    (registry.root / "json" / "1.1.0.tar.gz").unlink()
    assert await published_versions(registry, "json") == ["1.0.0"]


@pytest.mark.parametrize(
    "index",
    [b"", b"{", b"[]", b'{"name": "json"}', b'{"name": "other", "releases": []}', b'{"name": "json", "releases": [1]}'],
)
async def test_the_error_of_an_invalid_index_names_reindex(registry: FolderRegistry, index: bytes) -> None:
    await publish_package(registry, "json", "1.0.0")
    (registry.root / "json" / "index.json").write_bytes(index)
    with pytest.raises(Corrupt, match="call reindex to rebuild it"):
        await registry.releases("json")
    await registry.reindex("json")
    assert await published_versions(registry, "json") == ["1.0.0"]


async def test_a_pipe_instead_of_an_index_is_an_error_and_does_not_block(registry: FolderRegistry) -> None:
    await publish_package(registry, "json", "1.0.0")
    index = registry.root / "json" / "index.json"
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(Corrupt, match="not a regular file"):
        await registry.releases("json")


async def test_nothing_is_published_beside_an_invalid_index(registry: FolderRegistry) -> None:
    await publish_package(registry, "json", "1.0.0")
    (registry.root / "json" / "index.json").write_bytes(b"{")
    with pytest.raises(Corrupt, match="call reindex to rebuild it"):
        await publish_package(registry, "json", "1.1.0")
    assert [str(release.version) for release in await registry.reindex("json")] == ["1.0.0"]


async def test_a_replaced_archive_is_not_returned(registry: FolderRegistry, tmp_path: Path) -> None:
    await publish_package(registry, "json", "1.0.0")
    (registry.root / "json" / "1.0.0.tar.gz").write_bytes(await make_archive(tmp_path, "json", code="return 'evil'"))
    with pytest.raises(Corrupt, match="differs from the published archive"):
        await registry.fetch("json", Version(1, 0, 0), limit=LIMIT)


async def test_an_archive_under_a_wrong_name_is_an_error(registry: FolderRegistry, tmp_path: Path) -> None:
    folder = registry.root / "json"
    folder.mkdir(parents=True)
    (folder / "2.0.0.tar.gz").write_bytes(await make_archive(tmp_path, "json", "1.0.0"))
    with pytest.raises(Corrupt, match=r"contains 'json' 1\.0\.0, not 'json' 2\.0\.0"):
        await registry.releases("json")
    (folder / "2.0.0.tar.gz").write_bytes(b"junk")
    with pytest.raises(Corrupt, match=r"2\.0\.0\.tar\.gz: archive: not a gzip file"):
        await registry.releases("json")
    (folder / "2.0.0.tar.gz").rename(folder / "two.tar.gz")
    with pytest.raises(Corrupt, match="named after its version: 'two' is not a version"):
        await registry.releases("json")


async def test_a_fetch_never_reads_more_than_its_limit(registry: FolderRegistry) -> None:
    release = await publish_package(registry, "json", "1.0.0")
    assert len(await registry.fetch("json", Version(1, 0, 0), limit=release.size)) == release.size
    with pytest.raises(PackageError, match=f"more than {release.size - 1} bytes"):
        await registry.fetch("json", Version(1, 0, 0), limit=release.size - 1)


async def test_a_package_beyond_the_limits_of_a_registry_is_not_published(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path / "registry", PackageLimits(entries=1))
    with pytest.raises(PackageError, match="more than 1 files"):
        await registry.publish(await make_archive(tmp_path))


async def test_an_os_error_becomes_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    registry = FolderRegistry(tmp_path / "file")
    with pytest.raises(StoreError, match="file"):
        await registry.publish(await make_archive(tmp_path))


async def test_a_manifest_is_indexed_as_it_was_read(registry: FolderRegistry) -> None:
    files = {"pkg.json": manifest_json("json", "1.0.0", dependencies={"b": " >=1   <2 "}), "init.luau": b"return 1"}
    await registry.publish(gzip_bytes(make_tar(*(tar_entry(path, data) for path, data in files.items()))))
    index = json.loads((registry.root / "json" / "index.json").read_bytes())
    assert index["releases"][0]["dependencies"] == {"b": ">=1 <2"}
