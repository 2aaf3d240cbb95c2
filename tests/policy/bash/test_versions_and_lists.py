"""Versions, checksums, and lists of containers and archives need no rule; other uses of these programs do."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

SHOWING = split_table(r"""
    node --version
    node -v
    python3 --version
    python3 -V
    java -version
    make --version
    docker --version
    docker ps
    docker ps -a
    docker images
    md5sum x
    sha256sum src/main.py
    cmp x y
    od -c x
    uname -a
    id -u
    nproc
    uptime
    free -h
    sleep 1
    expr 1 + 1
    readlink -f src
    fold -w 80 README.md
    paste x y
    join x y
    tar tf x.tar
    tar -tzf x.tgz
    tar tvf x.tar
    unzip -l x.zip
""")

DOING_MORE = split_table(r"""
    python3 -v
    python3 --version x
    python3 -V -c 1
    node -v x.js
    npm --version
    cargo --version
    ./node --version
    docker --version ps
    docker -H x ps
    docker run x
    docker logs x
    md5sum -c x
    sha256sum --check x
    sha256sum --ch x
    tar xf x.tar
    tar tf h:x.tar
    tar tf x --to-command=y
    tar tf -I
    tar -t
    tar tIf y x
    unzip -l x -d y
    unzip x.zip
    hostname x
    readlink /proc/self/environ
""")


@each_row(SHOWING)
def test_a_program_that_only_shows_something_needs_no_rule(command: str) -> None:
    found = judge_command(command)
    assert found.decision == "allow", found.reason


@each_row(DOING_MORE)
def test_another_use_of_it_is_asked_about(command: str) -> None:
    assert judge_command(command).decision == "ask"
