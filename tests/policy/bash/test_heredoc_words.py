"""Words before a here-document that the grammar drops."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row
from vaka.policy.bash import read_script


@each_row(
    [
        ("python3 - <<'E'\nx\nE", ["python3", "-"]),
        ("python3 -<<'E'\nx\nE", ["python3", "-"]),
        ("psql -h x - <<E\nx\nE", ["psql", "-h", "x", "-"]),
        ("a 2>/dev/null - <<E\nx\nE", ["a", "-"]),
        ("a - <<E b\nx\nE", ["a", "-", "b"]),
        ("cat -n<<E\nx\nE", ["cat", "-n"]),
        ("cat -n<<-E\n\tx\n\tE", ["cat", "-n"]),
        ("sort --output=x<<E\nx\nE", ["sort", "--output=x"]),
        ("sort -o<<E out\nx\nE", ["sort", "-o", "out"]),
    ]
)  # fmt: skip
def test_words_before_a_here_document_are_kept(command: str, words: list[str]) -> None:
    assert [[word.value for word in one.words] for one in read_script(command).commands] == [words]


@each_row(["sort -oout<<E\nx\nE", "sort -o<<E out\nx\nE", "sed -i<<E f\nx\nE", "ls; sort -ox<<E\nx\nE"])
def test_an_option_directly_before_the_here_document_operator_is_judged(command: str) -> None:
    assert judge_command(command).decision == "ask"


def test_a_script_in_a_here_document_is_judged() -> None:
    assert judge_command("sh - <<E\nrm x\nE", allow=[None], deny=["rm:*"]).decision == "deny"
    assert judge_command("python3 - <<'E'\nprint(1)\nE", allow=["python3:*"]).decision == "allow"
    assert judge_command("cd src && python3 - <<'E' | head\nprint(1)\nE", allow=["python3:*"]).decision == "allow"
