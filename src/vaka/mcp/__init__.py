"""The Model Context Protocol: servers whose tools, resources and prompts an agent uses."""
