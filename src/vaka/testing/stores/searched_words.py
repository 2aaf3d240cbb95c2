"""The contract of the words by which messages are found: emoji, symbols, marks, and scripts that are mixed."""

# ruff: noqa: S101  # a contract suite is made of asserts

from vaka.core.ports.messages import MessageSearch
from vaka.core.ports.store import Store
from vaka.testing.stores.message_search import find_sessions
from vaka.testing.stores.sealed_events import input_added, write_session

TEXTS = [
    "We go 🚀🚀 now, thanks 👍🏽",
    "Das Boot wiegt 40㎏.",
    "Die Donau\u00addampf\u00adschiff\u00adfahrt",
    "كِتَابٌ جديد",
    "كتاب قديم",
    "שָׁלוֹם",
    "שלום",
    "我的iphone手机",
    "的iphone",
    "कि",
    "คิด",
]


class SearchedWordsContract:
    """Searching words that are not made of plain letters."""

    async def test_emoji_symbols_and_marks_are_found(self, store: Store) -> None:
        for n, text in enumerate(TEXTS):
            await write_session(store, f"s{n}", input_added(text), at=n)
        expected = {
            "🚀": ["s0"],
            "👍": ["s0"],
            "👍🏿 now": ["s0"],
            '"go 🚀🚀 now"': ["s0"],
            "go -🚀": [],
            "🛶": [],
            "kg": ["s1"],
            "㎏": ["s1"],
            "40㎏": ["s1"],
            "donaudampfschifffahrt": ["s2"],
            "donau\u00addampf*": ["s2"],
            "dampf": [],
            "كتاب": ["s3", "s4"],
            "كِتَابٌ": ["s3", "s4"],
            "שלום": ["s5", "s6"],
            "שָׁלוֹם": ["s5", "s6"],
            "iphone": ["s7", "s8"],
            "的iphone": ["s7", "s8"],
            "我的iphone": ["s7"],
            "iphone手": ["s7"],
            "कि": ["s9"],
            "क": [],
            "คิด": ["s10"],
            "คด": [],
        }
        for _ in range(2):
            assert {text: sorted(await find_sessions(store, text)) for text in expected} == expected
            await store.reindex()

    async def test_a_snippet_marks_emoji_and_symbols(self, store: Store) -> None:
        for n, text in enumerate(TEXTS[:3]):
            await write_session(store, f"s{n}", input_added(text), at=n)
        expected = {"👍": ["👍🏽"], "kg": ["㎏"], "donau*": ["Donau\u00addampf\u00adschiff\u00adfahrt"], "now": ["now"]}
        for text, parts in expected.items():
            (hit,) = (await store.messages.search(MessageSearch(text=text))).hits
            assert [hit.snippet[first:after] for first, after in hit.matches] == parts, text
