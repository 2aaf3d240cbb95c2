"""PreToolUse of Bash: refuse commands that delete, by exit code 2 and a reason on stderr."""

import json
import re
import sys

command = json.load(sys.stdin)["tool_input"].get("command", "")
if re.search(r"\brm\b|\bgit\s+push\b", command):
    print(f"{command!r} is not allowed on this branch; ask a person to do it", file=sys.stderr)
    sys.exit(2)
