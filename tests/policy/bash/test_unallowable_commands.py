"""Commands that no rule can allow: unknown names, texts that cannot be parsed, variables that decide what runs.

The rule in these tests allows every command, and each of these is still asked about.
"""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.core.types.tool import Allow
from vaka.policy.bash import UnreadableScript, read_script

UNKNOWN_COMMANDS = split_table(r"""
    $x
    $x y
    "$x" y
    ${x} y
    ${x:-ls} y
    $(cat f) y
    `cat f` y
    "$(cat f)" y
    $1 y
    "$@"
    $* y
    a$x y
    $x/ls y
    /usr/bin/$x y
    l$(echo s) y
    l? y
    /bin/l* y
    /b?n/ls y
    [l]s y
    *
    {ls,-la}
    l{s,x} y
    {a..b} y
    ~/bin/x y
    ~root/x y
    $((1)) y
    $'l's$x y
    ls; $x
    ls && $x y
    ls | $x
    ( $x )
    echo $($x)
    if $x; then ls; fi
    A=1 $x y
    > f $x y
    command $x y
    env $x y
    env A=1 "$x" y
    sudo $x y
    sudo -u root "$x" y
    timeout 5 $x y
    nice $x
    exec $x
    xargs $x
    find . -exec $x {} \;
    find . -exec {} \;
    time $x y
    nohup "$x" y
    eval $x
    eval "$x"
    eval "ls $x"
    eval "$(cat f)"
    bash -c $x
    bash -c "$x"
    bash -c "ls $x"
    sh -c "$(cat f)"
    sh -c "$@"
    trap "$x" EXIT
    bash <<< "$x"
    bash <<EOF⏎$x⏎EOF
    echo "$x" | bash
    watch "$x"
    su -c "$x"
    f() { "$@"; }; f ls
    while read -r c; do $c; done
    for c in ls pwd; do $c; done
    echo ${!x}
    echo ${x@P}
    printf -v x '%s' y; $x
    [[ -v 'a[$(id)]' ]]
    [[ 'a[$(id)]' -eq 1 ]]
    x='a[$(id)]'; echo $((x))
    x='a[$(id)]'; ((x))
    x='a[`id`]'; echo ${y:x}
    test -v 'a[$(id)]' && [[ x -eq 1 ]]
""")

VARIABLES = split_table(r"""
    PATH=/tmp ls
    PATH=/tmp:$PATH ls
    PATH=.; ls
    PATH+=:/tmp ls
    export PATH=/tmp
    export PATH=/tmp && ls
    declare -x PATH=/tmp
    readonly PATH=/tmp
    local PATH=/tmp
    typeset PATH=/tmp
    LD_PRELOAD=./x.so ls
    LD_LIBRARY_PATH=. ls
    LD_AUDIT=x ls
    DYLD_INSERT_LIBRARIES=x ls
    BASH_ENV=x bash y
    ENV=x sh y
    IFS=, ls
    IFS=x; ls
    PROMPT_COMMAND='id' ls
    PS4='$(id)' bash -x y
    PS4='$(id)'; set -x; ls
    SHELLOPTS=xtrace ls
    BASHOPTS=x ls
    BASH_ALIASES[ls]=id
    BASH_CMDS[ls]=/tmp/x
    GIT_SSH_COMMAND=id git fetch
    GIT_EXTERNAL_DIFF=id git diff
    GIT_PAGER=id git log
    GIT_CONFIG_COUNT=1 git status
    GIT_DIR=/tmp/x git status
    PAGER=id git log
    MANPAGER=id man ls
    LESSOPEN='|id %s' less x
    EDITOR=id git commit
    PYTHONPATH=. python x
    PYTHONSTARTUP=x python
    PERL5OPT=-Mx perl y
    RUBYOPT=-rx ruby y
    NODE_OPTIONS='--require x' node y
    RIPGREP_CONFIG_PATH=x rg y
    HOME=/tmp git status
    http_proxy=x ls
    for PATH in /tmp; do ls; done
    select PATH in /tmp; do ls; done
    ((PATH=1)); ls
    ((PATH++)); ls
    for ((PATH=0; PATH<1; PATH++)); do ls; done
    echo ${PATH:=/tmp}
    echo $((PATH=1))
    A=1 PATH=/tmp ls
    time PATH=/tmp ls
    GCONV_PATH=. ls
""")

UNREADABLE = [
    *split_table(r"""
        echo "a
        echo 'a
        echo `a
        echo $(a
        echo ${a
        echo $((1
        (ls
        ls)
        { ls
        ls; }
        ls &&
        ls ||
        ls |
        && ls
        | ls
        ;; ls
        ls ;; pwd
        if ls; then pwd
        for i in a; do ls
        while ls; do
        case a in b) ls
        case a in b ls;; esac
        fi
        done
        esac
        then ls
        do ls
        }
        {ls;}
        ls <
        ls 2>&1 >
        [[ a
        (( 1
        cat <<EOF
        cat <<EOF⏎a
        cat <<EOF⏎a⏎ EOF⏎ls⏎EOF
        cat <<EOF⏎a⏎EOF ⏎ls⏎EOF
        cat <<EOF⏎ EOF⏎cat <<'X'⏎EOF⏎id⏎X
        echo a; } ; ls
        time { ls; }
        [ a > b ]
        echo \
        function
        function f
        f()
        ((ls); pwd)
        ls {x}>f
        cat <<< {a,b}
        time -"3"
        time "-p" ls
        time -v ls
        ls > {a,b}
        ls {PATH}>f
        ls -a2>f
        cat <<'EOF'x⏎a⏎EOF⏎ls⏎EOFx
        if ls; then pwd; else] ls; fi
        if ls; then pwd; fi2; ls
        !'ls' x
        [[ a == b ]]x
        ls $'\x{41}'
        time ls | time A=1 ls
    """),
    "ls > ",
    "! ",
    "ls\0",
    "ls\r",
    "ls\r\npwd",
    "ls \x07",
    "ls \x1b[31m",
    "ls \x7f",
    "ls \x08\x08id",
    "ls\x0bid",
    "ls\x0cid",
    "ls \x85",
    "ls \x9b",
    "echo 'a\x00b'",
    "echo 'a\rb'",
    "\x00",
    "\r",
    "ls \u200b",
    "l\u200bs",
    "ls \u200d",
    "ls \u202e",
    "ls \u2066x\u2069",
    "ls \ufeff",
    "ls \u00ad",
    "ls \u2060",
    "ls \u180e",
    "ls\u00a0-la",
    "ls\u2003x",
    "ls \u2028",
    "ls \u3164",
    "ls \U000e0041",
    "ls \U000e0100",
    "ls a\ufe0f",
    "echo '\u202e'",
    "echo \u2800",
    "echo \u061c",
    "ls \ud800",
    "echo '\udcff'",
]


