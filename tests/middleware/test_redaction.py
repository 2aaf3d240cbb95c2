"""Redaction: unregistered secrets are found by their format, and ordinary texts are left alone."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.runtime.runtime_fixtures import agent, collect_turn, read_log, runtime
from vaka.core.ports.model import StopChunk, TextChunk
from vaka.core.session.live_redaction import StreamRedactor
from vaka.core.session.redaction import Secrets, redact_text
from vaka.core.types import progress
from vaka.middleware import Redaction
from vaka.middleware.redaction import PERSONAL_PATTERNS, SECRET_PATTERNS
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel

A = "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3fG5hJ7k"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + A + "\n" + A + "==\n-----END RSA PRIVATE KEY-----"  # not a secret
SECRETS = [
    f"sk-{A}",
    f"sk-ant-api03-{A}",
    f"ghp_{A[:36]}",
    f"github_pat_{A}_{A}",
    f"glpat-{A[:20]}",
    "AKIAIOSFODNN7EXAMPLE",  # not a secret
    f"AIza{A[:35]}",
    f"xoxb-123456789012-{A[:24]}",
    f"sk_live_{A[:24]}",
    f"npm_{A[:36]}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{A[:20]}.{A}",
    KEY,
]
PERSONAL_DATA = [
    "jane.doe+x@mail.example.org",
    "4111 1111 1111 1111",
    "5500-0055-5555-5559",
    "078-05-1120",
    "+49 30 901820",
]
ORDINARY = """The task-force met at 10:30; see https://example.org/a/b?c=d#e for its notes.
commit 9f2c1e7a4b6d8f0a1c3e5b7d9f1a3c5e7b9d1f3a (HEAD -> main, origin/main)
Bearer of good news: the bearer shares fell by 3.5 percent.
the risk-averse desk-bound mask-wearing disk-less asterisk-free ask-me-anything
sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= is the digest of nothing
550e8400-e29b-41d4-a716-446655440000 is a UUID and 2023-11-14T22:13:20Z a time
git clone git@example.org:team/project.git && cd project && npm_config_loglevel=warn npm ci
def sk_learn(x): return x  # sk-learn is scikit-learn, pip install sk-learn-contrib
postgres://localhost:5432/db and redis://cache:6379/0 and http://user@host/path
-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE----- and -----BEGIN PUBLIC KEY-----
Le prix est de 1 234 567,89 EUR; la facture 2023-000123 du 14/11/2023.
call 911, room 4111, order 1234-5678-9012, version 1.2.3.4, ratio 3:1, 99.99%
eyJ is how JSON in base64 begins; ey is a word of poets; e is a letter.
AKIA is a prefix, AIza too, and so are ghp_ and xoxb- and glpat-.
const token = process.env.API_TOKEN; password: see the safe; secret = ?
std::vector<std::pair<int,int>> v; a::b::c; http://[::1]:8080/; x://y
/usr/lib/python3.11/site-packages/msgspec/_core.cpython-311-x86_64-linux-gnu.so
aHR0cHM6Ly9leGFtcGxlLm9yZy9sb25nL3BhdGgvdG8vc29tZXdoZXJl is base64 of an address
今日は良い天気ですね。明日も晴れるでしょう。 Привет, мир! Grüße aus Köln.
if (a<b && c>d) { return x["key"]["other"]; } // @param {string} name
10.0.0.1 192.168.1.1:8080 fe80::1%eth0 00:1B:44:11:3A:B7
The quick brown fox jumps over the lazy dog, 0123456789 times, or 12,345,678,901,234 at most.
hf_hub_download(repo_id="org/model", filename="weights.safetensors")
test_a_very_long_name_of_a_function_that_nobody_would_ever_want_to_type_by_hand()
sk-SK is the locale of Slovakia, en-GB that of Britain; xai-lib is a package
""".splitlines()
CORPUS = [
    *ORDINARY,
    *(f"{a} {b}" for a, b in pairwise(ORDINARY)),
    *("\n".join(ORDINARY[at : at + 3]) for at in range(len(ORDINARY) - 2)),
    *(line.upper() for line in ORDINARY),
    *(line.replace(" ", "_") for line in ORDINARY),
]


def redact(text: str, *more: Any) -> str:
    return str(Secrets(finders=(*SECRET_PATTERNS, *more)).redact_data(text))


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_in_any_context(secret: str) -> None:
    for context in ("{}", "it is {}.", "KEY={}\n", '{{"key": "{}"}}', "({})", "a\n{}\nb"):
        assert redact(context.format(secret)) == context.format("[redacted]")


def test_of_headers_and_urls_only_the_secret_is_redacted() -> None:
    assert redact(f"Authorization: Bearer {A}") == "Authorization: Bearer [redacted]"
    assert redact("postgres://me:s3cr3t@db/x") == "postgres://me:[redacted]@db/x"  # not a secret


@pytest.mark.parametrize("text", PERSONAL_DATA)
def test_personal_data_is_found_only_with_the_personal_patterns(text: str) -> None:
    assert redact(f"It is {text}, yes") == f"It is {text}, yes"
    assert redact(f"It is {text}, yes", *PERSONAL_PATTERNS) == "It is [redacted], yes"


def test_ordinary_texts_are_not_redacted() -> None:
    assert len(CORPUS) >= 100
    assert [text for text in CORPUS if redact(text) != text] == []
    wrong = [line for line in ORDINARY if redact(line, *PERSONAL_PATTERNS) != line and "git@" not in line]
    assert wrong == []


pieces = st.lists(
    st.one_of(st.sampled_from([*SECRETS, *PERSONAL_DATA, *ORDINARY]), st.text("a1 -@:/.eysk", max_size=6)), max_size=6
)


@given(pieces.map(" ".join), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_redacting_in_pieces_equals_redacting_the_whole_text(text: str, sizes: list[int]) -> None:
    for finder in (*SECRET_PATTERNS, *PERSONAL_PATTERNS):
        redactor = StreamRedactor(finder)
        at = 0
        output = ""
        for size in sizes * (len(text) // sum(sizes) + 1):
            output += redactor.feed(text[at : at + size])
            at += size
        assert output + redactor.feed("", last=True) == redact_text(finder, text)


def test_a_first_piece_of_one_character_counts_as_what_stands_before_the_next() -> None:
    telephone = next(finder for finder in PERSONAL_PATTERNS if finder.name == "telephone number")
    for first, output in (("x", "x+49 30 1234567"), (" ", " [redacted]")):
        redactor = StreamRedactor(telephone)
        pieces = [redactor.feed(first), redactor.feed("+49 30 1234567"), redactor.feed("", last=True)]
        assert "".join(pieces) == output


def test_ordinary_words_are_not_withheld() -> None:
    for finder in SECRET_PATTERNS:
        assert StreamRedactor(finder).feed("The quick brown fox ") == "The quick brown fox "


async def test_a_session_neither_stores_nor_publishes_text_that_looks_like_a_secret() -> None:
    store = MemoryStore()
    secret = f"ghp_{A[:36]}"
    used = list[str]()
    prompts: list[Any] = []

    async def answer(prompt: Any) -> Any:
        prompts.append(prompt)
        if len(prompts) == 1:
            return {"tool_calls": [{"name": "look", "arguments": {"at": secret}}]}
        return [*[TextChunk(sign) for sign in f"It is {secret}, g"], StopChunk()]

    @vaka.tool(effect="read")
    async def look(context: vaka.ToolContext, at: str) -> str:
        """Look."""
        used.append(at)
        context.emit(at[:20])
        context.emit("warn ", stream="stderr")
        context.emit(at[20:])
        context.emit("done", stream="stderr")
        return f"{at} " + "x" * 40_000

    bot = agent(FunctionModel(answer), look, middleware=[Redaction()])
    async with runtime(store) as rt:
        events = await collect_turn(await rt.open(bot, id="s"), f"Use {secret}.")
    assert used == [secret]
    assert secret.encode() not in b"".join([event.stored for event in await read_log(store, "s")])
    text = [event.data.text for event in events if isinstance(event.data, progress.TextDelta)]
    assert "".join(text) == "It is [redacted], g"
    output = [event.data for event in events if isinstance(event.data, progress.ToolOutputDelta)]
    assert "".join(delta.text for delta in output if delta.stream == "stdout") == "[redacted]"
    assert [(d.block, d.offset, d.text) for d in output if d.stream == "stderr"] == [(1, 0, "warn "), (1, 5, "done")]
    assert secret not in repr(prompts[1].messages)
