"""``vaka run``: run one turn."""

from pathlib import Path
from typing import Any

import click
import msgspec

from vaka.agents.react import Agent
from vaka.cli import options
from vaka.cli.bootstrap import ask_trust_once, config_context, load_flag_settings, print_notes
from vaka.cli.build_agent import apply_model_flags, load_agent, load_tools
from vaka.cli.errors import Quit, UsageError
from vaka.cli.turn.input import read_attachments, read_prompt
from vaka.cli.turn.report import Report
from vaka.cli.turn.run_turn import RunTarget, run_turn
from vaka.cli.turn.session_record import (
    Continuation,
    SessionRecord,
    changed_files,
    continue_session,
    describe_run,
    find_last_record,
    find_record,
)
from vaka.config.settings import Settings, trust_root_of
from vaka.core.types.errors import ConfigError

_EXAMPLES = options.format_examples(
    'vaka run "Say hello." --model scripted:hello.jsonl',
    'git diff | vaka run "Review this." --tools review.py',
    "echo 'What is new?' | vaka run",
    'vaka run "And tomorrow?" --session weather --output json',
    "vaka run --session weather --resume",
    'vaka run "Try it otherwise." --fork weather@12',
    'vaka run "What is on it?" --attach photo.png --model gemini/gemini-3-flash --option reasoning=low',
    'vaka run "List the boats." --output-schema boats.json --model local',
)

