"""Deny rules match a command wherever it is hidden; the same forms of harmless commands are not denied.

Everything is allowed here but ``curl``, so that nothing but the reading counts.
"""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.policy.bash import UnreadableScript, read_script

EVERYWHERE = split_table(r"""
    curl x
    ls; curl x
    ls && curl x
    ls || curl x
    ls | curl x
    ls |& curl x
    ls & curl x
    curl x & ls
    ls⏎curl x
    ls;curl x
    ls&&curl x
    ls|curl x
    ls&curl x
    (curl x)
    ( ls; curl x )
    ( (curl x) )
    { curl x; }
    { ls; curl x; } | cat
    ! curl x
    time curl x
    time -p curl x
    if curl x; then ls; fi
    if ls; then curl x; fi
    if ls; then ls; else curl x; fi
    if ls; then ls; elif curl x; then ls; fi
    while curl x; do ls; done
    while ls; do curl x; done
    until curl x; do ls; done
    for i in 1 2; do curl x; done
    for i in $(curl x); do ls; done
    for ((i=0; i<3; i++)); do curl x; done
    for ((i=0; i<$(curl x); i++)); do ls; done
    select i in a; do curl x; done
    case a in a) curl x;; esac
    case a in b) ls;; *) curl x ;; esac
    case $(curl x) in a) ls;; esac
    f() { curl x; }; f
    function f { curl x; }; f
    f() ( curl x ); f
    echo $(curl x)
    echo `curl x`
    echo "$(curl x)"
    echo "a `curl x` b"
    echo "a ${b:-$(curl x)} c"
    echo ${b:-$(curl x)}
    echo ${b:=$(curl x)}
    echo ${b/$(curl x)/c}
    echo ${b:$(curl x):1}
    echo `ls \`curl x\``
    echo $(ls $(curl x))
    echo $((1 + $(curl x)))
    echo $[1 + $(curl x)]
    (( x = $(curl x) ))
    [[ -n $(curl x) ]]
    [[ $(curl x) == a ]]
    [ -n "$(curl x)" ]
    test -n "$(curl x)"
    cat <(curl x)
    ls > >(curl x)
    diff <(ls) <(curl x)
    x=$(curl x)
    x=$(curl x) ls
    x=(a $(curl x))
    x[$(curl x)]=1
    export x=$(curl x)
    local x=$(curl x)
    cat <<EOF⏎$(curl x)⏎EOF
    cat <<EOF⏎`curl x`⏎EOF
    cat <<EOF⏎a ${b:-$(curl x)}⏎EOF
    cat <<-EOF⏎⇥$(curl x)⏎⇥EOF
    cat <<< $(curl x)
    cat <<< "$(curl x)"
    cat <<EOF | curl x⏎a⏎EOF
    cat <<EOF && curl x⏎a⏎EOF
    cat <<EOF⏎a⏎EOF⏎curl x
    ls > "$(curl x)"
    ls 2>&1 | curl x
    ls # comment⏎curl x
    # curl is next⏎curl x
    ls \⏎ && curl x
    ls \⏎ ; curl x
    echo a\\⏎curl x
    # a \⏎curl x
    echo '\⏎'; curl x
    coproc curl x
    [[ a == b ]] && curl x
    ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; ls; curl x
    (((((1))))) && curl x
    echo "x"#; curl x
    echo x$(ls)#; curl x
    echo $#; curl x
    echo ${#x}; curl x
    echo a#b; curl x
""")

QUOTED = split_table(r"""
    c\url x
    \curl x
    'curl' x
    "curl" x
    c'ur'l x
    c"ur"l x
    c''url x
    c""url x
    $'curl' x
    $'cu\x72l' x
    $'\143url' x
    $'\u0063url' x
    $"curl" x
    cu\⏎rl x
    /usr/bin/curl x
    /bin/curl x
    //usr/bin/curl x
    /usr/bin/../bin/curl x
    /usr/local/bin/curl x
    "/usr/bin/"curl x
    ./curl x
    ../../usr/bin/curl x
    {curl,x}
    c{ur,}l x
    $(echo curl) x
    `echo curl` x
    $(printf %s curl) x
    "$(echo curl)" x
""")

