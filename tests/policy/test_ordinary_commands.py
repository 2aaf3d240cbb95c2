"""Ordinary commands of developers are decided as a person expects, without rules and with the usual deny rules."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.policy.tables import split_table
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

DENY = ("Read(**/.env)", "Edit(conf/**)", "Bash(curl:*)")

READING = split_table(r"""
    git status
    git status -sb
    git diff
    git diff --stat
    git diff --cached
    git diff HEAD
    git diff HEAD~1 -- src
    git diff main...HEAD --stat
    git diff --name-only main
    git log
    git log --oneline -10
    git log --oneline --graph --all
    git log -1
    git log --stat -3
    git log -5 --format='%h %s'
    git log --since=yesterday
    git log --author=me --oneline
    git log -p -1 -- src
    git log -- src/main.py
    git show
    git show HEAD
    git show --stat HEAD
    git show HEAD:README.md
    git show HEAD~1:src/main.py
    git branch
    git branch -a
    git branch -vv
    git branch --show-current
    git remote -v
    git rev-parse HEAD
    git rev-parse --abbrev-ref HEAD
    git rev-parse --show-toplevel
    git ls-files
    git ls-files src
    git ls-files '*.py'
    git blame src/main.py
    git blame -L 1,10 src/main.py
    git grep KEY -- src
    git grep -n def
    git describe --tags
    git tag
    git tag -l
    git stash list
    git config --get user.name
    git shortlog -sn
    git reflog
    git worktree list
    git merge-base main HEAD
    git cat-file -t HEAD
    git diff --check
    git diff --word-diff src
    git ls-tree HEAD
    git show-ref
    git for-each-ref
    git rev-list --count HEAD
    git whatchanged -1
    git check-ignore -v x
    git --version
    ls
    ls -la
    ls -la src
    ls -R src
    ls *.py
    ls -1 src/*.py
    ls -lt | head
    ls conf
    ls -d */
    tree
    tree -L 2
    tree src
    pwd
    whoami
    date
    date +%F
    uname -a
    id
    which python3
    which -a node
    type git
    command -v npm
    echo hi
    echo $HOME
    echo "$PATH"
    printf '%s\n' a b
    cat README.md
    cat src/main.py src/util.py
    cat src/*.py
    cat package.json
    cat Makefile
    head -20 README.md
    tail -5 README.md
    tail -n +2 README.md
    sed -n 1,20p src/main.py
    sed -n '1,5p' README.md
    sed 's/a/b/' README.md
    awk '{print $1}' README.md
    awk -F: '{print $1}' x
    wc -l src/*.py
    wc -l README.md
    sort x
    sort x | uniq -c | sort -rn | head
    uniq x
    cut -d: -f1 x
    tr a-z A-Z < x
    diff x README.md
    diff -u src/main.py src/util.py
    diff -r src src
    cmp x README.md
    file src/main.py
    stat README.md
    du -sh .
    du -sh src
    df -h
    md5sum x
    sha256sum x
    xxd x
    od -c x
    grep -r KEY src
    grep -rn KEY src/
    grep -rn "def " --include='*.py' .
    grep -rn KEY . --include=*.md
    grep -n KEY README.md
    grep -rl KEY src
    grep -c KEY README.md
    grep -i readme *.md
    grep -rn --exclude-dir=node_modules KEY src
    grep -E 'a|b' x
    grep -v '^#' x
    rg KEY
    rg KEY src
    rg -n 'def ' -t py
    rg --files
    rg --files | head
    rg -l KEY
    rg -g '*.py' KEY
    rg -i todo
    rg -C3 main src
    find . -name '*.py'
    find . -name '*.py' -not -path './node_modules/*'
    find src -type f
    find . -type d -name src
    find . -maxdepth 2 -type f
    find . -name '*.py' | head
    find . -name '*.py' | wc -l
    find . -type f | sort
    find . -size +1M
    find . -mtime -1
    jq . src/data.json
    jq -r .name package.json
    jq '.scripts | keys' package.json
    cat src/data.json | jq .
    basename src/main.py
    dirname src/main.py
    realpath src
    readlink -f src
    test -f README.md && echo yes
    [ -d src ] && ls src
    [[ -f x ]] && cat x
    for f in src/*.py; do echo $f; done
    for f in src/*.py; do wc -l $f; done
    while read l; do echo $l; done < README.md
    cd src && ls
    cd src && cat main.py
    cd src && grep -n KEY *.py
    (cd src && ls)
    ls && pwd
    git status && git diff
    git log --oneline | head -5
    git diff | head -100
    git status | grep modified
    ps aux
    ps aux | grep node
    ps -ef | head
    free -h
    uptime
    nproc
    docker ps
    docker ps -a
    docker images
    node --version
    node -v
    python3 --version
    python3 -V
    java -version
    man ls
    time ls
    timeout 5 ls
    sleep 1
    true
    seq 1 5
    expr 1 + 1
    column -t x
    nl README.md
    tac x
    rev x
    fold -w 80 README.md
    comm x x
    paste x x
    join x x
    base64 x
    tar tf x.tar
    unzip -l x.zip
""")

CHANGING = split_table(r"""
    git add -A
    git add .
    git add src/main.py
    git commit -m "fix: x"
    git commit -qm 'x y'
    git commit -am x
    git commit --amend --no-edit
    git commit -m "$(cat <<'X'⏎fix: a⏎⏎body⏎X⏎)"
    git push
    git push origin main
    git push -u origin HEAD
    git fetch
    git fetch --all --prune
    git checkout -b feature
    git checkout -- src/main.py
    git checkout src/main.py
    git switch -c feature
    git stash push -m x src
    git reset HEAD src/main.py
    git reset --soft HEAD~1
    git reset
    git restore src/main.py
    git restore --staged .
    git rm src/util.py
    git mv src/util.py src/u.py
    git tag v1.0
    git clean -n
    git clean -fd
    git branch -d feature
    git branch -m old new
    git remote add origin https://example.org/a.git
    git clone https://github.com/a/b
    git init
    git config user.name me
    git log -p -1
    git log --stat
    git diff HEAD~1
    npm test
    npm run build
    npm run lint -- --fix
    npm install
    npm ci
    npm i -D jest
    npm start
    npm run dev
    npx jest
    npx tsc --noEmit
    npx prettier --write src
    npx eslint src
    yarn
    yarn test
    yarn add react
    pnpm install
    pnpm test
    node src/index.js
    node -e 'console.log(1)'
    node -p '1+1'
    cargo build
    cargo build --release
    cargo test
    cargo test foo -- --nocapture
    cargo check
    cargo clippy
    cargo fmt
    cargo run
    cargo add serde
    rustc x.rs
    go build ./...
    go test ./...
    go run .
    go mod tidy
    go vet ./...
    gofmt -l .
    make
    make test
    make -j4
    make clean
    make install PREFIX=/tmp/x
    cmake -B build
    cmake --build build
    ninja -C build
    gcc -o a a.c
    g++ -O2 x.cpp -o x
    pytest
    pytest -q
    pytest -k foo
    pytest tests/test_a.py::test_b -x
    pytest --cov=src
    python3 -m pytest -q
    python3 -m venv .venv
    python3 -m http.server 8000
    python3 -m json.tool src/data.json
    python3 -m build
    python3 src/main.py
    python3 src/main.py --flag x
    python3 -c 'print(1)'
    python3 -c 'import sys; print(sys.version)'
    python3 -c "import json; print(json.load(open('src/data.json')))"
    python3 - <<'X'⏎print(1)⏎X
    python3 <<'X'⏎import json⏎print(json.dumps({}))⏎X
    pip install -r requirements.txt
    pip install requests
    pip install -e .
    uv sync
    uv run pytest
    poetry install
    ruff check .
    ruff check --fix src
    ruff format .
    black .
    mypy src
    mypy .
    isort .
    flake8
    pylint src
    tox
    pre-commit run --all-files
    tsc
    tsc --noEmit
    eslint .
    prettier --check .
    jest
    vitest run
    mocha
    bundle install
    bundle exec rspec
    rails test
    mvn test
    mvn clean package
    gradle build
    ./gradlew test
    ./run.sh
    bash scripts/x.sh
    sh run.sh
    source .venv/bin/activate
    . .venv/bin/activate && pytest
    docker build -t x .
    docker run --rm alpine echo hi
    docker run -p 80:80 nginx
    docker compose up -d
    docker compose down
    docker compose logs
    docker exec web ls
    kubectl apply -f k8s/
    kubectl delete pod x
    terraform plan
    terraform apply
    wget https://example.org/x.zip
    mkdir build
    mkdir -p src/a/b
    touch src/new.py
    rm src/util.py
    rm -rf build
    rm -rf node_modules
    rm -rf dist build *.egg-info
    rm -f src/*.pyc
    cp src/main.py src/copy.py
    cp -r src lib
    mv src/main.py src/app.py
    mv x y
    ln -s src link
    chmod +x src/main.py
    chmod 755 run.sh
    echo hi > src/out.txt
    echo hi >> README.md
    echo 'x' | tee src/t.txt
    cat <<'X' > src/new.py⏎print(1)⏎X
    cat > src/new.py <<'X'⏎print(1)⏎X
    cat <<X >> README.md⏎hi⏎X
    sed -i s/a/b/ src/main.py
    sed -i 's/foo/bar/g' src/*.py
    sed -i.bak 's/a/b/' README.md
    perl -pi -e 's/a/b/' src/main.py
    awk '{print $1}' x > src/o
    sort x > src/sorted
    jq '.a=1' src/data.json > src/d2.json
    jq . src/data.json > tmp.json && mv tmp.json src/data.json
    find . -name '*.pyc' -delete
    find . -name '__pycache__' -exec rm -rf {} +
    find src -name '*.py' -exec sed -i s/a/b/ {} +
    find src -name '*.js' | xargs prettier --write
    grep -rl foo src | xargs sed -i s/foo/bar/g
    rg -l foo src | xargs sed -i 's/foo/bar/'
    for f in src/*.py; do sed -i s/a/b/ $f; done
    for f in src/*.txt; do mv "$f" "${f%.txt}.md"; done
    tar czf out.tgz src
    zip -r out.zip src
    gzip src/data.json
    patch --dry-run -p1 < p.diff
    git apply --check p.diff
    ssh host ls
    scp src/main.py host:
    rsync -av src/ host:src/
    kill 1234
    kill -9 1234
    pkill node
    killall node
    lsof -ti:3000 | xargs kill
    nohup npm start &
    (cd src && npm test)
    cd src && npm test
    cd src && touch x.py && cd .. && ls
    export NODE_ENV=test && npm test
    NODE_ENV=test npm test
    CI=1 npm test
    PORT=3000 npm start
    DEBUG=1 python3 src/main.py
    FOO=bar make
    env FOO=1 npm test
    time make
    timeout 60 pytest -q
    npm test 2>&1 | tail -20
    npm test > test.log 2>&1
    pytest 2>&1 | tee test.log
    make 2>&1 | grep -i error
    cargo test 2>&1 | tail -n 40
    npm run build && npm test
    npm ci && npm run build && npm test
    mkdir -p build && cd build && cmake ..
    if [ -f package.json ]; then npm test; fi
    [ -d node_modules ] || npm install
    test -d .venv || python3 -m venv .venv
    version=$(node -p 'require("./package.json").version'); echo $version
    git log --oneline | wc -l
    sqlite3 app.db '.tables'
    sqlite3 app.db 'select 1'
    psql -c 'select 1'
    redis-cli ping
    gh pr create --fill
    gh pr checkout 1
    systemctl status nginx
    journalctl -n 50
    openssl version
    ssh-keygen -l -f x
    dot -Tpng x.dot -o x.png
    ffmpeg -i a.mp4 b.mp3
    convert a.png b.jpg
    pandoc README.md -o README.html
""")

UNKNOWN = split_table(r"""
    git pull
    git checkout other
    git stash pop
    git log -p
    tar xzf vendor.tgz
    patch -p1 < p.diff
""")
"""Commands that may use files which the rules deny."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("src/main.py", "src/util.py", "src/data.json", "conf/a.yml", "conf/sub/b.yml", "README.md", "x"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}\n")
    (folder / ".env").write_text("KEY=1\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for line in ("init -qb main", "add -f .", "commit -qm one", "rm -q --cached .env", "commit -qm two"):
        subprocess.run(["git", *identity, *line.split()], cwd=folder, check=True)
    for number in range(4):
        (folder / "README.md").write_text(f"# {number}\n")
        subprocess.run(["git", *identity, "commit", "-qam", "more"], cwd=folder, check=True)
    return folder


def decide(command: str, project: Path, *, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> str:
    layer = Layer(name="user", allow=tuple(allow), deny=tuple(deny))
    policy = LayeredPolicy([layer], cwd=str(project), home="/nonexistent")
    return policy.decide(spec_of("Bash"), {"command": command}).decision


@pytest.mark.parametrize("deny", [(), DENY], ids=["no-rules", "deny-rules"])
def test_a_command_that_reads_needs_no_rule(project: Path, deny: Sequence[str]) -> None:
    assert [one for one in READING if decide(one, project, deny=deny) != "allow"] == []


@pytest.mark.parametrize("deny", [(), DENY], ids=["no-rules", "deny-rules"])
def test_a_rule_for_every_command_allows_it_although_rules_deny_other_files(project: Path, deny: Sequence[str]) -> None:
    assert [one for one in (*CHANGING, *READING) if decide(one, project, allow=["Bash"], deny=deny) != "allow"] == []


def test_a_command_that_changes_something_is_asked_about_without_a_rule(project: Path) -> None:
    assert [one for one in CHANGING if decide(one, project) == "deny"] == []
    assert len([one for one in CHANGING if decide(one, project) == "ask"]) > len(CHANGING) // 2


def test_a_command_that_may_use_denied_files_is_asked_about(project: Path) -> None:
    assert {decide(one, project, allow=["Bash"], deny=DENY) for one in UNKNOWN} == {"ask"}
    assert {decide(one, project, allow=["Bash"]) for one in UNKNOWN} == {"allow"}
