"""Libraries for Luau scripts: versions, packages, a registry, and what is installed in a project."""
