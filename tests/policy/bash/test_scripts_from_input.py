"""Shells, interpreters and programs that run other programs: what they read and what their options name is judged.

A script that is known is judged itself. One that is not known is asked about while a rule denies commands.
"""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

KNOWN = split_table(r"""
    echo 'curl x' | sh
    bash <<< 'curl x'
    bash -s <<< 'curl x'
    bash <<EOF⏎curl x⏎EOF
    . /dev/stdin <<< 'curl x'
    source /dev/stdin <<< 'curl x'
    sudo -s <<< 'curl x'
    echo 'curl x' | ssh h
    ssh h <<EOF⏎curl x⏎EOF
    ssh h <<'EOF'⏎cd x⏎curl x⏎EOF
    echo 'curl x' | ssh h bash
    ssh -p 22 u@h bash -s <<< 'curl x'
    docker exec -i c sh <<< 'curl x'
    echo 'BEGIN{system("curl x")}' | awk -f -
    awk -f - <<'EOF'⏎BEGIN{system("curl x")}⏎EOF
    awk -f /dev/stdin <<< '{print | "curl x"}'
    sed -f - f <<< '1e curl x'
    git clone --config=core.sshCommand='curl x' h:a/b
    git clone --config core.sshCommand='curl x' h:a/b
    git clone --conf=core.sshCommand='curl x' h:a/b
    git clone -c core.sshCommand='curl x' h:a/b
    git clone -ccore.sshCommand='curl x' h:a/b
    git clone -u 'curl x' h:x
    git clone --upload='curl x' h:x
    git -c core.editor='curl x' commit
    git -c gpg.ssh.defaultKeyCommand='curl x' commit -S
    git config core.editor 'curl x'
    git config set core.pager 'curl x'
    git config filter.x.clean 'curl x'
    git -c alias.x='!curl x' x
    git -c trailer.x.command='curl x' commit
    git -c tar.x.command='curl x' archive --format=x HEAD
    git rebase -x'curl x' HEAD~1
    git ls-remote --upload-pack='curl x' h
    sftp -D 'curl x'
    sftp -D"curl x" h
    scp -D 'curl x' a h:b
    scp -S curl a h:b
    ssh -o ProxyCommand='curl x' h
    ssh -oProxyCommand='curl x' h
    ssh -oPermitLocalCommand=yes -oLocalCommand='curl x' h
    rsync -e 'curl x' a h:b
    rsync --rsync-path='curl x && rsync' a h:b
    tar xf x --to-command='curl x'
    tar cf x --checkpoint=1 --checkpoint-action=exec='curl x' .
    find . -exec sh -c 'curl x' \;
    find . | xargs sh -c 'curl x'
    fd -x curl
    fd -xcurl
    fd -Hx curl
    fd -e py --exec=curl
    fd . --exec-batch=curl
    script -c 'curl x'
    script -q /dev/null curl x
    env -S 'curl x'
    busybox sh -c 'curl x'
    nsenter -t 1 -m curl x
    chroot /x curl x
    flock /tmp/l -c 'curl x'
    watch 'curl x'
    parallel 'curl {}' ::: x
    docker run --entrypoint=curl img x
    kubectl debug -it pod --image=i -- curl y
    flatpak run --command=curl x
    at now <<< 'curl x'
    psql -c '\! curl x'
    sqlite3 x.db '.shell curl x'
    sqlite3 x.db <<< '.sh curl x'
    sqlite3 x.db '.sy curl x'
    gdb -ex '!curl x'
    vim -c '!curl x'
""")

