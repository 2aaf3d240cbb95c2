"""An untrusted archive yields regular files within limits, or a ``PackageError``."""

import tarfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.luau.packages.sample_packages import gzip_bytes, make_tar, tar_entry
from vaka.luau.packages.files import PackageLimits, pack_files, unpack_archive
from vaka.luau.packages.versions import PackageError

SMALL = PackageLimits(packed=4096, unpacked=1000, entries=4)
FILES = st.dictionaries(
    st.from_regex(r"[a-m]{1,4}(/[a-m]{1,4}){0,2}\.luau", fullmatch=True),  # no name of a device, such as nul
    st.binary(max_size=700),
    min_size=1,
    max_size=6,
)


def refusal_message(data: bytes, limits: PackageLimits = SMALL) -> str:
    with pytest.raises(PackageError) as error:
        unpack_archive(data, limits)
    return str(error.value)


@given(FILES)
def test_packed_files_are_unpacked_unchanged(files: dict[str, bytes]) -> None:
    assert unpack_archive(pack_files(files)) == files


def test_files_that_can_be_packed_within_limits_can_be_unpacked_within_them() -> None:
    folder = "/".join(["日" * 60] * 8)
    files = {f"{folder}/{number:04}.luau": bytes(513) for number in range(100)}
    limits = PackageLimits(packed=1_000_000, unpacked=51_300, entries=100)
    assert unpack_archive(pack_files(files, limits), limits) == files


@given(FILES)
def test_equal_files_in_any_order_give_equal_bytes(files: dict[str, bytes]) -> None:
    assert pack_files(files) == pack_files(dict(reversed(files.items())))


def test_an_archive_contains_no_time_user_or_system() -> None:
    packed = pack_files({"init.luau": b"return 1"})
    assert packed[:10] == bytes.fromhex("1f8b08000000000002ff")
    header = zlib.decompress(packed, wbits=31)[:512]
    assert (header[108:124], header[136:148], header[265:329]) == (b"0000000\0" * 2, b"00000000000\0", bytes(64))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_other_programs_are_read_with_long_names_and_folders(format: int) -> None:
    long = "folder/" * 10 + "a-module-with-quite-a-long-name-" * 2 + ".luau"
    data = make_tar(
        tar_entry("./", kind=tarfile.DIRTYPE),
        tar_entry("./sub/", kind=tarfile.DIRTYPE),
        tar_entry("./sub/a.luau", b"a"),
        tar_entry(long, b"b"),
        tar_entry("pkg.json", b"{}"),
        format=format,
    )
    assert unpack_archive(gzip_bytes(data)) == {"sub/a.luau": b"a", long: b"b", "pkg.json": b"{}"}


def test_names_outside_ascii_are_preserved() -> None:
    files = {"été/日本.luau": b"1", "init.luau": b"2"}
    assert unpack_archive(pack_files(files)) == files


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../evil.luau",
        "a/../../evil.luau",
        "a/..",
        ".//etc/passwd",
        "..\\evil.luau",
        "c:evil.luau",
        "a\nb",
        "nul",
        "a//b",
    ],
)
def test_a_path_outside_its_folder_or_not_portable_is_refused(name: str) -> None:
    assert "path" in refusal_message(gzip_bytes(make_tar(tar_entry(name, b"x"))))
    assert "path" in refusal_message(gzip_bytes(make_tar(tar_entry(name, b"x"), format=tarfile.GNU_FORMAT)))
    with pytest.raises(PackageError, match="path"):
        pack_files({name: b"x"})


@pytest.mark.parametrize("name", ["../evil", "/evil", "/"])
def test_a_folder_outside_the_package_is_refused(name: str) -> None:
    data = bytearray(make_tar(tar_entry("x" * len(name), kind=tarfile.DIRTYPE)))
    assert "path" in refusal_message(gzip_bytes(set_raw_name(data, name)))


