"""Text is encoded again as the bytes it was."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vaka.text.decoding import DecodedText, decode_text, is_binary, split_lines

CASES = [
    (b"", DecodedText(""), "\n"),
    (b"a\nb\n", DecodedText("a\nb\n"), "\n"),
    (b"a\r\nb\r\n", DecodedText("a\r\nb\r\n"), "\r\n"),
    (b"a\rb\r", DecodedText("a\rb\r"), "\r"),
    (b"a\r\nb\n", DecodedText("a\r\nb\n"), "\n"),
    (b"a\r\nb\rc\r\n", DecodedText("a\r\nb\rc\r\n"), "\r\n"),
    (b"\xef\xbb\xbfa\r\n", DecodedText("a\r\n", b"\xef\xbb\xbf"), "\r\n"),
    ("\ufeff日本\n".encode("utf-16-le"), DecodedText("日本\n", b"\xff\xfe", "utf-16-le"), "\n"),
    ("\ufeffa\r\n".encode("utf-16-be"), DecodedText("a\r\n", b"\xfe\xff", "utf-16-be"), "\r\n"),
    ("\ufeff🛶".encode("utf-32-le"), DecodedText("🛶", b"\xff\xfe\0\0", "utf-32-le"), "\n"),
    ("\ufeff🛶".encode("utf-32-be"), DecodedText("🛶", b"\0\0\xfe\xff", "utf-32-be"), "\n"),
    ("naïve 🛶".encode(), DecodedText("naïve 🛶"), "\n"),
    (b"it\x92s caf\xe9", DecodedText("it’s café", encoding="cp1252"), "\n"),
    (b"\x81\xe9", DecodedText("\x81é", encoding="latin-1"), "\n"),
    (b"\x1b[31mred\x1b[0m\x0c", DecodedText("\x1b[31mred\x1b[0m\x0c"), "\n"),
]


@pytest.mark.parametrize(("data", "text", "eol"), CASES, ids=repr)
def test_text_is_decoded_with_its_mark_encoding_and_line_end(data: bytes, text: DecodedText, eol: str) -> None:
    assert decode_text(data) == text
    assert text.eol == eol
    assert text.encode(text.text) == data


@given(st.binary(max_size=300) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\xff\xfe\x00\xd8")
@example(b"\r\n\r")
def test_any_text_is_encoded_again_as_the_same_bytes(data: bytes) -> None:
    text = decode_text(data)
    assert text is None or text.encode(text.text) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"PNG\0\0",
        b"text\n" * 1000 + b"\0",
        b"text\n" * 10000 + b"\0",
        b"\x80\x01\x02",
        b"\x1f\x8b\x08\xff\x03\x04",
        "a".encode("utf-16-le"),
    ],
)
def test_binary_content_is_not_decoded(data: bytes) -> None:
    assert is_binary(data)
    assert decode_text(data) is None


def test_a_character_cut_by_the_sniffing_limit_does_not_make_text_binary() -> None:
    data = b"x" * 8191 + "é".encode() * 10
    assert not is_binary(data)
    text = decode_text(data)
    assert text is not None
    assert text.encoding == "utf-8"


@pytest.mark.parametrize("data", [b"\xff\xfea", b"\xfe\xff\xd8\x00\x00\x41", b"\xef\xbb\xbf\xff"])
def test_content_that_contradicts_its_mark_is_not_decoded(data: bytes) -> None:
    assert decode_text(data) is None


def test_a_character_that_the_encoding_lacks_is_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        DecodedText("", encoding="cp1252").encode("日")
    with pytest.raises(UnicodeEncodeError):
        DecodedText("").encode("\ud800")


def test_lines_are_split_at_line_feeds_without_their_ends() -> None:
    assert split_lines("a\r\nb\nc\r") == ["a", "b", "c"]
    assert split_lines("a\n\nb\n") == ["a", "", "b"]
    assert split_lines("") == []
