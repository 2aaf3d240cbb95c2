"""Scripts in Luau: tools, agents and libraries that run in a VM of their own."""