def test_a_folder_with_data_is_refused() -> None:
    data = bytearray(make_tar(tar_entry("sub", b"x")))
    data[156:157] = tarfile.DIRTYPE
    assert refusal_message(gzip_bytes(fix_checksum(data)), PackageLimits()) == "archive: folder 'sub' has data"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.CONTTYPE, "of kind b'7'"),
        (tarfile.GNUTYPE_SPARSE, "of kind b'S'"),
    ],
)
def test_an_entry_that_is_not_a_regular_file_is_refused(kind: bytes, problem: str) -> None:
    data = make_tar(tar_entry("init.luau", b"x"), tar_entry("other", kind=kind, link="/etc/passwd"))
    assert refusal_message(gzip_bytes(data)) == f"archive: 'other' is {problem}; expected regular files only"


@pytest.mark.parametrize(
    "names",
    [
        ("a.luau", "a.luau"),
        ("a.luau", "./a.luau"),
        ("a.luau", "A.luau"),
        ("é.luau", "e\u0301.luau"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("A/b", "a"),
    ],
)
def test_two_entries_that_some_file_system_treats_as_one_are_refused(names: tuple[str, str]) -> None:
    problem = refusal_message(gzip_bytes(make_tar(*(tar_entry(name, b"x") for name in names))))
    assert problem.endswith(("exists twice", "is also a folder"))


def test_decompression_stops_at_the_limit() -> None:
    bomb = gzip_bytes(make_tar(tar_entry("init.luau", bytes(4_000_000))))
    assert (
        refusal_message(bomb, PackageLimits(packed=len(bomb), unpacked=1000, entries=4))
        == "archive: unpacks to more than 1000 bytes"
    )


def test_zeros_after_the_end_count_towards_the_limit() -> None:
    assert "unpacks to more than" in refusal_message(gzip_bytes(make_tar(tar_entry("a", b"x")) + bytes(400_000)))


def test_more_bytes_than_the_limit_are_refused_before_they_are_unpacked() -> None:
    assert refusal_message(b"x" * 5000) == "archive: 5000 bytes; expected at most 4096"


def test_files_that_are_too_large_together_are_refused() -> None:
    assert (
        refusal_message(gzip_bytes(make_tar(tar_entry("a", bytes(600)), tar_entry("b", bytes(600)))))
        == "more than 1000 bytes of files"
    )


def test_too_many_files_are_refused() -> None:
    assert (
        refusal_message(gzip_bytes(make_tar(*(tar_entry(f"{number}", b"") for number in range(5)))))
        == "more than 4 files"
    )


def test_too_many_folders_are_refused() -> None:
    folders = (tar_entry(f"{number}", kind=tarfile.DIRTYPE) for number in range(20))
    assert refusal_message(gzip_bytes(make_tar(*folders))) == "archive: more than 4 entries"


def test_a_package_that_would_be_too_large_is_not_packed() -> None:
    noise = b"".join(zlib.crc32(bytes([number % 256, number // 256])).to_bytes(4, "big") for number in range(2000))
    with pytest.raises(PackageError, match="bytes when packed; expected at most 4096"):
        pack_files({"a": noise}, PackageLimits(packed=4096))
    with pytest.raises(PackageError, match="more than 1000 bytes of files"):
        pack_files({"a": bytes(1001)}, SMALL)


@pytest.mark.parametrize(
    "data", [b"", b"\x1f\x8b", b"not gzip", b"PK\x03\x04zip", b"\x1f\x8b\x08\0\0\0\0\0\x02\xff\xff\xff"]
)
def test_data_that_is_not_gzip_is_refused(data: bytes) -> None:
    assert "gzip" in refusal_message(data)


def test_a_truncated_or_corrupt_gzip_file_is_refused() -> None:
    packed = pack_files({"init.luau": b"return 1", "pkg.json": b"{}"})
    for cut in range(len(packed)):
        assert "gzip" in refusal_message(packed[:cut])
    assert "corrupt" in refusal_message(packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:])
    assert refusal_message(packed + b"x") == "archive: bytes after the end of the gzip file"
    assert refusal_message(packed + packed) == "archive: bytes after the end of the gzip file"


def set_raw_name(data: bytearray, name: str) -> bytes:
    """Write a name that the standard library refuses into the first header, with the right checksum."""
    data[:100] = name.encode().ljust(100, b"\0")
    return fix_checksum(data)


def fix_checksum(data: bytearray) -> bytes:
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data[:512]):06o}\0 ".encode()
    return bytes(data)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        (slice(124, 136), b"77777777777\0", "is truncated"),
        (slice(124, 136), b"-0000000001\0", "is not an octal number"),
        (slice(124, 136), b"\xff" * 12, "is not an octal number"),
        (slice(124, 136), b"\x80" + b"\0" * 10 + b"\x08", "is not an octal number"),
        (slice(124, 136), b"0x000000010\0", "is not an octal number"),
        (slice(124, 136), b"\0" * 12, "is not an octal number"),
        (slice(0, 2), b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_header_with_an_invalid_field_is_refused(field: slice, value: bytes, problem: str) -> None:
    data = bytearray(make_tar(tar_entry("init.luau", b"return 1")))
    data[field] = value
    with pytest.raises(PackageError, match=problem):
        unpack_archive(gzip_bytes(fix_checksum(data)))


def test_a_header_with_a_wrong_checksum_is_refused() -> None:
    data = bytearray(make_tar(tar_entry("init.luau", b"return 1")))
    data[0] ^= 1
    assert "checksum of a header is wrong" in refusal_message(gzip_bytes(bytes(data)), PackageLimits())


@pytest.mark.parametrize("data", [b"", bytes(1024), b"x" * 100, b"x" * 512, b"x" * 1024])
def test_data_that_is_not_a_tar_is_refused(data: bytes) -> None:
    assert refusal_message(gzip_bytes(data)).startswith("archive: ")


def test_a_truncated_tar_is_refused() -> None:
    data = make_tar(tar_entry("init.luau", b"return 1" * 100))
    assert refusal_message(gzip_bytes(data[:700]), PackageLimits()) == "archive: 'init.luau' is truncated"
    assert refusal_message(gzip_bytes(data[:300]), PackageLimits()) == "archive: the tar is truncated"


def test_bytes_after_the_end_of_the_tar_are_refused() -> None:
    data = make_tar(tar_entry("init.luau", b"x"))[:1024]
    assert (
        refusal_message(gzip_bytes(data + bytes(1024) + b"hidden" + bytes(506)))
        == "archive: bytes after the end of the tar"
    )


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"path": "../evil"}, "leads out of its folder"),
        ({"size": "1"}, "extension 'size' of tar"),
        ({"linkpath": "/etc/passwd"}, "extension 'linkpath' of tar"),
        ({"GNU.sparse.name": "evil"}, "extension 'GNU.sparse.name' of tar"),
        ({"hdrcharset": "BINARY"}, "extension 'hdrcharset' of tar"),
        ({"comment": "x" * 20_000}, "an extension header of"),
    ],
)
def test_an_extension_that_changes_the_meaning_of_an_entry_is_refused(headers: dict[str, str], problem: str) -> None:
    info, data = tar_entry("init.luau", b"x")
    info.pax_headers = headers
    assert problem in refusal_message(gzip_bytes(make_tar((info, data))), PackageLimits())


