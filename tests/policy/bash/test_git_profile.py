"""Subcommands of git that only show something need no rule; their options that do more are asked about."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

SHOWING = split_table(r"""
    git grep KEY
    git grep -n 'def main' -- src
    git grep -e a --and -e b
    git describe --tags --always
    git tag
    git tag -l 'v*'
    git tag --contains HEAD
    git tag -n3
    git stash list
    git stash show -p
    git reflog
    git reflog show HEAD -5
    git shortlog -sn
    git whatchanged -1
    git rev-list --count HEAD
    git merge-base main HEAD
    git cat-file -t HEAD
    git cat-file -p HEAD:src/main.py
    git ls-tree -r HEAD
    git show-ref
    git for-each-ref --format='%(refname)'
    git check-ignore -v x
    git worktree list
    git config user.name
    git config --get user.email
    git config --get branch.main.remote
    git remote get-url origin
    git branch --sort=-committerdate
""")

DOING_MORE = split_table(r"""
    git grep -Oless KEY
    git grep -nO KEY
    git grep --open-files-in-pager=x KEY
    git grep --op=x KEY
    git grep --no-index KEY /etc
    git grep --textconv KEY
    git tag v1
    git tag -d v1
    git tag -v v1
    git tag -l --format='%(signature)'
    git branch --format='%(signature:grade)'
    git branch --sort=signature
    git for-each-ref --format='%(signature)'
    git shortlog --format=%G?
    git rev-list --format='%-G?' HEAD
    git stash drop
    git stash pop
    git stash list --output=x
    git stash show --ext-diff
    git stash show --show-signature
    git reflog expire --all
    git reflog delete HEAD@{1}
    git reflog -q expire
    git reflog --output=x
    git cat-file --textconv HEAD:x
    git cat-file --filters HEAD:x
    git cat-file --batch
    git worktree add x
    git worktree prune
    git config user.name x
    git config --list
    git config http.extraheader
    git config --global user.name
    git config --get-all user.name
    git config -f x --get user.name
    git remote get-url --push x
    git remote set-url origin x
""")


@each_row(SHOWING)
def test_a_subcommand_that_only_shows_something_needs_no_rule(command: str) -> None:
    found = judge_command(command)
    assert found.decision == "allow", found.reason


@each_row(DOING_MORE)
def test_a_subcommand_that_does_more_is_asked_about(command: str) -> None:
    assert judge_command(command).decision == "ask"
