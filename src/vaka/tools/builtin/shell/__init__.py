"""Bash and background commands: processes, their output, and the tools that read and end them."""
