"""Queries, matches, scores and snippets."""

from hypothesis import given
from hypothesis import strategies as st

from vaka.text.search import MAX_TERMS, SearchTerm, cut_snippet, is_match, join_words, parse_query, score_words
from vaka.text.words import split_words


def finds(query: str, text: str) -> bool:
    return is_match(join_words(split_words(text)), parse_query(query))


def test_a_query_is_words_phrases_exclusions_and_prefixes() -> None:
    query = parse_query('Red "big canoe" -old -"very old" mo* red')
    assert query.required == (
        SearchTerm(("red",)),
        SearchTerm(("big", "canoe")),
        SearchTerm(("mo",), prefix=True),
    )
    assert query.excluded == (SearchTerm(("old",)), SearchTerm(("very", "old")))
    assert parse_query('foo-bar "open').required == (SearchTerm(("foo", "bar")), SearchTerm(("open",)))
    assert parse_query('* - -- "" \'').required == ()
    assert len(parse_query(" ".join(f"w{n}" for n in range(99))).required) == MAX_TERMS


def test_parts_of_texts_without_spaces_match() -> None:
    for query in ("東", "京", "都", "東京", "東京都", "京都", '"は東京都"', "首都は 東京"):
        assert finds(query, "日本の首都は東京都です"), query
    for query in ("都東", "京京", "東都", "日首"):
        assert not finds(query, "日本の首都は東京都です"), query
    assert finds('"東京 大阪"', "東京 大阪")
    assert not finds('"東 大"', "東京 大阪")


@given(st.text(max_size=40))
def test_a_text_that_has_words_is_found_by_itself(text: str) -> None:
    if split_words(text) and '"' not in text:
        assert finds(f'"{text}"', f"before {text} after")


def test_the_score_rises_with_matches_and_falls_with_length() -> None:
    query = parse_query("canoe")
    once, twice, long = (join_words(split_words(text)) for text in ("canoe a b", "canoe canoe b", "canoe" + " a" * 99))
    assert score_words(twice, query) > score_words(once, query) > score_words(long, query) > 0
    assert score_words(join_words(["boat"]), query) == 0


def test_a_snippet_shows_the_first_match_on_one_line_with_offsets_of_all() -> None:
    text = "start " * 50 + "a Canoe\n\tand a canoeist in 東京都 " + "end " * 50
    snippet, matches = cut_snippet(text, parse_query('canoe* "東京" 都'))
    assert [snippet[first:after] for first, after in matches] == ["Canoe", "canoeist", "東京", "都"]
    assert "\n" not in snippet
    assert (snippet[0], snippet[-1]) == ("…", "…")
    assert cut_snippet("short", parse_query("other")) == ("short", ())
    assert cut_snippet("x" * 300, parse_query("x*"))[1] == ((0, 240),)
