"""Facts of a long conversation stay in the prompt, however often it is compacted."""

from bench.compaction import BEST_PEER, run_talk
from bench.planted_facts import FACTS, SUMMARY_FACTS, WINDOW, ScriptedTalk, make_facts


async def test_facts_of_three_hundred_turns_are_kept_although_a_summary_has_room_for_fewer() -> None:
    talk = ScriptedTalk()
    await run_talk(talk)
    kept = [fact for fact in make_facts() if fact.text in talk.shown]
    assert len(kept) > BEST_PEER > SUMMARY_FACTS
    assert len(kept) == FACTS
    assert talk.most_tokens < WINDOW
    assert talk.summaries > 10
