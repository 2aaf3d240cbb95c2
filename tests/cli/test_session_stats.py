"""`vaka sessions stats`, and the line of a run whose prompt cache was lost."""

from tests.cli.shell import CommandResult, Shell
from tests.cli.test_models import run_vaka
from vaka.testing.fake_provider import FakeProvider
from vaka.testing.models import say

USAGE = {"input": 5000, "output": 10, "cache_write": 4000}


async def test_stats_show_what_the_prompt_cache_saved_and_lost(shell: Shell) -> None:
    async with FakeProvider(say("One.", usage=USAGE), say("Two.", usage=USAGE)) as provider:
        for model in ("claude-sonnet-5", "claude-opus-5-5"):
            done = await run_vaka(shell, provider, "run", "Hi.", "--model", f"anthropic/{model}", "--session", "s")
            assert "prompt cache" not in done.err  # the model was changed on purpose
    shown = shell.vaka("sessions", "stats", "s").out.split("\n\n")[1].splitlines()
    assert shown[0] == "cache: 0.0% of the input was read from it"
    assert [line.split()[:3] for line in shown[2:4]] == [["model", "1", "4000"], ["all", "1", "4000"]]
    assert shown[4] == "compactions: 0"
    one, every = (shell.vaka("sessions", "stats", *session, "--json").json for session in (["s"], []))
    assert one["cache_loss"] == every["cache_loss"] == one["cache_busts"]["model"]
    assert one["cache_loss"]["cost"] > 0
    assert (one["cache_hit_ratio"], one["compactions"], every["session_id"]) == (0.0, 0, "_total")
    missing = shell.vaka("sessions", "stats", "nothing")
    assert (missing.code, "nothing" in missing.err) == (2, True)


async def test_a_run_says_that_changed_instructions_made_the_prompt_cache_useless(shell: Shell) -> None:
    runs: list[CommandResult] = []
    async with FakeProvider(say("One.", usage=USAGE), say("Two.", usage=USAGE)) as provider:
        for text in ("Be brief.", "Be long."):
            shell.write_file("CLAUDE.md", text)
            run = ("run", "Hi.", "--model", "anthropic/claude-sonnet-5", "--session", "s")
            runs.append(await run_vaka(shell, provider, *run))
    assert "4000 tokens were not read from the prompt cache: the system prompt has changed" in runs[1].err