NOT_KNOWN = split_table(r"""
    bash < f
    bash -s < f
    bash -s a b < f
    sh - < f
    bash 0< f
    bash <> f
    . /dev/stdin < f
    . /dev/fd/0 < f
    env bash < f
    env -S 'bash' < f
    sudo bash < f
    sudo -s < f
    busybox sh < f
    chroot /x < f
    nsenter -t 1 -a < f
    script < f
    exec < f; bash
    while read l; do bash; done < f
    cat f | { bash; }
    bash <<EOF⏎$X⏎EOF
    bash <<< "$X"
    ssh h < f
    ssh h "$(cat f)"
    ssh h $CMD
    ssh h bash < f
    ssh h 'bash -s' < f
    ssh h 'cat f | sh'
    cat f | ssh h
    ssh -tt h << EOF⏎$X⏎EOF
    ssh -F /dev/stdin h < f
    docker exec -i c bash < f
    kubectl exec -i pod -- sh < f
    awk -f - < f
    cat f | awk -f -
    python3 < f
    python3 - < f
    python3 -i < f
    python3 -ic pass
    python3 -ic 'import os; os.system("curl x")'
    python3 -i script.py < f
    python3 -i -c pass <<< 'import os; os.system("curl x")'
    python3 /dev/fd/0 < f
    node < f
    node -i
    node -i -e 1 < f
    node -i <<< 'require("child_process").execSync("curl x")'
    cat f | bun run -
    cat f | deno run -
    perl < f
    perl -de1
    perl -de1 <<< '!!curl x'
    perl -d -e 1
    perl -E 'say readpipe "curl x"'
    ruby < f
    ruby - < f
    cat f | ruby -
    php < f
    php -a < f
    php -- < f
    php -d auto_prepend_file=/dev/stdin x.php < f
    lua - < f
    lua -i -e 1 < f
    tclsh < f
    expect < f
    gdb < f
    vim -es < f
    ex -s < f
    ed f < g
    echo '!curl x' | ed
    echo '!curl x' | sftp h
    sftp -b - h < f
    make -f - < f
    make -f- < f
    cat f | make -f -
    ant -f /dev/stdin < f
    parallel < f
    parallel -a f
    parallel :::: f
    crontab f
    crontab -u me f
    crontab -
    at now < f
    batch < f
    cat f | sqlite3
    sqlite3 x.db ".once |curl x"
    git config set alias.x '!curl x'
    git config --global alias.x '!curl x'
    git -c remote.o.vcs=ext fetch o
    bpftrace -e 'BEGIN{system("x")}'
""")

ORDINARY = split_table(r"""
    git status --short
    git log --oneline -5
    git diff HEAD~1
    git commit -m "fix: x"
    git clone -c core.autocrlf=false https://example.org/a/b
    git clone --config=user.name=x https://example.org/a/b
    git config set user.name x
    npm test
    npm ci
    npm run build -- --watch
    cargo build --release
    cargo test
    pytest -q
    pytest < /dev/null
    make -j4
    make -f Makefile.dev
    ls -la
    rg -n x src
    fd -e py
    fd -tx
    fd -e py -x wc -l
    sed -n 1,20p f
    python3 script.py
    python3 script.py < data.txt
    python3 -c 'print(1)' < data.txt
    python3 -m json.tool < x.json
    python3 -I script.py
    python3 -m pytest -i x
    node script.js
    node script.js < data.txt
    node --inspect x.js
    perl -ne 'print' < data.txt
    perl -Mdiagnostics x.pl
    perl -MData::Dumper -e 'print 1'
    xargs
    ls | xargs
    python3 script.py -i
    node x.js -i
    ruby x.rb < data.txt
    php artisan migrate < /dev/null
    bash script.sh
    bash script.sh < data.txt
    bash -c 'wc -l' < data.txt
    bash < /dev/null
    sh ./x.sh < /dev/null
    psql db < dump.sql
    psql -f x.sql
    sqlite3 x.db < schema.sql
    mysql db < dump.sql
    docker exec -i db psql -U me < dump.sql
    docker run --rm -i img < data.txt
    docker run --entrypoint=sh img -c ls
    ssh h uptime < /dev/null
    ssh h 'wc -l' < data.txt
    while read h; do ssh $h uptime; done < hosts
    while read -r l; do echo "$l"; done < f
    sort < f
    wc -l < f
    jq . < x.json
    patch -p1 < x.diff
    tee x < f
    crontab -l
    crontab -u me -l
    echo 'ls -la' | ssh h
    ssh h <<EOF⏎uptime⏎EOF
    bash <<EOF⏎ls⏎EOF
    awk -f x.awk f
    awk -f - f <<< '{print $1}'
    script -q log -c ls
""")


def test_the_tables_are_large_enough() -> None:
    assert len(set(KNOWN)) + len(set(NOT_KNOWN)) >= 100


@each_row(KNOWN)
def test_a_deny_rule_holds_for_a_known_script(command: str) -> None:
    found = judge_command(command, allow=[None], deny=["curl:*"])
    assert found.decision == "deny", found.reason


@each_row(NOT_KNOWN)
def test_a_script_that_is_not_known_is_asked_about_while_a_rule_denies(command: str) -> None:
    found = judge_command(command, allow=[None], deny=["curl:*"])
    assert found.decision in {"ask", "deny"}


@each_row(ORDINARY)
def test_an_ordinary_command_is_not_asked_about(command: str) -> None:
    found = judge_command(command, allow=[None], deny=["curl:*"])
    assert found.decision == "allow", found.reason


@each_row(["echo ls > x.sh; bash x.sh", "echo ls > x.sh; . x.sh"])
def test_a_script_that_the_same_line_writes_is_judged(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["curl:*"]).decision == "allow"
    assert judge_command(command, allow=[None], deny=["ls:*"]).decision == "deny"
