"""The read-only profile: uses of its programs that do more than read."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

BEYOND = split_table(r"""
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
    export -p
    export -x
    declare
    declare -p
    declare -x
    declare -xr
    declare -a
    typeset -x
    readonly -a
    declare -x | grep KEY
    echo $(declare -x)
    eval 'declare -x'
    compgen -v
    compgen -e
    jq env
    jq -n 'env.KEY'
    jq -n '$ENV'
    jq -n '"\(env)"'
    jq -n '{env}'
    jq -n '{$ENV}'
    awk 'BEGIN{print ENVIRON["KEY"]}'
    ps e
    ps auxe
    ps -o environ
    cat /proc/self/environ
    tr '\0' '\n' < /proc/$$/environ
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
    sort -ox2>/dev/null y
    sort --output=x2>/dev/null y
    find . -delete2>/dev/null
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
    xxd a -l
    xxd a -r -p
    xxd -b a -plain
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
    x='-v a[$(id)]'; [ $x ]
    test $x
    [ -n $x ]
    [ x$a = x ]
    [ "$a" "$b" ]
    test -n x -o "$a" "$b"
    [ "$@" ]
    [ * ]
    [ -? x ]
    [ $(cat x) -gt 5 ]
    wait -n -p PATH; ls
    wait -np PATH
    wait $x
    wait "$x"
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
    x=~/.ssh/id_rsa; cat $x
    x=~/.aws; cat $x/credentials
    x=/proc/self/environ; cat "$x"
    for f in ~/.ssh/*; do cat $f; done
    f() { cat "$1"; }; f ~/.ssh/id_rsa
    a=(~/.ssh/id_rsa); cat ${a[0]}
    read x <<< ~/.ssh/id_rsa; cat $x
    cat $(echo ~/.ssh/id_rsa)
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


def test_the_table_is_large_enough() -> None:
    assert len(set(BEYOND)) >= 350


@each_row(BEYOND)
def test_a_command_that_does_more_than_read_is_asked_about(command: str) -> None:
    found = judge_command(command)
    assert found.decision in {"ask", "deny"}, found
    assert found.reason


def test_a_refusal_has_a_reason() -> None:
    assert judge_command("sort -o x y").reason == "-o does more than read"
    assert judge_command("sort --outp=x y").reason == "--outp may stand for --output, which does more than read"
    assert judge_command('sort "$x"').reason == '"$x" may become an option'
    assert judge_command("uniq a b").reason == "a further operand would be written to"
    assert judge_command("find . -delete").reason == "find -delete does more than find"
    assert judge_command("cat ~/.ssh/id_rsa").reason == "~/.ssh/id_rsa may hold secrets"
    assert judge_command("rm x").reason == "no rule allows it"
