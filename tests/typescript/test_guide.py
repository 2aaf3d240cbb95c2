"""The examples of the guide to the TypeScript client have no type errors, and run."""

import json
import re
from pathlib import Path

import vaka
from tests.server.conftest import serve_agents
from tests.typescript.client_build import NODE, PACKAGES, ROOT, needs_packages, run, run_script
from vaka.testing import ScriptedModel, call, say

pytestmark = needs_packages

GUIDE = (ROOT / "docs" / "guides" / "typescript-client.md").read_text("utf-8")
README = (ROOT / "ts" / "client" / "README.md").read_text("utf-8")


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


def blocks_of(text: str, language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def write_examples(folder: Path, package: Path) -> None:
    (folder / "guide.ts").write_text(blocks_of(GUIDE, "ts"), "utf-8")
    (folder / "readme.ts").write_text(blocks_of(README, "ts"), "utf-8")
    (folder / "react.tsx").write_text(blocks_of(GUIDE, "tsx"), "utf-8")
    entries = {"@vaka/client": "index", "@vaka/client/store": "store", "@vaka/client/react": "react"}
    options = {
        "strict": True,
        "target": "ES2023",
        "module": "ESNext",
        "moduleResolution": "bundler",
        "jsx": "react-jsx",
        "lib": ["ES2023", "DOM", "DOM.Iterable"],
        "types": ["node"],
        "skipLibCheck": True,
        "outDir": "out",
        "paths": {name: [str(package / "dist" / file)] for name, file in entries.items()},
    }
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts", "*.tsx"]}))
    (folder / "node_modules").symlink_to(PACKAGES.resolve())


async def test_the_examples_run_and_have_no_type_errors(client_package: Path, tmp_path: Path) -> None:
    write_examples(tmp_path, client_package)
    run(NODE, PACKAGES / "typescript" / "bin" / "tsc", "--project", tmp_path, "--noEmit")
    program = tmp_path / "guide.mjs"
    bundle = ("--bundle", "--platform=node", "--format=esm", f"--outfile={program}")
    run(PACKAGES / ".bin" / "esbuild", "guide.ts", *bundle, cwd=tmp_path)
    usage = {"usage": {"input": 10, "output": 7}}
    deployer = ScriptedModel(call("deploy", place="production"), say("It runs."))
    agents = [
        vaka.Agent("talker", model=ScriptedModel(say("At six.", **usage))),
        vaka.Agent("deployer", model=deployer, tools=[deploy]),
    ]
    async with serve_agents(agents, permissions=vaka.Permissions(confirm=["deploy"])) as served:
        printed = await run_script(program, env={"VAKA_URL": served.url, "VAKA_API_KEY": "alice"})
    assert printed.splitlines() == [
        "At six.",
        "completed, 7 tokens, 7 characters",
        'deploy {"place":"production"}?',
        "done: call_1",
        "read up to 1.8",
        "user: When is high tide?",
        "assistant: At six.",
        "When is high tide? completed 0",
        "[ 'deployment', 'tides' ]",
        "404 not_found false",
    ]
