"""The content of ``.claude`` folders: memory files, rules, skills, commands, agents, hooks and plugins."""