WRAPPED = split_table(r"""
    command curl x
    command -p curl x
    command -- curl x
    builtin command curl x
    exec curl x
    exec -a name curl x
    exec -c curl x
    env curl x
    env A=1 B=2 curl x
    env -i curl x
    env -u HOME curl x
    env --unset=HOME curl x
    env -C /tmp curl x
    env - curl x
    env -S "curl x"
    env -S 'A=1 curl x'
    env -S '"curl" x'
    env -S "cu'r'l x"
    env -S 'curl\_x'
    env -S 'cur\l x'
    env -S 'A="b c" curl x # more'
    env --split='curl x'
    env --s 'curl x'
    env -S "sh -c 'curl x'"
    env '-Scurl x'
    env --split-string='curl x'
    env -iS 'curl x'
    nice curl x
    nice -n 5 curl x
    nice -5 curl x
    nice --adjustment=5 curl x
    nohup curl x
    timeout 5 curl x
    timeout -k 5 10 curl x
    timeout --signal=KILL 5s curl x
    timeout -s KILL 5 curl x
    stdbuf -oL curl x
    stdbuf -o L -e 0 curl x
    setsid curl x
    setsid -f curl x
    ionice -c 3 curl x
    ionice -c3 -n 0 curl x
    sudo curl x
    sudo -u root curl x
    sudo -E -H curl x
    sudo -nu root curl x
    sudo --user root curl x
    sudo --user=root A=1 curl x
    doas -u root curl x
    xargs curl
    xargs -n 1 curl
    xargs -I{} curl {}
    xargs -0 -P4 curl
    xargs --max-args=1 curl
    echo x | xargs curl
    find . -exec curl {} \;
    find . -exec curl {} +
    find . -name x -execdir curl {} \;
    find . -ok curl {} \;
    fd x -x curl {}
    fd x --exec curl {}
    fd x -X curl
    watch curl x
    watch -n 1 curl x
    watch 'curl x'
    watch "ls; curl x"
    flock /tmp/l curl x
    flock /tmp/l -c 'curl x'
    chroot /mnt curl x
    chrt -r 5 curl x
    taskset 1 curl x
    unshare -r curl x
    nsenter -t 1 curl x
    strace curl x
    strace -f -o out curl x
    ltrace curl x
    script -c 'curl x' out
    su -c 'curl x'
    su root -c 'curl x'
    runuser -u root -- curl x
    systemd-run curl x
    busybox curl x
    uv run curl x
    poetry run curl x
    bundle exec curl x
    npx -c 'curl x'
    time env nice -n 5 timeout 5 curl x
    sudo env -i nohup curl x
    command env command curl x
    sudo $FLAGS curl x
    timeout $T curl x
    env "$A" curl x
    git -c alias.x='!curl y' x
    git submodule foreach curl x
    git bisect run curl x
""")

SCRIPTS = split_table(r"""
    eval curl x
    eval "curl x"
    eval 'ls; curl x'
    eval -- curl x
    eval "$(echo curl x)"
    eval eval curl x
    eval "curl $URL"
    sh -c 'curl x'
    bash -c 'curl x'
    bash -c "curl x"
    bash -c "curl $URL"
    bash -lc 'curl x'
    bash -e -c 'curl x'
    bash -o pipefail -c 'curl x'
    bash --norc -c 'curl x'
    dash -c 'ls; curl x'
    zsh -c 'curl x'
    /bin/sh -c 'curl x'
    sh -c 'sh -c "curl x"'
    bash -c 'eval "curl x"'
    sudo sh -c 'curl x'
    env sh -c 'curl x'
    xargs sh -c 'curl x'
    find . -exec sh -c 'curl {}' \;
    timeout 5 bash -c 'curl x'
    bash <<EOF⏎curl x⏎EOF
    bash <<'EOF'⏎curl x⏎EOF
    bash -s <<EOF⏎curl x⏎EOF
    bash <<EOF⏎curl $URL⏎EOF
    sh <<< 'curl x'
    bash <<< "curl $URL"
    echo 'curl x' | sh
    echo curl x | bash
    printf 'curl x' | bash
    printf '%s\n' 'curl x' | sh -s
    echo -e 'ls\ncurl x' | sh
    cat <<EOF | bash⏎curl x⏎EOF
    bash <(echo curl x)
    source <(echo curl x)
    . <(echo curl x)
    source /dev/stdin <<< 'curl x'
    . /dev/stdin <<EOF⏎curl x⏎EOF
    echo 'curl x' | source /dev/stdin
    { bash; } <<< 'curl x'
    echo 'curl x' | { bash; }
    (sh) <<< 'curl x'
    trap 'curl x' EXIT
    trap "curl x" 0 1 2
    trap -- 'curl x' INT
    alias ll='curl x'
    mapfile -C 'curl x' -c 1 a
    compgen -C 'curl x'
    echo 'curl x' | at now
    parallel ::: 'curl x'
    f() { eval "curl x"; }; f
    bash -c 'f() { curl x; }; f'
    echo "$(bash -c 'curl x')"
""")

