"""Text comes back as the bytes it was."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vaka.core.types.errors import FileError
from vaka.files.text import FileText, decode_text, encode_text, is_binary

CASES = [
    (b"", FileText(text="")),
    (b"a\nb\n", FileText(text="a\nb\n")),
    (b"a\r\nb\r\n", FileText(text="a\nb\n", eol="\r\n")),
    (b"a\rb\r", FileText(text="a\nb\n", eol="\r")),
    (b"a\r\nb\n", FileText(text="a\r\nb\n", eol="mixed")),
    (b"a\r\nb\rc\r\n", FileText(text="a\r\nb\rc\r\n", eol="mixed")),
    (b"\xef\xbb\xbfa\r\n", FileText(text="a\n", bom=True, eol="\r\n")),
    ("\ufeff日本\n".encode("utf-16-le"), FileText(text="日本\n", bom=True, encoding="utf-16-le")),
    ("\ufeffa\r\n".encode("utf-16-be"), FileText(text="a\n", bom=True, eol="\r\n", encoding="utf-16-be")),
    ("\ufeff🛶".encode("utf-32-le"), FileText(text="🛶", bom=True, encoding="utf-32-le")),
    ("\ufeff🛶".encode("utf-32-be"), FileText(text="🛶", bom=True, encoding="utf-32-be")),
    ("naïve 🛶".encode(), FileText(text="naïve 🛶")),
    (b"it\x92s caf\xe9", FileText(text="it’s café", encoding="cp1252")),
    (b"\x81\xe9", FileText(text="\x81é", encoding="latin-1")),
    (b"\x1b[31mred\x1b[0m\x0c", FileText(text="\x1b[31mred\x1b[0m\x0c")),
]  # fmt: skip


@pytest.mark.parametrize(("data", "text"), CASES, ids=repr)
def test_text_is_read_and_written_back_the_same(data: bytes, text: FileText) -> None:
    assert decode_text(data) == text
    assert encode_text(text) == data


@given(st.binary(max_size=300) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\xff\xfe\x00\xd8")
@example(b"\r\n\r")
def test_whatever_is_text_comes_back_as_it_was(data: bytes) -> None:
    try:
        text = decode_text(data)
    except FileError:
        return
    assert encode_text(text) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"PNG\0\0",
        b"text\n" * 1000 + b"\0",
        b"\x80\x01\x02",
        b"\x1f\x8b\x08\xff\x03\x04",
        "a".encode("utf-16-le"),
    ],
)
def test_binary_is_told_from_text(data: bytes) -> None:
    assert is_binary(data)
    with pytest.raises(FileError, match="binary"):
        decode_text(data)


def test_a_letter_cut_where_one_stops_looking_does_not_make_a_text_binary() -> None:
    data = b"x" * 8191 + "é".encode() * 10
    assert not is_binary(data)
    assert decode_text(data).encoding == "utf-8"


@pytest.mark.parametrize("data", [b"\xff\xfea", b"\xfe\xff\xd8\x00\x00\x41", b"\xef\xbb\xbf\xff"])
def test_what_begins_like_text_and_is_none_is_an_error(data: bytes) -> None:
    with pytest.raises(FileError, match="begins like"):
        decode_text(data)


def test_a_letter_that_the_encoding_lacks_is_an_error() -> None:
    with pytest.raises(FileError, match="'日' cannot be written in cp1252"):
        encode_text(FileText(text="日", encoding="cp1252"))
    with pytest.raises(FileError, match="cannot be written in utf-8"):
        encode_text(FileText(text="\ud800"))
