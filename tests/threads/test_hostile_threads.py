"""Hostile text in ids, filters, searches and metadata of threads: a clear error or an empty result, on every store."""

from functools import partial
from typing import Any, cast

import msgspec
import pytest

import vaka
from vaka.core.ports.messages import MessageFilter, MessageQuery, MessageSearch
from vaka.core.ports.store import Store
from vaka.errors import InvalidInput, VakaError

TEXTS = (
    "\x00",
    "a\x00b",
    "\ud800",
    "%",
    "_%",
    "'; drop table messages; --",
    '"',
    "\\",
    "../..",
    "x" * 5000,
    "🚢" * 300,
)


@pytest.fixture
def store(every_store: Store) -> Store:
    return every_store


async def test_hostile_texts_find_nothing_and_change_nothing(store: Store) -> None:
    async with vaka.Runtime(store=store) as runtime:
        threads = runtime.threads
        await threads.create(id="t", title="plain", metadata={"key": "value"})
        await threads.append_many("t", [{"role": "user", "content": "plain words", "id": "u"}])
        for text in TEXTS:
            for operation in (
                partial(threads.get, text),
                partial(threads.get_messages, text),
                partial(threads.delete, text),
                partial(threads.stats, "t", resource_id=text),
                partial(threads.set_state, "t", cast("Any", text)),
                partial(threads.generate_with_memory, vaka.Agent("a"), text, "hi"),
                partial(threads.get_messages, "t", MessageQuery(cursor=text)),
                partial(threads.list, cursor=text),
                partial(threads.search, MessageSearch(text="plain", after=text)),
            ):
                with pytest.raises(VakaError):
                    await operation()
            fields: list[dict[str, Any]] = [{"resource_id": text}, {"agent_id": text}, {"state": text}]
            for listed in fields:
                assert await empty_or_refused(threads.list(**listed), "threads")
            for metadata in ({text: "value"}, {"key": text}):
                assert await empty_or_refused(threads.list(metadata=metadata), "threads")
            filters: list[dict[str, Any]] = [
                {"role": text},
                {"keywords": (text,)},
                {"metadata": {text: text}},
                {"path": (text,)},
            ]
            for chosen in filters:
                query = MessageQuery(filter=MessageFilter(**chosen))
                assert await empty_or_refused(threads.get_messages("t", query), "messages")
            searches: list[dict[str, Any]] = [{"owner": text}, {"agent": text}, {"session": text}, {"role": text}]
            for more in searches:
                assert await empty_or_refused(threads.search(MessageSearch(text="plain", **more)), "hits")
            assert await empty_or_refused(threads.search(text), "hits")
            deleted = threads.delete_messages("t", [text])
            try:
                assert (await deleted).affected_count == 0
            except InvalidInput:
                continue
        for time in ("yesterday", "2026-13-45", "\x00", "9" * 400):
            bounds: list[dict[str, Any]] = [{"since": time}, {"until": time}]
            for bound in bounds:
                query = MessageQuery(filter=MessageFilter(**bound))
                with pytest.raises(InvalidInput):
                    await threads.get_messages("t", query)
        assert [row.text for row in (await threads.get_messages("t")).messages] == ["plain words"]
        assert (await threads.get("t")).metadata == {"key": "value"}


async def empty_or_refused(operation: Any, field: str) -> bool:
    try:
        return bool(getattr(await operation, field) == ())
    except InvalidInput:
        return True


async def test_hostile_messages_and_labels_are_kept_as_they_are(store: Store) -> None:
    async with vaka.Runtime(store=store) as runtime:
        threads = runtime.threads
        for number, text in enumerate(TEXTS):
            id = f"t{number}"
            await threads.create(id=id, metadata={"key": text.replace("\ud800", "?")[:1000]})
            message = {"role": "user", "content": f"{text} end", "metadata": {"k": text[:9]}}
            if "\ud800" in text:
                with pytest.raises(InvalidInput, match="cannot be written as JSON"):
                    await threads.add_message(id, message)
                message["metadata"] = {}
            await threads.add_message(id, message)
            (row,) = (await threads.get_messages(id)).messages
            assert row.text == f"{text} end".replace("\ud800", "\ufffd")
            exported = [line async for line in threads.export(id)]
            copy = await threads.import_lines(exported, id=f"copy{number}")
            assert [each.text for each in (await threads.get_messages(copy.id)).messages] == [row.text]
        assert len((await threads.search("end")).hits) > 0


async def test_parts_that_cannot_be_stored_are_refused(store: Store) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"content": [{"type": "document", "blob": "0" * 64}]}, "names a blob"),
        ({"content": [{"type": "image", "data": "é!" * 9}]}, "not base64"),
        ({"content": [{"type": "image", "data": "abc"}]}, "not base64"),
        ({"content": "a", "ts": "9999-12-31T23:59:59-23:00"}, "RFC 3339"),
        ({"content": "a", "ts": "0001-01-01T00:00:00+23:00"}, "RFC 3339"),
    ]
    async with vaka.Runtime(store=store) as runtime:
        threads = runtime.threads
        await threads.create(id="ann", resource_id="ann")
        await threads.add_message("ann", {"role": "user", "content": "canoe " * 50_000})
        (row,) = (await threads.get_messages("ann")).messages
        bad.append(({"content": msgspec.to_builtins(row.content)}, "names a blob"))
        await threads.create(id="bob", resource_id="bob")
        for message, problem in bad:
            with pytest.raises(InvalidInput, match=problem):
                await threads.add_message("bob", {"role": "user", **message})
        assert (await threads.get_messages("bob")).messages == ()
        await threads.add_message("bob", {"role": "user", "content": "a", "ts": "2026-01-31T12:00:00"})
        assert [each.ts for each in (await threads.get_messages("bob")).messages] == ["2026-01-31T12:00:00.000Z"]
