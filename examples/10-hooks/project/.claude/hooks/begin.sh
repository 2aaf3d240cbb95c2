#!/bin/sh
# SessionStart: what this prints is added to the first prompt, and later commands get the variable.
cat > /dev/null
echo 'export RELEASE=test' >> "$CLAUDE_ENV_FILE"
echo "This is the release branch: change nothing but notes."
