"""Tool definitions of older kinds as Luau tools."""
