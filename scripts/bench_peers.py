"""Measure each peer in an environment of its own.

``bench/peers/NAME.txt`` lists what a peer needs, ``bench/peers/NAME.py`` measures it; the environment is
``.venv-peers/NAME``, made once for each text of the list. Arguments name the peers to run; none means all.
"""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
HOMES = ROOT / ".venv-peers"


def environment(requirements: Path) -> Path:
    """Return the interpreter of a peer's environment, made if it is new or its list has changed."""
    home = HOMES / requirements.stem
    digest, stamp = hashlib.sha256(requirements.read_bytes()).hexdigest(), home / ".installed"
    python = home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"making {home.relative_to(ROOT)}", flush=True)
        venv.create(home, clear=True, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)], check=True)
        stamp.write_text(digest)
    return python


def main() -> int:
    """Run the peers one after the other; return 1 if any failed."""
    chosen = [path for path in sorted(PEERS.glob("*.txt")) if not sys.argv[1:] or path.stem in sys.argv[1:]]
    if not chosen:
        print(f"no peers: {PEERS.relative_to(ROOT)} has no lists by these names")
        return 1
    failed: list[str] = []
    for requirements in chosen:
        try:
            script = str(requirements.with_suffix(".py"))
            subprocess.run([str(environment(requirements)), script], cwd=ROOT, check=True)
        except subprocess.CalledProcessError as error:
            failed.append(requirements.stem)
            print(f"{requirements.stem}: {error}", flush=True)
    print(f"peers: {len(chosen)} run, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
