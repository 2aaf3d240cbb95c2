#!/bin/sh
# PostToolUse of Write and Edit: remove spaces at the ends of lines, and tell the model in JSON.
file=$(sed -n 's/.*"file_path":"\([^"]*\)".*/\1/p')
[ -f "$file" ] || exit 0
sed -i.bak 's/[[:space:]]*$//' "$file" && rm -f "$file.bak"
echo '{"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "The file was trimmed."}}'
