"""Secrets are found by their format: whole, in pieces, with colors and in JSON; ordinary code is not changed."""

import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.matching.secret_samples import Sample, make_samples
from vaka.core.session.live_redaction import StreamRedactor
from vaka.core.session.redaction import redact_text
from vaka.matching.secrets import SECRET_FORMATS, SecretFormats

SAMPLES = list(make_samples())
MAX_FALSE_ALARMS = 0.005
"""Lines of ordinary code that may change, of all lines; 0.0005 were measured."""
CODE_FILES = 150


def redact(text: str) -> str:
    return redact_text(SECRET_FORMATS, text) if SECRET_FORMATS.clear_context(text, 0) < 0 else text


def redact_in_pieces(text: str, sizes: list[int]) -> str:
    redactor = StreamRedactor(SECRET_FORMATS)
    at = 0
    output = ""
    for size in sizes * (len(text) // sum(sizes) + 1):
        output += redactor.feed(text[at : at + size])
        at += size
    return output + redactor.feed("", last=True)


def remains(sample: Sample, redacted: str) -> bool:
    """Whether eight successive characters of the secret are left."""
    secret = sample.secret
    pieces = [secret[at : at + 8] for at in range(max(len(secret) - 7, 1))]
    return any(piece in redacted for piece in pieces)


def test_every_kind_of_secret_is_found() -> None:
    assert len(SAMPLES) >= 250
    assert [
        sample.name for seed in range(3) for sample in make_samples(seed) if remains(sample, redact(sample.text))
    ] == []


def test_every_kind_of_secret_is_found_in_deltas_of_any_size() -> None:
    for sample in SAMPLES:
        for sizes in ([1], [3], [4, 1, 7], [16], [50]):
            assert not remains(sample, redact_in_pieces(f"See {sample.text} there", sizes)), (sample.name, sizes)


def test_every_kind_of_secret_is_found_in_quoted_json() -> None:
    for sample in SAMPLES:
        quoted = json.dumps({"output": f"a\n{sample.text}\nb"})
        assert not remains(sample, json.dumps(redact(quoted))), sample.name
        assert not remains(sample, redact_in_pieces(quoted, [5])), sample.name


def test_a_secret_with_colors_is_found() -> None:
    for sample in SAMPLES:
        one, other = sample.secret[: len(sample.secret) // 2], sample.secret[len(sample.secret) // 2 :]
        colored = f"\x1b[1m{sample.before}\x1b[01;31m\x1b[K{one}\x1b[m{other}\x1b[0m{sample.after}"
        for redacted in (redact(colored), redact_in_pieces(colored, [6])):
            assert not remains(sample, redacted.replace("\x1b[m", "")), sample.name


def test_a_private_key_is_found_without_its_end() -> None:
    pem = next(sample.secret for sample in SAMPLES if sample.name == "rsa private key")
    cut = pem[: pem.index("-----END")]
    assert redact(f"a\n{cut}") == "a\n[redacted]\n"
    assert redact(json.dumps(cut)) == '"[redacted]\\n"'
    only_begins = "It begins with -----BEGIN PRIVATE KEY----- and ends."  # not a secret
    assert redact(only_begins) == only_begins


def test_placeholders_and_references_are_not_secrets() -> None:
    texts = [
        "password = ''",
        'password: "<your password>"',
        "PASSWORD=$DB_PASSWORD",
        'token = os.environ["API_TOKEN"]',
        "password: str",
        "password=password",
        'api_key="YOUR_API_KEY"',
        "secret: ${{ secrets.TOKEN }}",
        "passwd: *****",
        "token = self.get_token(x1)",
        "https://user:${PASSWORD}@host/",
        "Authorization: Bearer <token>",
        "--password PASSWORD",
        "key = sorted(items, key=len)",
        '"token": null',
        "max_tokens: 4096",
        "const apiKey = config.apiKey",
        "curl -u user https://example.org",
        "-----BEGIN CERTIFICATE-----",
        "basic authentication",
        "docker run -u 1000:1000 x",
    ]
    assert [text for text in texts if redact(text) != text] == []


def test_ordinary_text_is_neither_changed_nor_withheld() -> None:
    redactor = StreamRedactor(SECRET_FORMATS)
    for piece in (
        "The quick",
        " brown",
        " fox",
        " jumps over",
        " the lazy",
        " dog's",
        " back: ",
        "12",
        " times",
        ".\n",
    ):
        assert redactor.feed(piece) == piece


def code_lines() -> Iterator[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py"))
    files = [path for path in files if not {"test", "tests", "site-packages"} & set(path.parts)]
    for path in random.Random(3).sample(files, min(CODE_FILES, len(files))):  # nosec B311
        yield from path.read_text(errors="replace").splitlines()


def test_ordinary_code_gives_few_false_alarms() -> None:
    lines = list(code_lines())
    changed = [line for line in lines if redact(line) != line]
    assert len(lines) > 10_000
    assert len(changed) <= MAX_FALSE_ALARMS * len(lines), changed


HOSTILE = (
    "\\",
    "\x1b[",
    "token=",
    "password=",
    "session=",
    "otpauth://secret=",
    "-----BEGIN PRIVATE KEY-----\nA",  # not a secret
    "$6$",
    "xoxb-",
)


def test_hostile_text_takes_a_bounded_number_of_steps() -> None:
    """A text is looked at a number of times that grows with the logarithm of its length, and each time once."""
    for text in HOSTILE:
        finder = CountingFinder()
        redactor, whole = StreamRedactor(finder), text * (4_000 // len(text))
        for at in range(0, len(whole), 4):
            redactor.feed(whole[at : at + 4])
        redactor.feed("", last=True)
        assert finder.characters < 60 * len(whole), text


class CountingFinder(SecretFormats):
    """Counts the characters that it looks at."""

    characters = 0

    def find_spans(self, text: str, start: int) -> list[tuple[int, int]]:
        self.characters += len(text)
        return super().find_spans(text, start)


# The first letter of some tokens is not withheld: ordinary texts often end with it.
WITHHELD = [sample.text for sample in SAMPLES if sample.text[0] not in "abcdfijklmoqrtuvwyz0123456789"]
texts = st.lists(st.one_of(st.sampled_from(WITHHELD), st.text("e1 -@:/.=yksk_\n\"'", max_size=6)), max_size=5)


@given(texts.map(" ".join), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_redacting_in_pieces_equals_redacting_the_whole_text(text: str, sizes: list[int]) -> None:
    assert redact_in_pieces(text, sizes) == redact_text(SECRET_FORMATS, text)


def test_the_scheme_of_a_signed_request_is_shown_however_it_arrives() -> None:
    for scheme in ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"):
        text = f"Authorization: {scheme} Credential=x/y, Signature={'6b737025f6a03e4f' * 4}"
        shown = f"Authorization: {scheme} Credential=x/y, Signature=[redacted]"
        assert [redact_in_pieces(text, [size]) for size in (1, 7, 40)] == [shown] * 3
        assert redact_text(SECRET_FORMATS, text) == shown
    assert redact_text(SECRET_FORMATS, "Authorization: AWS4-HMAC-SHA256x9f3k2") == "Authorization: [redacted]"
