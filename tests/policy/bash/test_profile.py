"""The read-only profile: what it allows without a rule, and the ways in which the same programs do more than read."""

import pytest

from tests.policy.bash.court import judged, lines
from vaka.core.types.tool import Deny

READING = lines(r"""
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
    wait
""")

BEYOND = lines(r"""
    rm x
    touch x
    mkdir x
    cp a b
    mv a b
    chmod +x a
    curl x
    npm install
    python x.py
    make
    env
    printenv
    export
    set
    declare -p
    tee x
    xargs ls
    ls | xargs cat
    sudo ls
    bash x.sh
    sh -c ls
    eval ls
    source x
    exec ls
    command ls
    builtin echo x
    env ls
    watch ls
    setsid ls
    find . -delete
    find . -name '*.py' -delete
    find . -exec ls {} \;
    find . -exec ls {} +
    find . -execdir ls {} \;
    find . -ok ls {} \;
    find . -okdir ls {} \;
    find . -fprint x
    find . -fprint0 x
    find . -fprintf x '%p'
    find . -fls x
    find . -files0-from x
    find . -name x -o -delete
    find $DIR -name x
    find "$DIR" -type f
    find * -type f
    find . $opts
    find . -name $x
    find . "$@"
    find . -d{elete,x}
    find . -unknown
    sed -i s/a/b/ f
    sed -i.bak s/a/b/ f
    sed -ni s/a/b/p f
    sed --in-place s/a/b/ f
    sed --in-p s/a/b/ f
    sed --in-place=.bak s/a/b/ f
    sed s/a/b/ -i f
    sed -e s/a/b/ -i f
    sed -f script f
    sed --file=script f
    sed -n -f script f
    sed 's/a/b/w out' f
    sed 's/a/b/gw out' f
    sed 's/a/id/e' f
    sed 's/a/b/ge' f
    sed 'w out' f
    sed '/a/w out' f
    sed 'W out' f
    sed '1e id' f
    sed 'e' f
    sed '$e id' f
    sed '1,5w out' f
    sed 'r /etc/passwd' f
    sed '/x/{w out⏎}' f
    sed 's/a/b/;w out' f
    sed 's/a/b/⏎w out' f
    sed 's/[/]/w x/' f
    sed 's,a,b,w out' f
    sed -e 'a\' -e 'x' -e 'w out' f
    sed "$script" f
    sed "s/$a/$b/" f
    sed s/a/b/ $f
    sed -n p *
    sed -E -i s/a/b/ f
    sed -nf script f
    sed -zi s/a/b/ f
    sed --expr=w\ out f
    sed 's/a/b/' --in-place f
    sed 'y/a/b/;e id' f
    sed ':a;w out' f
    sort -o x y
    sort -ox y
    sort -uo x y
    sort y -o x
    sort --output=x y
    sort --output x y
    sort --out=x y
    sort --o x y
    sort --compress-program=id y
    sort --compress-prog id y
    sort --comp=id y
    sort -T /tmp y
    sort -S1 --compress-program=./x big
    sort $x
    sort "$x"
    sort *
    sort *.txt
    sort -k$x f
    sort -{o,x} f
    sort ${x}
    sort -k 2 $x f
    sort -$x f
    uniq a b
    uniq -c a b
    uniq a "$b"
    uniq $x
    uniq *
    uniq -- a b
    xxd a b
    xxd -r a b
    xxd -ps a b
    xxd -p a b
    xxd -c 8 a b
    xxd -r -p a b
    xxd $x
    xxd *
    xxd -- a b
    tree -o x
    tree -ao x
    tree -R -H . -L 1
    tree --output x
    tree $x
    awk 'BEGIN {system("id")}'
    awk '{system($1)}' f
    awk '{print > "out"}' f
    awk '{print $1 > $2}' f
    awk '{print >> "out"}' f
    awk '{printf "%s", $1 > "out"}' f
    awk '{print | "sh"}' f
    awk '{print $1 | "sort"}' f
    awk '{"id" | getline x; print x}' f
    awk '{getline < "/etc/passwd"; print}' f
    awk 'BEGIN {while (("id" | getline l) > 0) print l}'
    awk '{print |& "id"}' f
    awk '@load "x"; {print}' f
    awk '@include "x"; {print}' f
    awk 'BEGIN {f = "system"; @f("id")}'
    awk 'BEGIN {print ENVIRON["KEY"]}'
    awk 'BEGIN {for (k in ENVIRON) print k}'
    awk -f x f
    awk -fx f
    awk --file=x f
    awk --fi x f
    awk -i inplace '{print}' f
    awk -l x '{print}' f
    awk -E x f
    awk -o x '{print}' f
    awk -px '{print}' f
    awk -d '{print}' f
    awk "$prog" f
    awk "{print $x}" f
    awk '{print $1,⏎$2 > "out"}' f
    awk 'x++ / system("id") / 1' f
    awk '{print "a"; print "b" > "c"}' f
    awk '{ print("a") > "b" }' f
    awk '/[/]/ { system("id") }' f
    awk -e '{system("id")}' f
    awk -v 'x=1' -f y f
    awk '{close("x")}' f
    gawk --exec x
    rg --pre id x
    rg --pre=id x
    rg x --pre ./y
    rg --hostname-bin=id x
    rg -z x
    rg --search-zip x
    rg -nz x
    rg "$x"
    rg x $f
    rg x *
    rg -e x $f
    rg --pr=id x
    fd x -x id
    fd -x id
    fd x --exec id
    fd x -X id
    fd x --exec-batch id
    fd -Hx id
    fd --exec=id x
    fd --exe id
    fd -l x
    fd $x
    date -s x
    date --set=x
    date --set x
    date --s=x
    date 01011200
    date -us x
    date $x
    date -u 010112002026
    file -C -m x
    file -m x y
    file --magic-file=x y
    file --compile
    file -bm x y
    file --comp
    file *
    file "$f"
    man -P id ls
    man -Pid ls
    man --pager=id ls
    man --pag=id ls
    man -H ls
    man -Hid ls
    man --html=id ls
    man -C x ls
    man -l ./x
    man ./x
    man -M /tmp ls
    man -K x
    man $x
    man -aPid ls
    base64 -o x f
    base64 --output=x f
    base64 -i a -o b
    jq env f
    jq '$ENV' f
    jq -n env.KEY
    jq '"\(env.KEY)"' f
    jq -n '$ENV.KEY'
    jq -f prog f
    jq --from-file prog f
    jq -L . 'include "x"; .' f
    jq 'import "x" as y; .' f
    jq "$prog" f
    jq ".$key" f
    jq . $f
    jq . *.json
    jq -nf prog
    ps e
    ps auxe
    ps eww
    ps -E
    ps axe -o cmd
    ps $x
    printf -v PATH x
    printf -v x y
    printf "$x"
    printf -vPATH x
    test -v 'a[$(id)]'
    [ -v x ]
    test -R x
    git -c core.pager=id log
    git -c alias.log='!id' log
    git --exec-path=/tmp log
    git --git-dir=/tmp/x log
    git --git-dir /tmp/x status
    git --work-tree=/tmp status
    git --config-env=core.pager=X log
    git -C /tmp/x status
    git -C ../x status
    git -C "$x" status
    git -C ~/x log
    git -p log
    git --paginate log
    git diff --output=x
    git diff --output x
    git diff --outp=x
    git diff --ext-diff
    git diff --ext
    git log --output=x
    git log -p --ext-diff
    git log --textconv -p
    git show --output=x HEAD
    git show --ext-diff
    git log --show-signature
    git log --format=%G?
    git log --pretty='format:%GK'
    git log $x
    git log "$x"
    git log *
    git diff "$x"
    git diff *.py
    git show $x
    git show "$sha"
    git diff --cached $x
    git log --since --output=x
    git log --author --output=x
    git log --glob --output=x
    git log --unknown -- --output=x
    git log -S --output=x
    git log --format=%h --output=x
    git branch foo
    git branch -d foo
    git branch -D foo
    git branch --delete foo
    git branch --del foo
    git branch -m a b
    git branch -M a
    git branch --move a b
    git branch -c a b
    git branch -f foo HEAD
    git branch -u origin/x
    git branch --set-upstream-to=x
    git branch --set-up=x
    git branch --unset-upstream
    git branch --edit-description
    git branch -t x y
    git branch -a foo
    git branch -v foo
    git branch "$x"
    git branch --list -D x
    git branch -rd x
    git remote add x y
    git remote -v update
    git remote remove x
    git remote set-url x y
    git remote show x
    git remote update
    git push
    git pull
    git fetch
    git commit -m x
    git add .
    git checkout x
    git reset --hard
    git stash
    git clean -fd
    git config x y
    git gc
    git "$x"
    git
    git --help
    git help log
    cd
    cd /
    cd ..
    cd ~
    cd -
    cd $x
    cd "$x"
    cd /tmp && ls
    cd src/../..
    cd a; cd ../..
    cat ~/.ssh/id_rsa
    cat $HOME/.aws/credentials
    cat ~/.ssh/*
    cat /etc/shadow
    cat /proc/self/environ
    cat /proc/1/environ
    grep x ~/.netrc
    head /root/.ssh/id_ed25519
    cat ~/.bash_history
    xxd /dev/sda
    tail /home/me/.ssh/config
    cat < ~/.ssh/id_rsa
    ls > x
    ls >> x
    ls 2> x
    ls &> x
    ls &>> x
    ls >| x
    ls >& x
    ls > "$x"
    ls > $(pwd)/x
    echo x > ~/.bashrc
    cat a > b
    > x
    : > x
    { ls; } > x
    (ls) > x
    for i in 1; do ls; done > x
    while read l; do echo; done > x
    if true; then ls; fi > x
    f() { ls; } > x; f
    echo x > /dev/tcp/a/80
    cat < /dev/tcp/a/80
    cat < /dev/udp/a/53
    exec 3<>/dev/tcp/a/80
    echo x > /dev/null/../x
    ls > /dev/sda
    ls > /dev/fd/../x
    echo x 1> y
    ls | sort > x
    ls > /dev/nullx
    FOO=1 ls
    EDITOR=x ls
    time -o x ls
    timeout $t ls
    timeout --foo 5 ls
    nice -n $n ls
    stdbuf --x ls
    nohup rm x
    ./ls
    /tmp/ls
    ../bin/ls
    ~/bin/ls
    l𝗌 -la
    lѕ -la
    ｌｓ
    LS
    l{s,x}
    read PATH
    read -a x
    export FOO=x
    export -f x
    declare -x FOO=x
    unset -f ls
    unset PATH
    shopt -s x
    alias ls=id
    enable -n ls
    hash -p /tmp/x ls
    trap 'ls' EXIT
    kill 1
    ulimit -n 5
    umask 0
    pushd x
    popd
    history -c
    set -o history
    set +x -- a b
    read "$x"
""")


