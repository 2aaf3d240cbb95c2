"""``vaka agents``: list the agents of definitions, of ``.claude`` folders and of plugins."""

from vaka.cli.project_agents import describe_defined_agents
from vaka.project.cli import make_group

agents = make_group("agents", "agents", lambda found: found.agents, describe_defined_agents)
