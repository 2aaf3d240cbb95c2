"""The tools that read and change files."""