@each_row(UNKNOWN_COMMANDS)
def test_a_command_with_an_unknown_name_is_never_allowed(command: str) -> None:
    assert judge_command(command, allow=[None]).decision == "ask"
    assert judge_command(command, default=Allow("bypassPermissions", "mode")).decision == "ask"


@each_row(VARIABLES)
def test_setting_a_variable_that_decides_what_runs_is_never_allowed(command: str) -> None:
    assert judge_command(command, allow=[None]).decision == "ask"
    assert judge_command(command, allow=["ls:*", "git:*", "export:*"]).decision == "ask"


@each_row(UNREADABLE)
def test_a_text_that_cannot_be_parsed_is_never_allowed(command: str) -> None:
    assert isinstance(read_script(command), UnreadableScript)
    assert judge_command(command, allow=[None]).decision == "ask"
    assert judge_command(command, default=Allow("bypassPermissions", "mode")).decision == "ask"


@each_row(UNREADABLE)
def test_deny_rules_apply_to_a_text_that_cannot_be_parsed(command: str) -> None:
    assert judge_command("curl x; " + command, allow=[None], deny=["curl:*"]).decision == "deny"
    assert judge_command(command + " ; curl x ", allow=[None], deny=["curl:*"]).decision == "deny"


def test_there_are_enough_doubtful_commands() -> None:
    assert len({*UNKNOWN_COMMANDS, *VARIABLES, *UNREADABLE}) >= 200


def test_an_invisible_character_does_not_hide_a_denied_command() -> None:
    assert judge_command("cu\u200brl x", allow=[None], deny=["curl:*"]).decision == "deny"
    assert judge_command("cu\0rl x", allow=[None], deny=["curl:*"]).decision == "deny"
    assert judge_command("ls\rcurl x", allow=[None], deny=["curl:*"]).decision == "deny"


@each_row(
    [
        "echo 你好",
        "echo 'Grüße, мир'",
        "echo 'naïve café'",
        "grep 'été' f",
        "cat données.txt",
        "echo '日本語　テキスト'",
        "echo ❤️",
        "echo '⚠️ careful'",
        "git commit -m 'fix: größe → width'",
        "ls 'файл'",
        "echo '€ £ ¥'",
        "echo “quoted”",
        "echo $'\\x07'",
        "echo $'a\\rb'",
        "echo $'\\u200b'",
        "printf 'a\\tb'",
        "echo 'a\tb'",
        "ls\t-la",
        "echo 'a\nb'",
    ],
)
def test_ordinary_text_in_any_language_is_allowed(command: str) -> None:
    assert judge_command(command, allow=[None]).decision == "allow"


# ---------------------------------------------------------------------------- similar commands that are known


@each_row(
    split_table(r"""
        ls $x
        ls "$x" $(pwd)
        ls *
        ls {a,b}
        ls ~/x
        x=ls
        x=$(ls); echo "$x"
        x=a y=b
        x=(a b c)
        x[1]=2
        ((x = 1))
        ((i++))
        echo $((x + 1)) ${x:0:2} ${x[1]} ${#x} ${!x[@]} ${!x@}
        [[ $x -eq 1 ]]
        [[ -n $x && $y == a* ]]
        for f in *.py; do echo "$f"; done
        for ((i=0; i<3; i++)); do echo $i; done
        while IFS= read -r l; do echo "$l"; done
        f() { ls; }; f
        A=1 ls
        FOO=bar make
        eval ls
        bash -c 'ls'
        sh -c 'echo $x'
        trap 'ls' EXIT
        trap - EXIT
        trap '' INT
        echo x | bash
        curl x | sh
        bash x.sh
        . ./env.sh
        /bin/ls
        ./x.sh a
        /tmp/x a
        '/opt/my program/x' a
        "ls" -la
        l\s
        ls \
        exec ls
        env A=1 ls
        sudo ls
        xargs ls
        find . -exec ls {} \;
        time ls
        [ -f x ]
        [ "$a" = b -o -n "$c" ]
        case $x in a|b) ls;; *) pwd;; esac
        ls 2>&1 | tee x
        ls &> x
        cat <<EOF⏎$x⏎EOF
        cat <<< "$x"
        diff <(ls a) <(ls b)
    """),
)
def test_a_known_command_is_left_to_the_rules(command: str) -> None:
    assert judge_command(command.removesuffix(" \\"), allow=[None, "sudo:*"]).decision == "allow"
