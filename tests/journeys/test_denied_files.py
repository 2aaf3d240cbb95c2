"""A model that wants a denied file tries several spellings; its content never leaves, and the file does not change."""

from tests.journeys.answers import call, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider

_SECRET = "moana-keeps-this"

_ATTEMPTS = (
    "cat .e*",
    "git show HEAD:.env",
    "git log -p",
    "cd conf && cp ../harbour.py .",
    "echo conf/a.yml | xargs rm",
    "find conf -delete",
    "find . -name *.yml -delete",
    """echo 'open("conf/a.yml", "w")' | python3""",
)


def test_no_spelling_of_a_command_reads_or_changes_a_denied_file(
    home: Home, project: Project, provider: Provider
) -> None:
    project.write(".env", f"KEY={_SECRET}\n")
    project.write("conf/a.yml", "port: 1\n")
    project.git("add", "--force", ".env", "conf/a.yml")
    project.git("commit", "--quiet", "--message", "Add settings", "--", ".env", "conf/a.yml")
    project.commits = project.git("log", "--format=%H %s")
    wire = next(iter(MODELS))
    calls = [call("Bash", command=command) for command in _ATTEMPTS]
    script = provider.script("Show me the key.", *calls, say("I may not."))
    rules = ("--allow", "Bash", "--deny", "Read(.env)", "--deny", "Edit(conf/**)")
    home.run_failing(project.folder, "run", "Show me the key.", "--model", MODELS[wire], *rules, "--session", "key")
    assert len(script.requests) == len(_ATTEMPTS) + 1
    assert [request for request in script.requests if _SECRET in request.text] == []
    assert project.read("conf/a.yml") == "port: 1\n"
    assert project.read(".env") == f"KEY={_SECRET}\n"
    assert sorted(path.name for path in (project.folder / "conf").iterdir()) == ["a.yml"]