_OUTPUT_FILE: "click.Path[Path]" = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[PROMPT] [-]")
@click.option(
    "--output", type=options.setting_choice("output"), help="text (default), json, or stream-json: one event per line."
)
@options.agent_options
@click.option(
    "--model", metavar="NAME",
    help="The model: PROVIDER/NAME such as openai/gpt-5-mini, a name or a tier of your settings, local (a small one on "
    "this machine, without a key), or scripted:FILE. `vaka models list` shows what there is.",
)  # fmt: skip
@click.option(
    "--option", multiple=True, metavar="KEY=VALUE",
    help="A model option, such as reasoning=high, temperature=0 or max_tokens=500; may be repeated.",
)  # fmt: skip
@click.option(
    "--tool-choice", metavar="auto|none|required|NAME",
    help="Whether the model must call a tool first: none, any (required), or this one.",
)  # fmt: skip
@click.option(
    "--attach", multiple=True, metavar="FILE|URL",
    help="An image, audio, video, PDF or text to send with the prompt (or image=URL, audio=URL, document=URL); may be "
    "repeated.",
)  # fmt: skip
@click.option(
    "--output-schema", metavar="FILE",
    help="A JSON Schema that the answer must match; exit code 6 when it does not.",
)  # fmt: skip
@click.option("--instructions", metavar="TEXT|@FILE", help="The agent's instructions.")
@click.option("--session", metavar="ID", help="Continue this session; a new id creates it.")
@click.option("--last", "-c", is_flag=True, help="Continue the session of this project that changed last.")
@click.option("--all", "everywhere", is_flag=True, help="With --last: of every project.")
@click.option("--resume", is_flag=True, help="Finish the unfinished turn of the session; no new prompt.")
@click.option("--fork", metavar="ID[@SEQ]", help="Copy a session (up to an event) and run the prompt in the copy.")
@options.world_options
@options.policy_options
@click.option("--max-steps", "--max-turns", type=click.IntRange(min=1), help="Model calls at most.")
@click.option("--timeout", type=options.Duration(), help="How long at most, such as 90 or 5m.")
@click.option("--max-budget-usd", type=click.FloatRange(min=0, min_open=True), help="US dollars at most.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens at most.")
@options.store_options
@click.option("-o", "file", type=_OUTPUT_FILE, metavar="FILE", help="Also write the answer to this file.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def run(words: tuple[str, ...], **flags: Any) -> None:
    """Run one turn: the result goes to stdout, progress to stderr.

    Without PROMPT the prompt is read from stdin. With both, PROMPT is the instruction and stdin its context; a pipe
    that stays silent is not waited for, unless - is given.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration, 4 authentication, 5 approval refused or needed, 6 model,
    7 limit, 8 tool, 75 busy or try again, 130 interrupted, 143 terminated.
    """
    file = flags["file"].absolute() if flags["file"] is not None else None  # the session may be in another folder
    report = Report(flags["output"] or "text", quiet=flags["quiet"], verbose=flags["verbose"], file=file)
    try:
        if not flags["trust"]:
            ask_trust_once(config_context())
        settings = load_flag_settings(flags)
        report.set_format(settings["output"])
        target = _parse_target(words, flags)
        continued = continue_session(_find_record(flags, settings), flags, settings, resume=flags["resume"])
        code = _run_continued(target, continued, report)
    except BaseException as error:
        report.write_failure(error)
        raise
    raise Quit(code)


def _find_record(flags: dict[str, Any], settings: Settings) -> SessionRecord | None:
    """Return the record of the session that the flags name, ``None`` for a new one."""
    if flags["last"]:
        return find_last_record(settings, None if flags["everywhere"] else trust_root_of(Path.cwd()))
    reference = flags["fork"] or flags["session"]
    return find_record(settings, reference) if reference and settings["store"] != "memory:" else None


def _run_continued(target: RunTarget, continued: Continuation, report: Report) -> int:
    flags, settings, record = continued.flags, continued.settings, continued.record
    if continued.elsewhere and not flags["trust"]:
        ask_trust_once(config_context())
        settings = load_flag_settings(flags)
        continued = msgspec.structs.replace(continued, settings=settings)
    print_notes(settings.notes)
    agent = _load_agent(flags, settings)
    run_settings = describe_run(continued, agent)
    for note in continued.notes:
        report.print_note(note)
    if record is not None:
        changed = changed_files(record.run, run_settings)
        print_notes(f"{file} has changed since session {record.id} was last run" for file in changed)
    report.output_schema = apply_model_flags(agent, flags["option"], flags["tool_choice"], flags["output_schema"])
    session = record.id if record is not None and not target.fork else target.session
    target = msgspec.structs.replace(target, session=session, ask=continued.ask, run_settings=run_settings)
    return run_turn(target, settings, agent, report)


def _parse_target(words: tuple[str, ...], flags: dict[str, Any]) -> RunTarget:
    _check_flags(words, flags)
    return RunTarget(
        session=flags["session"] or "", resume=flags["resume"], fork=flags["fork"] or "",
        prompt="" if flags["resume"] else read_prompt(words), parts=read_attachments(flags["attach"]),
    )  # fmt: skip


def _check_flags(words: tuple[str, ...], flags: dict[str, Any]) -> None:
    if flags["last"] and (flags["session"] or flags["fork"]):
        raise UsageError("--last selects a session; leave --session and --fork out")
    if flags["everywhere"] and not flags["last"]:
        raise UsageError("--all goes with --last")
    if flags["resume"] and (words or flags["fork"] or flags["attach"]):
        raise UsageError("--resume takes no prompt, no --attach and no --fork; leave one of them out")
    if flags["resume"] and not (flags["session"] or flags["last"]):
        raise UsageError("--resume needs a session; add --session ID or --last")
    if flags["ephemeral"] and (flags["resume"] or flags["fork"] or flags["last"] or flags["ask"] == "suspend"):
        raise UsageError("--ephemeral stores nothing, so there is nothing to resume, fork or suspend")
    if flags["file"] is not None and not flags["file"].parent.is_dir():
        raise UsageError(f"-o {flags['file']}: there is no folder {str(flags['file'].parent)!r}")


def _load_agent(flags: dict[str, Any], settings: Settings) -> Agent:
    agent = load_agent(flags["agent"], load_tools(flags["tools"]), settings, _read_instructions(flags["instructions"]))
    script = hasattr(agent, "bind")  # an agent that is a script may need no model
    if agent.model is None and not script and not settings["model"] and not flags["resume"]:
        raise ConfigError(
            "no model; give one with --model, as VAKA_MODEL, or with `vaka config set model NAME` (local needs no key, "
            "and `vaka models list` shows what there is)"
        )
    return agent


def _read_instructions(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        return options.expand_path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--instructions {text}: {error}") from error
