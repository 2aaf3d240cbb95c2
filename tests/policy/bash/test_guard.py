"""The guard: commands that are asked about or denied in every mode, under every rule."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.core.types.tool import Allow

DENIED = split_table(r"""
    rm -rf /
    rm -fr /
    rm -r /
    rm -R /
    rm --recursive /
    rm --rec --force /
    rm -r -f /
    rm / -rf
    rm -rf /*
    rm -rf //
    rm -rf /.
    rm -rf /./
    rm -rf /../
    rm -rf "/"
    rm -rf '/'*
    rm -rf -- /
    rm -rf ~
    rm -rf ~/
    rm -rf ~/*
    rm -rf $HOME
    rm -rf "$HOME"
    rm -rf ${HOME}
    rm -rf $HOME/
    rm -rf $HOME/*
    rm -rf "$HOME"/*
    rm -rf ~root
    rm -rf /e*
    rm -rf /?tc
    rm -rf /[eu]*
    rm -rf /{etc,usr}
    rm -rf /etc
    rm -rf /etc/
    rm -rf /etc/*
    rm -rf /usr
    rm -rf /usr/lib
    rm -rf /var
    rm -rf /home
    rm -rf /home/me
    rm -rf /home/*
    rm -rf /bin /tmp/x
    rm -rf /boot
    rm -rf /Users
    rm -rf /System
    rm -rf x /
    rm -rf --no-preserve-root /
    rm --no-preserve-root x
    sudo rm -rf /
    env rm -rf /
    /bin/rm -rf /
    \rm -rf /
    r'm' -rf /
    command rm -rf /
    timeout 5 rm -rf /
    bash -c 'rm -rf /'
    eval 'rm -rf /'
    ls; rm -rf /
    echo $(rm -rf /)
    cd / && rm -rf *
    cd / && rm -rf .
    cd /; rm -rf ./*
    cd ~ && rm -rf *
    cd && rm -rf *
    cd; rm -rf ./*
    cd /etc && rm -rf *
    cd .. && cd / && rm -rf .
    find / -delete
    find / -name x -delete
    find /etc -delete
    find ~ -delete
    find $HOME -delete
    find / -exec rm {} \;
    find / -exec rm -rf {} +
    find /usr /tmp -type f -delete
    dd if=/dev/zero of=/dev/sda
    dd of=/dev/nvme0n1 if=x
    dd if=x of=/dev/disk0
    mkfs.ext4 /dev/sda1
    mkfs -t ext4 /dev/sda
    mke2fs /dev/vda
    wipefs -a /dev/sda
    fdisk /dev/sda
    cat x > /dev/sda
    echo x >> /dev/nvme0n1
    ls > /dev/mem
    tee /dev/sda < x
    cp x /dev/sda
    shred /dev/sda
    chmod -R 777 /
    chmod -R 777 /etc
    chmod --recursive 777 /usr
    chown -R me /
    chown -R me:me ~
    chgrp -R x /var
    chmod -R 000 $HOME
    mv / /tmp
    mv /* /tmp/x
    mv ~ /tmp
    mv /etc /tmp/x
    :(){ :|:& };:
    f(){ f|f& };f
    bomb() { bomb | bomb & }; bomb
    f() { f & f & }; f
    x() { x & x; }; x
    bash -c ':(){ :|:& };:'
    dd if=x of=/dev/sda
    dd if=x of=/dev/disk/by-id/x
    chown -R x /
    fd . / -X rm -rf
    fd . / -x rm
    fd . /etc -X rm
    fd . ~ -X rm -rf
    fd --search-path / -X rm
    fd --base-directory / -X rm
    fd -C / -X rm
    fd --exec-batch=rm . /
    fd --exec=rm . ~
    fdfind . / --exec-batch rm
    fdfind . / --exec=rm
    rm -rf /proc/self/cwd/../../../..
    cd / && rm -rf /proc/self/cwd
    cd / && rm -rf /proc/*/cwd/*
    cd /etc && rm -rf /proc/self/cwd/*
    rsync -a --delete x/ /
    rsync -a --delete-after x/ /etc
    cd / && find -delete
    cd / && fd -X rm
    cd / && fd -Hxrm
""")

THROUGH_PROCESSES = split_table(
    r"""
    fd . /proc/self/ROOT -X rm
    rm -rf /proc/self/ROOT
    rm -rf /proc/self/ROOT/
    rm -rf /proc/self/ROOT/*
    rm -rf /proc/self/ROOT/etc
    rm -rf /proc/1/ROOT/usr
    rm -rf /proc/1/ROOT/
    rm -rf /proc/*/ROOT/etc
    rm -rf /proc/*/ROOT
    rm -rf /proc/thread-self/ROOT/home
    rm -rf /proc/self/task/1/ROOT/etc
    rm -rf /proc/self/ROOT/proc/self/ROOT/etc
    chmod -R 777 /proc/self/ROOT
    chown -R x /proc/1/ROOT/etc
    mv /proc/self/ROOT/etc x
    find /proc/self/ROOT -delete
    find /proc/1/ROOT/etc -exec rm {} \;
    dd of=/proc/self/ROOT/dev/sda if=x
    cat x > /proc/self/ROOT/dev/sda
    tee /proc/1/ROOT/dev/sda
""".replace("ROOT", "root")
)

ASKED = split_table(r"""
    rm -rf /proc/self/cwd/..
    cd $X && rm -rf *
    cd "$X"; rm -rf ./*
    cd - && rm -rf .
    pushd "$X" && rm -rf *
    rm -rf $x
    rm -rf "$x"
    rm -rf $x/
    rm -rf /usr/l*
    rm -rf /etc/s?h
    rm -rf $x/*
    rm -rf "$x/y"
    rm -rf ./$x
    rm -rf $(pwd)
    rm -rf `cat f`
    rm -rf ${x:-/}
    rm -rf /tmp/$x
    rm -r "$@"
    sudo rm -rf $x
    xargs rm -rf
    ls | xargs rm -r
    find . | xargs -0 rm -rf
    find $x -delete
    find "$x" -exec rm {} \;
    chmod -R 777 $x
    chown -R me "$x"
    mkfs.ext4 disk.img
    for d in *; do rm -rf "$d"; done
""")

FREE = split_table(r"""
    cd "$X" && rm -rf build
    cd sub && rm -rf *
    rm x
    rm -f x
    rm -rf build
    rm -rf ./build dist
    rm -rf node_modules
    rm -rf /tmp/x
    rm -rf /tmp/x*
    rm -rf ~/tmp*
    rm -rf ./a*
    rm -rf *.o
    rm -rf build/*
    rm -rf ~/project/build
    rm -rf $HOME/project/build
    rm /etc/x
    rm -rf /var/tmp/x
    rm -rf /home/me/project/build
    rm -rf /etc/x/y
    rmdir /x
    find . -delete
    find build -name '*.o' -delete
    find . -name x -exec rm {} \;
    find build -exec rm -rf {} +
    find / -name x
    dd if=x of=y
    dd if=/dev/zero of=x bs=1 count=1
    dd if=/dev/sda of=image
    dd of=/dev/null if=x
    cp /dev/zero x
    chmod 777 x
    chmod -R u+w build
    chown -R me .
    chmod 755 /usr
    mv a b
    mv /tmp/a .
    ls > /dev/null
    f() { ls | cat; }; f
    f() { f; }; f
    a() { b | c & }; a
    cd build && rm -rf *
    cd / && ls
    cd / && fd -e py
    fd -e pyc -X rm
    fd -x rm -rf
    fd . build -X rm -rf
    fd -e py . src --exec=rm
    fd --exec-batch=rm . build
    rm -rf /proc/self/cwd/build
    fd --base-directory=build -X rm
    fd rm /
    find -delete
    rm -rf /proc/self/cwd/build
    ls /proc/self/root
    rsync -a --delete x/ y/
    rsync -a --delete x/ "$y"
    rsync -a x/ /etc
    echo rm -rf /
    grep 'rm -rf /' f
    git rm -r x
    tee x
    cat /dev/sda
""")


def test_the_tables_are_large_enough() -> None:
    assert len(set(DENIED)) + len(set(ASKED)) >= 100


@each_row([*DENIED, *THROUGH_PROCESSES])
def test_a_destructive_command_is_denied_under_every_rule(command: str) -> None:
    found = judge_command(command, allow=[None, command])
    assert (found.decision, found.layer) == ("deny", "guard")
    assert judge_command(command, default=Allow("bypassPermissions", "mode")).decision == "deny"


@each_row(ASKED)
def test_a_possibly_destructive_command_is_asked_about_under_every_rule(command: str) -> None:
    found = judge_command(command, allow=[None])
    assert (found.decision, found.layer) == ("ask", "guard")
    assert judge_command(command, default=Allow("bypassPermissions", "mode")).decision == "ask"


@each_row(FREE)
def test_a_harmless_command_is_left_to_the_rules(command: str) -> None:
    assert judge_command(command, allow=[None]).decision == "allow"
