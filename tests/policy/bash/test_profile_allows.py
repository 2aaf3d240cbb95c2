"""The read-only profile: commands that it allows without a rule."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.core.types.tool import Deny

READING = split_table(r"""
    ls
    ls -la
    ls -lah --color=auto src tests
    ls *.py
    ls "$DIR"
    ls -- $files
    cat README.md
    cat a b c
    cat -n *.txt
    cat "$f"
    cat < input.txt
    head file
    head -n 20 file
    head -20 file
    head -c 100 "$f"
    tail -n +5 file
    tail -f log
    wc -l *.py
    wc -lwc a b
    grep foo file
    grep -rn "foo bar" src
    grep -E 'a|b' *.py
    grep -c x "$f"
    grep -v '^#' conf
    grep --include='*.py' -r foo .
    grep -e foo -e bar f
    egrep 'a+' f
    fgrep a.b f
    rg foo
    rg -n -i 'foo.*bar' src
    rg --files
    rg -t py foo src
    rg -g '*.py' foo
    rg -l foo | head
    rg --json foo src/
    rg -A 3 -B3 foo
    find .
    find . -name '*.py'
    find . -name *.py
    find src tests -type f -not -path '*/x/*'
    find . -maxdepth 2 -type d -print0
    find . \( -name a -o -name b \) -prune -o -print
    find . -size +1M -mtime -7 -printf '%p\n'
    find . -newer x -empty
    find . -name "$pattern"
    find -L . -iname foo
    sort file
    sort -rn -k2,2 -t: file
    sort -u a b
    sort --reverse --key=2 f
    sort -t , -k 1 f
    sort ./*.txt
    sort -- "$f"
    uniq
    uniq -c file
    uniq -d -f 1
    cut -d: -f1 /etc/passwd
    cut -c1-10 f
    tr a-z A-Z
    tr -d '\n'
    sed -n 1,10p file
    sed -n '/a/,/b/p' f
    sed 's/a/b/g' f
    sed -e 's/a/b/' -e 's|c|d|' f
    sed -E 's/(a|b)+/\1/g;s/x/y/' f
    sed '/^#/d;/^$/d' f
    sed -n '$p' f
    sed -n '$=' f
    sed '1!G;h;$!d' f
    sed 's/[^a-z]*//' f
    sed 'y/abc/xyz/' f
    sed -n '/start/{n;p;q}' f
    sed --quiet --expression=5p f
    sed 10q f
    sed 's/a/b/2gI' f
    sed "s/a/b/" f
    sed '2i\hello' f
    sed '$!N;$!D' f
    awk '{print $1}' f
    awk -F: '{print $1, $NF}' /etc/passwd
    awk 'NR==1' f
    awk '/foo/ {print $2}' f
    awk '!seen[$0]++' f
    awk '$3 > 100 {print $1}' f
    awk '{s += $1} END {print s/NR}' f
    awk -v x=1 '$1 == x' f
    awk 'BEGIN {FS=","} {printf "%s\n", $2}' f
    awk '{ if ($1 > 5 && $2 < 3) print }' f
    awk '/[0-9]+/ && !/x/' f
    awk 'length($0) > 80' *.py
    awk '{print ($1 > 5)}' f
    awk '{print > "/dev/stderr"}' f
    diff a b
    diff -u "$a" "$b"
    diff -rq x y
    diff <(ls a) <(ls b)
    stat file
    stat -c '%s' *.py
    file x
    file -b --mime-type x.png
    file -i ./*
    du -sh .
    du -h --max-depth=1 | sort -h
    df -h
    pwd
    echo hello
    echo "$HOME" $x *
    echo -n a
    printf '%s\n' a b
    printf '%s\n' "$x"
    printf 'a %d\n' 5
    date
    date +%Y-%m-%d
    date -u '+%F %T'
    date -d yesterday +%s
    date -d '-1 day'
    date -r file
    date --iso-8601=seconds
    which python
    whoami
    tree
    tree -L 2 -I 'node_modules|dist'
    tree -a --dirsfirst src
    jq . f.json
    jq -r '.a[] | .b' f.json
    jq -c --arg x "$X" '.[] | select(.a == $x)' f
    jq '.env' f
    jq -s 'map(.a) | add' ./*.json
    jq --indent 2 -S . f
    basename /a/b.txt .txt
    dirname "$f"
    realpath x
    true
    false
    seq 1 10
    seq -w 5
    man ls
    man 3 printf
    man -k foo
    base64 f
    base64 -d f
    base64 -w0 f
    xxd f
    xxd -l 64 -c 8 f
    xxd -p
    comm -12 a b
    column -t -s, f
    nl -ba f
    tac f
    rev f
    fd foo
    fd -e py -t f
    fd -H -I pattern src
    ps
    ps aux
    ps -ef
    ps -p 123 -o pid,cmd
    ps aux --sort=-%mem
    test -f x
    test "$a" = b
    [ -d x ]
    [ "$a" ]
    [ $? -eq 0 ]
    [ $# -gt 0 ] || exit 1
    [ ${#x} -lt 5 ]
    [ $((1 + 2)) -eq 3 ]
    [ -f *.txt ]
    [ ! -e "$f" ]
    [ -n "$a" ] && [ "$b" != "$c" ]
    test "$a" = b -a 1 -lt "$c"
    [ "x$a" = x ]
    date & wait
    date & wait $!
    wait -n %1
    [ "$a" -gt 5 ] && echo big
    [[ -f x ]] && cat x
    [[ $a == b* || -z $c ]]
    git status
    git status -sb
    git status --porcelain=v1 -z
    git log
    git log --oneline -10
    git log -n 5 --graph --all --decorate
    git log -p -- src/x.py
    git log --format='%h %s' --since='2 weeks ago' --author=me
    git log main..HEAD
    git log -S foo --stat
    git log --oneline -- "$f"
    git diff
    git diff HEAD~1
    git diff --stat main...feature
    git diff --cached --name-only
    git diff a b -- src
    git show
    git show HEAD
    git show HEAD:src/a.py
    git show --stat abc123
    git show stash@{0}
    git branch
    git branch -a
    git branch -vv
    git branch --show-current
    git branch --list 'feature/*'
    git branch --contains abc
    git branch -r --merged main
    git blame f
    git blame -L 1,10 f
    git rev-parse HEAD
    git rev-parse --show-toplevel
    git rev-parse --abbrev-ref HEAD
    git ls-files
    git ls-files -m src
    git remote -v
    git remote
    git --no-pager log -3
    git -C sub status
    git --version
    cd src
    cd src && ls
    cd ./a/b; pwd
    (cd src && git status)
    cd src && cd .. && ls
    command -v git
    type ls
    : comment
    ls | head -5
    ls -1 | wc -l
    cat f | grep x | sort | uniq -c | sort -rn | head
    ls; pwd; whoami
    ls && pwd || echo no
    ls 2>/dev/null
    ls >/dev/null 2>&1
    grep -q x f && echo yes
    ls 2>&1 | head
    ls &>/dev/null
    echo err >&2
    for f in *.py; do wc -l "$f"; done
    for i in 1 2 3; do echo $i; done
    for i in $(seq 3); do echo "n $i"; done
    for f in $(ls); do cat $f; done
    while read -r l; do echo "$l"; done < f
    while IFS= read -r l; do echo "$l"; done < f
    until [ -f x ]; do date; done
    if [ -f x ]; then cat x; else echo none; fi
    case "$1" in a) ls;; *) pwd;; esac
    x=$(git rev-parse HEAD); echo "$x"
    n=5; head -n $n f
    echo $(ls | wc -l) files
    echo "now: $(date)"
    echo $((1 + 2))
    (ls; pwd)
    { ls; pwd; }
    ! grep -q x f
    time ls
    timeout 10 grep -r foo .
    timeout -k 1 10s ls
    nice -n 10 du -sh .
    nohup ls
    stdbuf -oL tail -f log
    time timeout 5 ls
    LANG=C ls
    LC_ALL=C sort f
    TZ=UTC date
    NO_COLOR=1 ls
    /bin/ls
    /usr/bin/git status
    l\s -la
    "ls" '-la'
    ls \⏎-la
    ls # a comment
    # only a comment
    cat <<EOF⏎text⏎EOF
    cat <<'EOF'⏎$(rm x)⏎EOF
    cat <<< "text"
    cat <<EOF⏎$(date) `pwd` $x⏎EOF
    set -e
    set -euo pipefail; ls
    export NODE_ENV=test; ls
    local x=1
    f() { ls "$1"; }; f a
    exit 0
    exec 2>&1; ls
    ls > >(cat)
    cat < <(ls)
    wait
""")


def test_the_table_is_large_enough() -> None:
    assert len(set(READING)) >= 250


@each_row(READING)
def test_a_read_only_command_needs_no_rule(command: str) -> None:
    found = judge_command(command)
    assert found.decision == "allow", found


@each_row(READING)
def test_without_the_profile_the_mode_decides_about_every_command(command: str) -> None:
    found = judge_command(command, use_profile=False, default=Deny("no questions", "dontAsk", "mode"))
    assert found.decision == "deny" or not any(part.rule for part in found.subcommands)


@each_row(READING)
def test_the_profile_does_not_override_a_rule(command: str) -> None:
    if judge_command(command).subcommands:
        assert judge_command(command, deny=[None]).decision == "deny"
        assert judge_command(command, ask=[None]).decision == "ask"
