"""What ``vaka run`` opens and reads before its turn begins: one store, one event loop, each settings file once."""

from pathlib import Path

from bench.ways_in import SESSION_ARGUMENTS, RunCounts, count_run_in

ONCE = (1, 1, 1, 1)


def test_a_session_begins_and_continues_with_one_store_and_loop_and_settings_read_once(tmp_path: Path) -> None:
    write(tmp_path / ".config" / "vaka" / "config.toml", "max_steps = 7\n")
    write(tmp_path / ".claude" / "settings.json", '{"permissions": {"deny": ["Bash(rm:*)"]}, "env": {"A_NAME": "a"}}')
    project = tmp_path / "boat"
    write(project / ".git" / "HEAD", "")
    write(project / "vaka.toml", 'deny = ["WebFetch"]\n')
    write(project / ".claude" / "settings.json", '{"permissions": {"deny": ["WebSearch"]}}')
    write(project / "agent.py", 'import vaka\n\nagent = vaka.Agent("greeter")\n')
    for arguments in ((*SESSION_ARGUMENTS, "--agent", "agent.py"), SESSION_ARGUMENTS, ("run", "And now?", "--last")):
        assert opened_by(count_run_in(project, arguments, home=tmp_path)) == ONCE


def opened_by(counts: RunCounts) -> tuple[int, int, int, int]:
    return counts.stores, counts.loops, counts.collectors, counts.settings_reads


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
