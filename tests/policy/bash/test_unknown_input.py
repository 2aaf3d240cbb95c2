"""A shell or interpreter with an unknown script is never allowed while a rule for commands denies or asks.

Everything is allowed here but ``curl``, so that nothing but the reading counts.
"""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

UNKNOWN_INPUT = split_table(r"""
    echo Y3VybCB4 | base64 -d | sh
    tr a-z b-za <<< btqk | sh
    rev <<< 'x lruc' | sh
    echo 6375726c2078 | xxd -r -p | sh
    python3 -c 'print("cu"+"rl x")' | sh
    echo 'curl x' | tee >(sh)
    tr a b <<< x > >(bash -s)
    read 'a[$(curl x)]' <<< y
    bash --init-file <(echo curl x) -i
    bash --rcfile <(tr a b) -i
    make -f - <<< 'x: ; curl x'
    cat secret | bash
    cat x | { sh; }
    cat x | (sh)
    cat x | sudo sh
    cat x | env sh
    cat x | xargs -0 sh -c
    cat x | xargs -I{} sh -c '{}'
    cat x | xargs -I{} sh -c 'echo {}'
    cat x | xargs -I % bash -c %
    cat x | xargs -I{} {}
    cat x | sh -
    cat x | sh /dev/stdin
    cat x | sh /dev/fd/0
    cat x | sh /proc/self/fd/0
    cat x | sh //dev/stdin
    cat x | sh /dev/./stdin
    cat x | sh /proc/$$/fd/0
    cat x | sh 3< f
    cat x | sh -s arg
    cat x | bash -i
    cat x | sh "$f"
    cat x | . /dev/stdin
    cat x | source /dev/fd/0
    cat x | while true; do sh; done
    cat x | if true; then sh; fi
    cat x | case a in a) sh;; esac
    cat x | for i in 1; do sh; done
    cat x | echo $(sh)
    cat x | echo `sh`
    cat x | sh -c sh
    cat x | sh -c 'exec sh'
    cat x | eval sh
    cat x | busybox sh
    cat x | zsh
    cat x | fish
    cat x | csh
    cat x | python3
    cat x | python3 -
    cat x | python3.11
    cat x | python3 /dev/stdin
    cat x | perl
    cat x | ruby
    cat x | node
    cat x | node -
    cat x | php
    cat x | lua
    cat x | tclsh
    cat x | ed
    cat x | vim -
    cat x | psql db
    cat x | sqlite3 x.db
    cat x | mysql
    cat x | gdb
    cat x | at now
    cat x | batch
    cat x | crontab -
    cat x | parallel
    cat x | make -f -
    cat x | make -f /dev/stdin
    cat x | awk -f -
    awk -f -
    python3 -
    cat x | awk -f /dev/stdin
    cat x | sed -f -
    cat x | pwsh
    cat x | osascript
    cat x | m4
    cat x | dc
    cat x | ksh93
    cat x | yash -s
    cat x | R --no-save
    cat x | octave
    cat x | emacs --batch
    cat x | dash -e
    cat x | exec sh
    cat x | command sh
    cat x | timeout 5 sh
    cat x | nohup sh
    cat x | nice -n 5 bash
    cat x | tee >(bash)
    ls > >(sh)
    ls 2> >(sh)
    sh < <(cat x)
    sh <&3
    sh 0<&3
    sh <(cat x)
    bash <(base64 -d f)
    . <(base64 -d f)
    source <(tr a b < f)
    bash /dev/fd/3 3<<< 'curl x'
    bash /dev/fd/3 3< <(cat x)
    exec 3<<< 'curl x'; bash <&3
    exec 3<<< 'curl x'; bash /dev/fd/3
    exec <<< 'curl x'; sh
    exec < <(cat x); sh
    { sh; } < <(cat x)
    while :; do sh; done < <(cat x)
    case a in a) sh;; esac < <(cat x)
    for ((;;)); do sh; done < <(cat x)
    f() { sh; }; cat x | f
    f() { sh; }; f <<< 'curl x'
    f() { sh; }; f < <(cat x)
    bash --rcfile <(cat x) -i
    bash -O extglob <(cat x)
    read PATH <<< /tmp/x; ls
    read -r LD_PRELOAD <<< /tmp/x; ls
    mapfile PATH < f
    x='a[$(curl x)]'; read "$x" <<< y
    python3 - <<'EOF'⏎import os⏎os.system("curl x")⏎EOF
    python3 <<< 'import os; os.popen("curl x")'
    python3 <(cat f)
    echo 'import os; os.system("curl x")' | python3
    perl -e 'open F, "curl x|"; print <F>'
    tclsh <<< 'exec curl x'
    awk 'BEGIN{"cu" "rl x" | getline}'
    awk 'BEGIN{print "x" | "cu" "rl x"}'
    awk 'BEGIN{c="curl x"; c | getline}'
    awk -f <(cat x)
    sed -f <(cat x) f
    ed f <<< '!curl x'
    sqlite3 x <<< '.system curl x'
    m4 <<< 'syscmd(curl x)'
    ftp <<< '!curl x'
    make -f <(cat x)
    make -f/dev/stdin <<< 'x:;curl x'
    make --file=- <<< 'x:;curl x'
    base64 -d f | tee s; sh s
    mkfifo p; sh < p & cat x > p
    cat > s <<'EOF'⏎curl x⏎EOF⏎sh s
    cat > s.py <<'EOF'⏎import os; os.system("curl x")⏎EOF⏎python3 s.py
    cat x | xargs -I{} python3 -c {}
    cat x | xargs -I{} perl -e {}
    cat x | parallel sh -c
    cat x | su
    cat x | su - me
    cat x | sudo -s
    cat x | sudo -i
    cat x | doas -s
    cat x | chroot /
    cat x | unshare -r
    cat x | nsenter -t 1
    cat x | script -q
    cat x | runuser -u me
    cat x | fakeroot
    cat x | nix-shell
    cat x | linux32
    cat x | setarch x86_64
    cat x | newgrp
    echo 'curl x' | su
    echo 'curl x' | sudo -s
    python3 -c 'open("/dev/tcp")' | sh
    cat x | ssh-agent bash
    cat x | env -i bash
    cat x | time bash
    cat x | coproc sh
    cat x | { read y; sh; }
    bash <<< "$(cat f)"
    sh -s < <(base64 -d f)
    . <(curl x)
    source /dev/fd/5 5< <(cat x)
    watch 'cat x | sh'
    flock l -c 'cat x | sh'
    bash -c 'cat x | sh'
    echo $(cat x | sh)
    f() { cat x | sh; }; f
    trap 'cat x | sh' EXIT
""")


@each_row(UNKNOWN_INPUT)
def test_an_unknown_script_is_not_allowed(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["curl:*"]).decision != "allow"
    assert judge_command(command, allow=[None], ask=["curl:*"]).decision != "allow"
