"""The words and nodes of bash's grammar that a walk over a tree meets."""

from vaka.policy.bash.text import names
from vaka.policy.bash.words import Simple

RESERVED = names("if then else elif fi for while until do done case esac in function select { } ! [[ ]]")
TOKENS = names("; & { } ( ) if then elif else fi while until do done case in esac for select") | names(
    "&& || | |& ! function $( <( >( `"
)
CASE_ENDS = names(";; ;& ;;&")
BLOCKS = names("program subshell compound_statement if_statement elif_clause else_clause while_statement do_group")


def fed_by_file(simple: Simple) -> bool:
    """Whether a command reads a file as its input."""
    return any(one.operator.startswith("<") for one in simple.redirections)