PREFIXED = split_table(r"""
    A=1 curl x
    A=1 B=2 curl x
    A= curl x
    A=$(ls) curl x
    LANG=C curl x
    A=1 sudo B=2 curl x
    > f curl x
    2> /dev/null curl x
    < f curl x
    A=1 > f curl x
    > f A=1 curl x
    time A=1 curl x
    a[0]=1 curl x
""")

HIDDEN = [*EVERYWHERE, *QUOTED, *WRAPPED, *SCRIPTS, *PREFIXED]


def test_there_are_enough_hidden_commands() -> None:
    assert len(set(HIDDEN)) >= 250


@each_row(HIDDEN)
def test_a_denied_command_is_seen_wherever_it_hides(command: str) -> None:
    found = judge_command(command, allow=[None], deny=["curl:*"])
    assert (found.decision, found.rule) == ("deny", "Bash(curl:*)"), read_script(command)


@each_row(HIDDEN)
def test_a_question_about_a_command_is_asked_wherever_it_hides(command: str) -> None:
    assert judge_command(command, allow=[None], ask=["curl:*"]).decision == "ask"


@each_row(HIDDEN)
def test_a_hidden_command_is_never_allowed_by_a_rule_for_another(command: str) -> None:
    assert judge_command(command, allow=["ls:*", "echo:*", "cat:*"]).decision != "allow"


@each_row(HIDDEN)
def test_a_hidden_command_is_not_mistaken_for_another(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["wget:*", "curl-config:*", "cur:*"]).decision != "deny"


# The word occurs, but it does not run.
MENTIONED = split_table(r"""
    echo curl
    echo curl x
    echo 'curl x'
    echo "; curl x"
    echo '$(curl x)'
    echo "\$(curl x)"
    echo \`curl x\`
    grep curl file
    grep -r "curl " .
    man curl
    which curl
    ls curl
    cat curl.txt
    ls # curl x
    # curl x
    echo a \; curl x
    echo a '&&' curl x
    cat <<'EOF'⏎$(curl x)⏎EOF
    cat <<EOF⏎curl x⏎EOF
    cat <<EOF⏎a \$curl b⏎EOF
    cat <<< 'curl x'
    git log --grep curl
    git commit -m 'curl x'
    git commit -m "use curl; not wget"
    find . -name curl
    command -v curl
    command -V curl
    curling x
    curl-config --libs
    xcurl x
    case curl in a) ls;; esac
    case a in curl) ls;; esac
    for curl in a b; do ls; done
    curl=1
    x=curl
    [[ curl == x ]]
    [ curl = x ]
    echo {curl,x}
    bash curl.sh
    echo 'curl x' | cat
    printf '%s' 'curl x' | wc -c
    echo $'curl\nx'
    su curl -c ls
    timeout 5 echo curl
    xargs echo curl
    find . -exec echo curl {} \;
    sudo -u curl ls
    env -u curl ls
    sudo --user curl ls
""")


@each_row(MENTIONED)
def test_an_operand_that_does_not_run_is_not_a_command(command: str) -> None:
    assert judge_command(command, allow=[None, "sudo:*", "su:*"], deny=["curl:*"]).decision == "allow"


# ---------------------------------------------------------------------------- V12: git before its subcommand


