"""Parts of the help texts of commands."""


def format_examples(*lines: str) -> str:
    """Return the epilog of a help text; click does not wrap its lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
