"""Commands on another machine or in a container: deny rules match them, allow rules match the runner."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

FORBIDDEN = split_table(r"""
    ssh host rm x
    ssh host 'rm x'
    ssh host 'cd /srv && rm x'
    ssh -p 22 -i key user@host rm x
    ssh -tp 22 host sudo rm x
    ssh host -t rm x
    docker exec c rm x
    docker exec -it c sh -c 'rm x'
    docker run --rm -v a:b img rm x
    docker compose exec svc rm x
    podman run img rm x
    kubectl exec pod -n space -- rm x
    bwrap --bind / / rm x
    bwrap --ro-bind / / --dev /dev bash -c 'rm x'
    firejail --quiet rm x
    parallel 'rm {}' ::: x
    parallel -j 4 rm ::: a b
    parallel ::: 'rm x'
    script -qc 'rm x' /dev/null
    script -qc'rm x' /dev/null
    su --comm='rm x'
    split --fil='rm x' f
    su -lc 'rm x'
    bash < <(echo rm x)
    git -c alias.x='!rm x' x
""")


@each_row(FORBIDDEN)
def test_a_deny_rule_matches_a_remote_command(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["rm:*"]).decision == "deny"
    assert judge_command(command, allow=[None, "su:*"], deny=["mv:*"]).decision == "allow"


@each_row(["docker rm x", "docker run --rm img ls", "ssh host ls", "docker ps", "ssh host"])
def test_an_operand_with_the_name_of_a_denied_command_is_not_denied(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["rm:*"]).decision == "allow"


@each_row(
    [
        "ssh host uptime",
        'ssh host "$x"',
        "docker exec c npm test",
        "docker exec $c sh -c 'npm test'",
        "docker run i $x",
    ],
)
def test_a_rule_that_allows_the_remote_runner_is_enough(command: str) -> None:
    assert judge_command(command, allow=["ssh:*", "docker:*"]).decision == "allow"
    assert judge_command(command).decision == "ask"


def test_an_alias_on_the_command_line_of_git_is_expanded() -> None:
    assert judge_command("git -c alias.x=push x", allow=["git:*"], deny=["git push:*"]).decision == "deny"
    assert judge_command("git -c alias.x=status x", allow=["git:*"], deny=["git push:*"]).decision == "allow"


OPTION_COMMANDS = split_table(r"""
    git -c core.pager='rm x' log
    git submodule foreach 'rm x'
    git submodule foreach --recursive 'ls; rm x'
    git rebase -x 'rm x' HEAD~1
    git rebase --exec='make && rm x' HEAD~1
    git filter-branch --tree-filter 'rm x' HEAD
    git difftool --extcmd='rm x'
    tar cf x y --checkpoint-action=exec='rm x'
    tar -I 'rm x' -cf y z
    tar --to-command 'rm x' -xf y
    rsync -e 'rm x' a b:
    ssh -o ProxyCommand='rm x' h
    scp -S rm a b:
    man -P 'rm x' ls
    rg --pre rm x
    sort --compress-program=rm x
    split --filter='rm x' f
    awk 'BEGIN{system("rm x")}'
    awk '{print | "rm x"}' f
    awk '{"rm x" | getline}' f
    echo rm x | cat | sh
    echo "rm x" | tee /dev/null | sh
""")


@each_row(OPTION_COMMANDS)
def test_a_deny_rule_matches_a_command_in_an_option(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["rm:*"]).decision == "deny"
    assert judge_command(command, allow=[None], deny=["mv:*"]).decision == "allow"


@each_row(["sed '1e rm x' f", "vim -c '!rm x'"])
def test_a_command_in_a_language_of_its_own_is_denied_or_asked_about(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["rm:*"]).decision == "deny"
    assert judge_command(command, allow=[None], deny=["mv:*"]).decision == "ask"
    assert judge_command(command, allow=[None]).decision == "allow"


@each_row(
    ['awk \'$1 == "rm" || $2 == "x"\' f', "sed 's/the/ e (x/' f", "sed '/e rm/d' f", "git log --grep=rm", "rg rm x"],
)
def test_a_text_that_only_resembles_a_command_is_not_denied(command: str) -> None:
    assert judge_command(command, deny=["rm:*"]).decision == "allow"
