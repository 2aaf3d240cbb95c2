"""``vaka run``: run one turn."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from vaka.cli.build_agent import apply_model_flags
from vaka.cli.command_store import CommandStore
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import ask_trust_once, config_context, load_flag_settings
from vaka.cli.kit.errors import Quit, UsageError
from vaka.cli.turn.input import read_prompt
from vaka.cli.turn.report import Report
from vaka.cli.turn.run_turn import RunTarget, run_turn
from vaka.cli.turn.session_record import (
    ContinuedSession,
    continue_session,
    describe_run,
    explain_recorded_flags,
    find_record_of_flags,
    load_continued,
)
from vaka.core.types.message import Part

_EXAMPLES = options.format_examples(
    'vaka run "Say hello." --model scripted:hello.jsonl',
    'git diff | vaka run "Review this." --tools review.py',
    "echo 'What is new?' | vaka run",
    'vaka run "And tomorrow?" --session weather --output json',
    "vaka run --session weather --resume",
    'vaka run "Try it otherwise." --fork weather@12',
    'vaka run "What is on it?" --attach photo.png --model gemini/gemini-3-flash --option reasoning=low',
    'vaka run "List the boats." --output-schema boats.json --model local',
    'vaka run "What is new?" --server https://agents.example.com --agent news',
)

_OUTPUT_FILE: "click.Path[Path]" = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[PROMPT] [-]")
@options.flag_of("output")
@click.option(
    "--input",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    help="text (default), or stream-json: messages and decisions of a program, one per line of stdin.",
)
@options.agent_options
@options.flag_of("model")
@click.option(
    "--option",
    multiple=True,
    metavar="KEY=VALUE",
    help="A model option, such as reasoning=high, temperature=0 or max_tokens=500; may be repeated.",
)
@click.option(
    "--tool-choice",
    metavar="auto|none|required|NAME",
    help="Whether the model must call a tool first: none, any (required), or this one.",
)
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE|URL",
    help="An image, audio, video, PDF or text to send with the prompt (or image=URL, audio=URL, document=URL); may be "
    "repeated.",
)
@click.option(
    "--output-schema",
    metavar="FILE",
    help="A JSON Schema that the answer must match; exit code 6 when it does not.",
)
@options.prompt_options
@click.option("--session", metavar="ID", help="Continue this session; a new id creates it.")
@click.option("--last", "-c", is_flag=True, help="Continue the session of this project that changed last.")
@click.option("--all", "everywhere", is_flag=True, help="With --last: of every project.")
@click.option("--resume", is_flag=True, help="Finish the unfinished turn of the session; no new prompt.")
@click.option("--fork", metavar="ID[@SEQ]", help="Copy a session (up to an event) and run the prompt in the copy.")
@options.remote_options
@options.world_options
@options.plugin_option
@options.server_options
@options.policy_options
@options.limit_options
@options.store_options
@click.option("-o", "file", type=_OUTPUT_FILE, metavar="FILE", help="Also write the answer to this file.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def run(words: tuple[str, ...], **flags: Any) -> None:
    """Run one turn: the result goes to stdout, progress to stderr.

    Without PROMPT the prompt is read from stdin. With both, PROMPT is the instruction and stdin its context; a pipe
    that stays silent is not waited for, unless - is given.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration, 4 authentication, 5 approval refused or needed, 6 model,
    7 limit, 8 tool, 75 busy or try again, 129 terminal closed, 130 interrupted, 143 terminated.
    """
    file = flags["file"].absolute() if flags["file"] is not None else None  # the session may be in another folder
    report = Report(flags["output"] or "text", quiet=flags["quiet"], verbose=flags["verbose"], file=file)
    report.store = flags["store"] or ""
    try:
        code = (_run_here if flags["server_url"] is None else _run_on_server)(words, flags, report)
    except BaseException as error:
        report.write_failure(error)
        raise
    raise Quit(code)


def _run_on_server(words: tuple[str, ...], flags: dict[str, Any], report: Report) -> int:
    from vaka.cli.remote.run_turn import run_on_server

    return run_on_server(words, flags, report)


def _run_here(words: tuple[str, ...], flags: dict[str, Any], report: Report) -> int:
    """Run the turn in this process; return the exit code."""
    if flags["api_key_file"] is not None:
        raise UsageError("--api-key-file goes with --server")
    if not flags["trust"]:
        ask_trust_once(config_context())
    if flags["input"] == "stream-json":
        _check_streamed(words, flags)
    settings = load_flag_settings(flags)
    report.set_format(settings["output"])
    target = _parse_target(words, flags)
    with CommandStore() as place:
        record = find_record_of_flags(flags, settings, place)
        continued = continue_session(record, flags, settings, resume=flags["resume"])
        with explain_recorded_flags(continued):
            return _run_continued(target, continued, report, place)


def _run_continued(target: RunTarget, continued: ContinuedSession, report: Report, place: CommandStore) -> int:
    continued, agent = load_continued(continued, report.print_note)
    flags, record = continued.flags, continued.record
    report.output_schema = apply_model_flags(agent, flags["option"], flags["tool_choice"], flags["output_schema"])
    target = msgspec.structs.replace(
        target,
        session=record.id if record is not None and not target.fork else target.session,
        ask=(flags["ask"] or "wait") if target.streamed else continued.ask,
        run_settings=describe_run(continued, agent),
    )
    report.is_stored = continued.settings["store"] != "memory:"
    return place.run(run_turn(target, continued.settings, agent, report, place.store_of(continued.settings)))


def _parse_target(words: tuple[str, ...], flags: dict[str, Any]) -> RunTarget:
    _check_flags(words, flags)
    parts: tuple[Part, ...] = ()
    if flags["attach"]:
        from vaka.cli.turn.attachments import read_attachments

        parts = read_attachments(flags["attach"])
    streamed = flags["input"] == "stream-json"
    return RunTarget(
        session=flags["session"] or "",
        resume=flags["resume"],
        fork=flags["fork"] or "",
        streamed=streamed,
        prompt=" ".join(words) if streamed else "" if flags["resume"] else read_prompt(words),
        parts=parts,
    )


def _check_streamed(words: tuple[str, ...], flags: dict[str, Any]) -> None:
    """Let a program that writes lines of JSON also read them."""
    if sys.stdin is None:
        raise UsageError("--input stream-json reads lines from stdin, which is closed")
    if len(words) > 1 or "-" in words:
        raise UsageError("--input stream-json takes one PROMPT at most; stdin has the other messages")
    if flags["output"] not in (None, "stream-json"):
        raise UsageError("--input stream-json goes with --output stream-json; leave --output out")
    flags["output"] = "stream-json"


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
