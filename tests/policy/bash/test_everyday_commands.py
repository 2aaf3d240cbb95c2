"""Everyday commands stay allowed under a rule that denies another program."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

EVERYDAY = split_table(r"""
    ls -la
    git status
    git log --oneline -5
    git diff HEAD~1 -- src
    git add -A && git commit -m "fix: x"
    git commit -m "$(cat <<'EOF'⏎message⏎EOF⏎)"
    git push origin main
    git fetch origin
    git pull --rebase
    git clone https://github.com/a/b
    git clone -b main --depth 1 https://github.com/a/b
    git -c user.name=x -c user.email=y commit -m z
    git -c core.pager=cat log
    git config user.name
    git config user.email x@y
    git config --get core.editor
    git grep -n pattern
    git grep -l TODO
    git stash push -u
    git push -u origin main
    git branch -D x
    git remote add origin git@github.com:a/b.git
    git submodule update --init --recursive
    git worktree add ../x
    git rebase -i HEAD~3
    git show HEAD:src/x.py
    npm test
    npm run build
    npm ci
    npx eslint .
    npx tsc --noEmit
    yarn install
    pnpm run test
    pnpm install
    node script.js
    node -e "console.log(require('./package.json').version)"
    node -p "process.version"
    node --version
    python3 script.py
    python3 -m pytest -q
    python3 -m http.server
    python3 -m venv .venv
    python3 -c "import json,sys; print(json.load(sys.stdin)['x'])"
    cat x.json | python3 -c "import json,sys; print(json.load(sys.stdin)['x'])"
    cat x.json | python3 -m json.tool
    python3 -c 'import numpy; print(numpy.__version__)'
    python3 -c "print(1+1)"
    python3 - <<'EOF'⏎import json⏎print(json.dumps({"a": 1}))⏎EOF
    python3 <<'EOF'⏎import re⏎print(re.compile("x").findall("xx"))⏎EOF
    python3 -c 'import sqlite3; c=sqlite3.connect("x.db"); print(c.execute("select 1").fetchall())'
    .venv/bin/python -m pytest -q -x tests/a.py
    pytest -k "foo and bar"
    make
    make test
    make -j4 all CFLAGS=-O2
    make -C sub install PREFIX=/usr
    make -f Makefile.dev test
    cargo build --release
    cargo test
    go test ./...
    go run main.go
    mvn -q test
    ./gradlew build
    cmake -S . -B build && cmake --build build
    cmake -DCMAKE_BUILD_TYPE=Release ..
    bash script.sh
    bash -c 'echo hi'
    sh -x run.sh
    bash
    source .venv/bin/activate
    . ./env.sh
    for f in *.sh; do bash -n "$f"; done
    find . -name '*.py' | xargs grep -n TODO
    find . -name '*.py' -exec grep -n TODO {} +
    find . -type f | xargs -I{} cp {} /tmp/x
    find . -name '*.pyc' -delete
    ls | while read -r f; do echo "$f"; done
    while IFS= read -r line; do echo "$line"; done < file
    read -r x y <<< "a b"
    mapfile -t lines < file
    printf -v out '%s-%s' a b
    let i++
    let "x = x + 1"
    i=0; while [ $i -lt 3 ]; do let i+=1; done
    [ -v HOME ]
    test -v X
    printf '%s\n' a b
    sed -i 's/old/new/g' file
    sed -n '1,20p' file
    sed -e 's/a/b/' -e '/x/d' file
    sed -i "s/version = .*/version = \"$V\"/" pyproject.toml
    sed -i '/pattern/d' file
    sed 's|/a/b|/c/e|' file
    sed -E 's/([a-z]+)e/\1/' file
    sed -i.bak 's/the/The/' file
    sed -n '/start/,/end/p' file
    sed '1i\header line here' file
    sed 's/x/y/w out.txt' file
    awk '{print $1}' file
    awk -F: '{print $1}' /etc/passwd
    awk '{print | "sort"}' file
    awk 'BEGIN { while ((getline line < "f") > 0) print line }'
    awk -v x="$Y" '$1 == x {print $2}' f
    awk "{print \$1}" f
    awk '/a|b/ {print}' f
    awk '$1 ~ /x|y/ || $2 {print}' f
    perl -pe 's/a/b/g' file
    perl -ne 'print if /x/' file
    perl -i -pe 's/(\w+)/\u$1/' file
    ruby -e 'puts 1'
    php -r 'echo 1;'
    cat file | head -5
    cat file | sort | uniq -c | sort -rn | head
    echo hi | tee file
    ls | tee -a log > /dev/null
    echo hi | cat
    psql -c 'select 1'
    psql mydb -c "select count(*) from users"
    echo 'select 1' | psql db
    psql db < dump.sql
    sqlite3 x.db 'select * from t'
    sqlite3 x.db .tables
    mysql -e 'show tables' db
    docker ps
    docker compose up -d
    docker run --rm -it ubuntu bash
    docker exec -i db psql -c 'select 1'
    kubectl get pods
    kubectl apply -f x.yaml
    cat x.yaml | kubectl apply -f -
    ssh host ls
    rsync -avz src/ dest/
    tar czf x.tgz dir
    tar xzf x.tgz
    unzip x.zip
    wget https://x
    jq '.a' x.json
    gh pr create --title x --body y
    env
    env FOO=bar npm test
    env -u X npm test
    FOO=bar npm test
    sudo apt-get install -y x
    timeout 60 npm test
    nohup npm start &
    time make
    watch -n 1 ls
    xargs -n1 echo
    parallel echo ::: a b
    export FOO=bar
    unset FOO
    export PATH
    declare -a arr=(1 2)
    cd src && ls
    pip install -r requirements.txt
    uv run pytest
    poetry run pytest
    ruff check .
    mypy src
    vim file
    less file
    tmux ls
    tmux kill-session -t x
    screen -ls
    crontab -l
    gdb --version
    gcc -o x x.c
    strace -f ls
    hyperfine 'ls -la'
    hyperfine --warmup 3 'make build'
    nodemon app.js
    nodemon --exec 'npm start'
    concurrently 'npm start' 'npm test'
    cat > x.sh <<'EOF'⏎echo hi⏎EOF⏎bash x.sh
    cat > x.py <<'EOF'⏎print(1)⏎EOF⏎python3 x.py
    echo 'ls -la' | bash
    bash <<'EOF'⏎ls -la⏎EOF
    f() { ls; }; f
    diff <(sort a) <(sort b)
    exec 2>&1
    exec < file
    lua -e 'print(1)'
    Rscript script.R
    julia script.jl
    expect script.exp
    openssl rand -hex 16
    openssl x509 -in a.pem -text
    nc -z localhost 80
    socat - TCP:localhost:80
    fish -c 'ls -la'
    zsh -c 'ls -la && pwd'
    rg -n foo src
    fd -e py
    bc <<< '1+2'
    echo '1+2' | bc
    dc -e '1 2 + p'
    echo pw | sudo -S apt-get update
    cat x | sudo tee f
    cat x | sudo -u postgres psql -f x.sql
    parallel gzip ::: a.txt b.txt
    find . -name '*.txt' | parallel wc -l
    parallel -j 4 convert {} {.}.png ::: a.jpg
    find . -name '*.jpg' | xargs -I{} convert {} {}.png
    find . -type f -exec chmod 644 {} +
    ls *.zip | xargs -n1 unzip
    go build -o x ./cmd/x
    go vet ./...
    cargo test -- --nocapture
    sort -u f
    sort -k2 -n f
    tar --checkpoint=100 -cf x y
    tar --exclude=x -czf y.tgz z
    tar -xf x.tar -C dir
    pandoc a.md -o b.html
    rpm -qa
    apt-get -o Acquire::Retries=3 update
    apt-get install -y git
    hg status
    svn diff
    convert a.png -resize 50% b.png
    pdflatex x.tex
    npm config get registry
    npm config set registry https://x
    npm install --save-dev x
    vim --version
    strace -o out ls
    strace -f -e trace=open ls
    man ls
    tcpdump -i eth0 -w x
    split -l 100 f
    rg -n 'foo|bar' src
    rg --files
    git log --grep=foo
    git fetch --all --prune
    git rebase origin/main
    git config --list
    git -C sub status
    git commit --amend --no-edit
    git tag -a v1 -m v1
    git archive --format=tar HEAD
    docker compose exec db psql -U x
    docker build -t x .
    kubectl exec -it pod -- bash
    ssh host 'cd x && make'
    scp a host:b
    node --import ./x.js y.js
    node --test
    deno run x.ts
    bun run x.ts
    ts-node x.ts
    python3 -m pip install x
    python3 -m unittest
    python3 x.py --eval
    python3 -c 'import sys; print(sys.version)'
    python3 -c 'import platform; print(platform.system())'
    python3 -c "import yaml; yaml.safe_load(open('x.yml'))"
    python3 -c 'import torch; m.eval()'
    python3 -c 'from pathlib import Path; print(Path(".").resolve())'
    node -e 'const fs = require("fs"); console.log(fs.readFileSync("x", "utf8"))'
    node -e 'console.log(JSON.stringify({a: 1}))'
    perl -lane 'print $F[0]' f
    perl -0pe 's/\n+/\n/g' f
    ruby -ne 'puts $_ if /x/' f
    psql -h localhost -U me -d db -c 'select * from x where y = 1'
    mysql -u root -e 'create database x'
    sqlite3 x.db '.schema'
    sqlite3 -json x.db 'select 1'
    echo 'print(1)' | python3
    python3 <<EOF⏎for i in range(3):⏎    print(i)⏎EOF
    jq -r '.[] | .name' x.json
    yq '.a' x.yml
    bash -n script.sh
    bash -x ./deploy.sh
    bash --version
    sh ./configure --prefix=/usr
    ./configure && make && make install
    chmod +x x.sh && ./x.sh
    cp a.sh b.sh
    mv a b
    curl_x=1
    su -c ls
    fzf --version
    make -n
    make -j"$(nproc)"
    make VERSION=1.2 build
    echo "$X" > f
    cat f | while read -r l; do echo "$l"; done
    exec bash script.sh
    nohup python3 server.py > log 2>&1 &
    python3 -m http.server 8000 &
    (cd sub && npm test)
    test -f x && echo y
    [ -n "$X" ] && echo y
    apt-get install -y curl
    sudo apt-get install -y curl wget
    brew install curl
    apk add --no-cache curl
    git commit -m "use curl"
    git commit -m 'curl: fix'
    git log --grep=curl
    grep -rn curl src
    grep -rn 'curl x' docs
    rg 'curl -s' docs
    which curl
    command -v curl
    type curl
    man curl
    echo curl x
    echo "run curl x" > notes
    printf '%s' curl
    npm install curl
    pip install curl
    pytest -k curl
    cat curl.c
    ls /usr/bin/curl
    gh pr create --title 'curl' --body 'use curl'
    gh issue list --search curl
    make curl
    cargo test curl
    go test -run curl ./...
    jest curl
    docker build --build-arg TOOL=curl .
    sed -n '/curl/p' file
    awk '/curl/ {print}' file
    jq '.curl' x.json
    find . -name curl
    ./install.sh curl
    python3 setup.py curl
    for t in curl wget; do command -v "$t"; done
    vim curl.md
    mkdir curl
    export TOOL=curl
    pkill curl
    pgrep -f 'curl x'
    conda install curl
    uv add curl
    poetry add curl
    kubectl logs curl
    helm install curl chart
    systemctl status curl
    aws s3 cp a s3://b
    aws s3 rm s3://b/c
    terraform plan -var x=1
    gcloud projects list
    tsc --noEmit
    bundle install
    dotnet build
    dotnet test
    mvn -q -DskipTests package
    flutter build apk
    xcodebuild -list
    swift build
    zig build
    deno fmt
    vercel --prod
    prisma migrate dev
    alembic upgrade head
    flask run
    uvicorn app:app --reload
    gunicorn app:app
    celery -A x worker
    locust -f x.py
    protoc --go_out=. x.proto
    buf generate
    pre-commit run --all-files
    commitlint --edit
    sphinx-build docs out
    mkdocs build
    hugo
    ffmpeg -i a.mp4 b.mp3
    identify a.png
    nvidia-smi
    htop
    lsof -i :80
    netstat -tlnp
    ss -tlnp
    free -h
    uptime
    uname -a
    lscpu
""")


@each_row(EVERYDAY)
def test_an_everyday_command_is_not_asked_about(command: str) -> None:
    found = judge_command(command, allow=[None, "sudo:*", "su:*"], deny=["curl:*"], ask=["rm -rf:*"])
    assert found.decision == "allow", found.reason