def test_an_extension_without_meaning_is_ignored() -> None:
    info, data = tar_entry("init.luau", b"x")
    info.pax_headers = {"comment": "hello", "mtime": "1.5"}
    assert unpack_archive(gzip_bytes(make_tar((info, data)))) == {"init.luau": b"x"}


@pytest.mark.parametrize(
    "body", [b"x", b"99 path=a\n", b"0 path=a\n", b"10 path=ab", b"999999999 path=a\n", b"3 path=a\n"]
)
def test_an_invalid_extension_header_is_refused(body: bytes) -> None:
    data = make_tar(tar_entry("ext", body, kind=tarfile.XHDTYPE), tar_entry("init.luau", b"x"))
    assert refusal_message(gzip_bytes(data), PackageLimits()) == "archive: an invalid extension header"


@given(st.binary(max_size=2000))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PackageError):
        unpack_archive(data)
    try:
        unpack_archive(gzip_bytes(data))
    except PackageError:
        return
    raise AssertionError("random bytes were taken for a tar")


@given(st.integers(0, 1535), st.integers(1, 255))
def test_one_changed_byte_of_a_tar_gives_files_or_a_package_error(position: int, flip: int) -> None:
    data = bytearray(make_tar(tar_entry("init.luau", b"return 1" * 50)))
    data[position] ^= flip
    try:
        assert len(unpack_archive(gzip_bytes(bytes(data)))) == 1
    except PackageError as error:
        assert str(error)  # noqa: PT017  # files or an error: both are valid
