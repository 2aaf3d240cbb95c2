"""Tools that a model can call: tools made from Python functions, and sets of tools."""

from vaka.tools.function import FunctionTool, as_tool, tool
from vaka.tools.schema.openai_strict import strict_schema
from vaka.tools.toolset import Toolset

__all__ = ["FunctionTool", "Toolset", "as_tool", "strict_schema", "tool"]
