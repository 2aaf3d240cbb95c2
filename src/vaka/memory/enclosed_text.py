"""Texts of a memory in a prompt, between tags that they cannot close."""

import re


def enclose_text(tag: str, text: str, attributes: str = "") -> str:
    """Return a text between tags. A closing tag in it, also in another spelling, is escaped."""
    escaped = re.sub(rf"<(\s*/\s*{re.escape(tag)})", r"<\\\1", text, flags=re.IGNORECASE)
    return f"<{tag}{attributes}>\n{escaped}\n</{tag}>"