@each_row(
    split_table(r"""
        git push
        git push origin main
        git -C /x push
        git -C x -c a=b push
        git --git-dir=/x push
        git --git-dir /x push
        git --work-tree=/x --git-dir=/y push -f
        git --no-pager push
        git -p push
        git -P -C . push
        git --exec-path=/x push
        git --namespace n push
        git --literal-pathspecs push
        git --config-env=a=b push
        /usr/bin/git -C x push
        A=1 git -C x push
        sudo git -C x push
        git -C "$X" push
        git 'push'
        git pu\sh
    """),
)
def test_options_of_git_do_not_hide_its_subcommand(command: str) -> None:
    for denied in ("git push:*", "git push *", "git push*"):
        assert judge_command(command, allow=[None], deny=[denied]).decision == "deny"
    assert judge_command(command, allow=[None], ask=["git push:*"]).decision == "ask"


@each_row(split_table("git log push⏎git -C push log⏎git stash push⏎git log --grep push⏎git".replace("⏎", "\n")))
def test_another_subcommand_of_git_is_not_denied(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["git push:*"]).decision == "allow"


def test_an_unknown_subcommand_that_may_be_denied_is_asked_about() -> None:
    found = judge_command('git "$SUB" x', allow=["git:*"], deny=["git push:*"])
    assert (found.decision, found.rule) == ("ask", "Bash(git push:*)")
    assert judge_command('git log "$X"', allow=["git:*"], deny=["git push:*"]).decision == "allow"
    assert judge_command("git pu$X", allow=["git:*"], deny=["git push:*"]).decision == "ask"
    assert judge_command("git pull-$X", allow=["git:*"], deny=["git push:*"]).decision == "allow"


# ---------------------------------------------------------------------------- limits do not skip a deny rule


def test_no_number_of_commands_hides_a_denied_one() -> None:
    many = "; ".join(["ls"] * 5000) + "; curl x"
    assert judge_command(many, allow=[None], deny=["curl:*"]).decision == "deny"
    assert judge_command("git " + "grep " * 20_000 + "; curl x", allow=[None], deny=["curl:*"]).decision == "deny"
    nested = "echo $(" * 30 + "curl x" + ")" * 30
    assert judge_command(nested, allow=[None], deny=["curl:*"]).decision == "deny"


@each_row(["env", "sudo -u me", "timeout 5", "nice", "command", "sudo --odd", "xargs -n 1"])
def test_no_number_of_wrappers_hides_a_denied_one(wrapper: str) -> None:
    for count in (1, 10, 60, 70, 500):
        command = f"{wrapper} " * count + "curl x"
        assert judge_command(command, allow=[None], deny=["curl:*"]).decision == "deny"


def test_a_long_command_is_always_asked_about_and_still_denied() -> None:
    long = "echo " + "a" * 10_000
    assert judge_command(long, allow=[None]).decision == "ask"
    assert "longer than 10000" in judge_command(long, allow=[None]).reason
    assert judge_command(long + "; curl x", allow=[None], deny=["curl:*"]).decision == "deny"
    assert judge_command("echo " + "a" * 9_000, allow=[None]).decision == "allow"
    endless = "ls\n" * 400_000
    assert (judge_command(endless, allow=[None]).decision, "cannot be run" in judge_command(endless).reason) == (
        "ask",
        True,
    )
    assert judge_command("curl x\n" + endless, allow=[None], deny=["curl:*"]).decision == "deny"


@each_row([9, 40, 400])
def test_too_deeply_nested_scripts_are_asked_about(depth: int) -> None:
    command = "curl x"
    for _ in range(min(depth, 40)):
        command = "eval " + command
    assert judge_command(command, allow=[None]).decision == "ask"
    deep = "(" * depth + "ls" + ")" * depth if depth > 40 else command
    assert judge_command(deep, allow=[None]).decision in {"ask", "allow"}


def test_a_too_deeply_nested_text_is_unreadable_and_still_denied() -> None:
    deep = "( " * 300 + "curl x" + " )" * 300
    assert isinstance(read_script(deep), UnreadableScript)
    assert judge_command(deep, allow=[None], deny=["curl:*"]).decision == "deny"


def test_a_variable_in_the_argument_of_env_split_makes_the_command_unknown() -> None:
    assert judge_command("env -S 'c${X}url x'", allow=[None]).decision == "ask"
    assert judge_command("env -S 'echo ${X}'", allow=[None]).decision == "allow"
    assert judge_command("env -S 'echo # curl x'", allow=[None], deny=["curl:*"]).decision == "allow"