def test_the_tables_are_large_enough() -> None:
    assert len(set(READING)) >= 250
    assert len(set(BEYOND)) >= 350


@pytest.mark.parametrize("command", READING)
def test_plain_reading_needs_no_rule(command: str) -> None:
    found = judged(command)
    assert found.decision == "allow", found


@pytest.mark.parametrize("command", BEYOND)
def test_what_does_more_than_read_is_asked_about(command: str) -> None:
    found = judged(command)
    assert found.decision in {"ask", "deny"}, found
    assert found.reason


@pytest.mark.parametrize("command", READING)
def test_without_the_profile_the_mode_decides_about_every_command(command: str) -> None:
    found = judged(command, profile=False, unmatched=Deny("nobody is asked", "dontAsk", "mode"))
    assert found.decision == "deny" or not any(part.rule for part in found.subcommands)


@pytest.mark.parametrize("command", READING)
def test_the_profile_is_no_way_around_a_rule(command: str) -> None:
    if judged(command).subcommands:
        assert judged(command, deny=[None]).decision == "deny"
        assert judged(command, ask=[None]).decision == "ask"


def test_a_refusal_says_what_was_wrong() -> None:
    assert judged("sort -o x y").reason == "-o does more than read"
    assert judged("sort --outp=x y").reason == "--outp may stand for --output, which does more than read"
    assert judged('sort "$x"').reason == '"$x" may turn out to be an option'
    assert judged("uniq a b").reason == "a further operand would be written to"
    assert judged("find . -delete").reason == "find -delete does more than find"
    assert judged("cat ~/.ssh/id_rsa").reason == "~/.ssh/id_rsa is a place where keys lie"
    assert judged("rm x").reason == "no rule allows it"
