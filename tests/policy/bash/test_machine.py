"""Programs that may harm the machine are asked about, also under a rule that allows every command."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.core.types.tool import Allow
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

HARMFUL = split_table(r"""
    python3 -c 'import os; os.system("sudo ls")'
    python3 -c 'import subprocess; subprocess.run(["sudo", "ls"])'
    python3 -c 'import subprocess; subprocess.run(["/sbin/reboot"])'
    echo 'import os; os.system("mkfs.ext4 /dev/sda")' | python3
    python3 - <<< 'import os; os.system("shutdown now")'
    perl -e 'system "reboot"'
    perl -e '`shutdown now`'
    node -e 'require("child_process").execSync("mount /dev/sda1 /mnt")'
    ruby -e 'system("halt")'
    php -r 'system("umount /");'
    lua -e 'os.execute("poweroff")'
    shutdown
    shutdown now
    shutdown -h now
    shutdown -r +5
    /sbin/shutdown now
    reboot
    reboot -f
    halt
    halt -p
    poweroff
    init 0
    init 6
    telinit 0
    systemctl poweroff
    systemctl reboot
    systemctl --no-wall halt
    systemctl -i suspend
    systemctl hibernate
    systemctl kexec
    systemctl emergency
    systemctl rescue
    systemctl isolate rescue.target
    systemctl start poweroff.target
    systemctl soft-reboot
    loginctl poweroff
    loginctl reboot
    loginctl terminate-user me
    loginctl kill-user me
    dd of=/dev/ttyS0 if=x
    dd of=$DISK if=x
    mkfs -t ext4 x
    mkfs.xfs x
    mke2fs x
    mkswap x
    mount /dev/sda1 /mnt
    mount -o remount,rw /
    mount --bind a b
    mount -a
    umount /mnt
    umount -a
    fusermount -u x
    losetup /dev/loop0 x
    swapoff -a
    swapon /dev/sda2
    sudo ls
    sudo -i
    sudo -s
    sudo -u x ls
    sudo
    su
    su -
    su - x -c ls
    doas ls
    pkexec ls
    run0 ls
    wipefs -a x
    fdisk x
    sfdisk x
    cfdisk x
    parted x mklabel gpt
    sgdisk -Z x
    gdisk x
    blkdiscard x
    hdparm --security-erase x /dev/sda
    nvme format /dev/nvme0n1
    cryptsetup luksFormat /dev/sda1
    cryptsetup erase x
    lvremove x
    vgremove x
    pvremove x
    lvcreate -n x y
    mdadm --zero-superblock /dev/sda
    mdadm --stop /dev/md0
    zpool destroy x
    zfs destroy -r x
    rmmod x
    insmod x.ko
    modprobe x
    modprobe -r x
    depmod -a
    iptables -F
    iptables -P INPUT DROP
    ip6tables -F
    iptables-restore f
    nft flush ruleset
    ufw disable
    ufw enable
    firewall-cmd --panic-on
    ip link set eth0 down
    ip addr flush dev eth0
    ip route del default
    ip route flush table main
    ifconfig eth0 down
    ifdown eth0
    nmcli networking off
    nmcli con down x
    route del default
    kill -9 -1
    kill -KILL -1
    kill -s KILL -- -1
    kill -s 9 -1
    kill -- -1
    kill -15 -1
    kill -n 9 -1
    kill -9 1
    kill 1
    kill -SIGKILL 1
    killall5
    killall5 -9
    pkill -9 .
    pkill -f .
    pkill -f '.*'
    pkill -u root
    pkill -KILL -u me
    killall -u me
    kexec -e
    kexec -l x
    sysctl -w kernel.panic=1
    sysctl kernel.panic=1
    sysctl -p
    echo b > /proc/sysrq-trigger
    echo c | tee /proc/sysrq-trigger
    echo 1 > /proc/sys/kernel/panic
    echo 1 > /sys/power/state
    echo mem >/sys/power/state
    cp x /proc/sysrq-trigger
    userdel me
    useradd x
    usermod -aG x y
    groupdel x
    passwd
    passwd root
    chpasswd < f
    visudo
    crontab -r
    setenforce 0
    grub-install /dev/sda
    update-grub
    efibootmgr -B
    flashrom -w x
    fwupdmgr update
    chvt 1
    rtcwake -m mem
    date -s x
    hwclock -w
    timedatectl set-time x
    hostnamectl set-hostname x
    mknod x b 8 0
    debugfs -w x
    tune2fs x
    resize2fs x
    e2fsck -y x
    fsck -y x
    xfs_repair x
    badblocks -w x
    env shutdown now
    env -i reboot
    nohup shutdown now &
    timeout 5 poweroff
    nice reboot
    exec reboot
    command reboot
    sh -c 'shutdown now'
    bash -c "sleep 5; reboot"
    eval reboot
    echo reboot | sh
    echo now | xargs shutdown
    find . -exec reboot \;
    find . -exec sudo rm {} \;
    ls | xargs sudo rm
    ssh h reboot
    ssh h sudo reboot
    docker run --privileged x reboot
    nsenter -t 1 -m reboot
    chroot /mnt reboot
    unshare -r mount -t tmpfs x y
    setsid reboot
    watch reboot
    flock l reboot
    parallel reboot ::: 1
    script -c reboot
    $(echo reboot)
    busybox reboot
    busybox poweroff -f
    busybox mount -a
    'shut'down now
    \reboot
    re"boot"
    trap reboot EXIT
    alias ls=reboot; ls
    f() { reboot; }; f
    (reboot)
    { reboot; }
    ! reboot
    if true; then reboot; fi
    a && reboot || b
    reboot & sleep 1
    time reboot
    at now <<< reboot
    git -c alias.x='!reboot' x
    tar cf x --checkpoint-action=exec=reboot y
    awk 'BEGIN{system("reboot")}'
    rm -rf /proc/$$/root/etc
    rm -rf /proc/self/fd/3/
    rm -rf /dev/fd/3/x
    REBOOT
    dd if=x of="$DISK"
    sudo -n true
    kill -s 1 1
""")

SHOWING = split_table(r"""
    shutdown --help
    reboot --version
    mount --help
    mount -l
    mount | grep x
    mount -t ext4
    systemctl status x
    systemctl list-units
    systemctl restart x
    systemctl --user restart x
    systemctl is-active x
    fdisk -l
    fdisk -l /dev/sda
    sfdisk -l
    sfdisk --list
    parted -l
    parted -s x print
    wipefs x
    lsblk
    blkid
    swapon -s
    swapon --show
    iptables -L
    iptables -L -n -v
    iptables -S
    nft list ruleset
    ip addr
    ip a
    ip link show
    ip route
    ip -br a
    ip route get 1.1.1.1
    ifconfig
    ifconfig eth0
    route -n
    nmcli device status
    kill 1234
    kill -9 1234
    kill -0 $PID
    kill %1
    kill $(cat x.pid)
    kill -TERM -- -1234
    kill -9 -12345
    kill -l
    kill -1 1234
    pkill -f 'node server.js'
    pkill node
    pkill -9 node
    pkill -u me node
    killall node
    sysctl -a
    sysctl kernel.panic
    sysctl -n vm.swappiness
    passwd --help
    crontab -l
    losetup -a
    losetup -l
    lsmod
    modinfo x
    modprobe -n x
    modprobe --show-depends x
    mdadm --detail /dev/md0
    zpool status
    zfs list
    lvs
    vgs
    nvme list
    hdparm -I /dev/sda
    timedatectl
    hostnamectl
    date
    dd if=x of=y
    dd if=/dev/zero of=x bs=1M count=1
    dd of=/dev/null if=x
    dd if=x of=/dev/stdout
    dd if=x of=/dev/shm/y
    dd of=/dev/fd/3 if=x
    echo shutdown
    grep reboot f
    man reboot
    which sudo
    command -v sudo
    npm run shutdown
    ./reboot
    ./shutdown.sh
    ./scripts/mount x
    git commit -m 'sudo reboot'
    docker stop x
    make reboot
    fd -e pyc -X rm
    fd -x echo
    fd . build -X rm -rf
    fd . src -x wc -l
    find . -name x -delete
    rm -rf /proc/self/cwd/build
    rm -rf build
    rsync -a --delete x/ y/
    rsync -a x/ /etc
    cat /proc/self/root/etc/hosts
    cat /proc/cpuinfo
    ls /proc/self/fd
    docker mount
    git mount
    ip netns list
    init
    e2fsck -n x
    cryptsetup status x
    loginctl list-sessions
    loginctl
    halt --help
    ufw status
    firewall-cmd --state
    firewall-cmd --list-all
    efibootmgr
    efibootmgr -v
    hwclock
    hwclock -r
    fsck -N x
    su --help
    sudo --version
    sudo -V
    sudo -l
    sudo -k
    kill -s 1 1234
    kill -n 1 1234
    ssh h sudo systemctl status x
    dd if=x of=out
    echo x > /dev/tty
    echo x > /dev/shm/x
    date +%s
    hostname -I
    pkill -f 'node server.js'
    ip netns
    python3 -c 'print("reboot")'
    python3 -c 'import subprocess; subprocess.run(["systemctl", "status", "nginx"])'
    python3 -c 'import subprocess; print(subprocess.check_output(["ip", "addr"]))'
    node -e 'require("child_process").execSync("date +%F")'
    perl -e 'system "mount"'
""")


def test_the_table_is_large_enough() -> None:
    assert len(set(HARMFUL)) >= 100


@each_row(HARMFUL)
def test_a_harmful_command_is_asked_about_in_every_mode(command: str) -> None:
    found = judge_command(command, allow=[None])
    assert (found.decision, found.layer) == ("ask", "guard")
    assert judge_command(command, default=Allow("bypassPermissions", "mode")).decision == "ask"


@each_row(SHOWING)
def test_a_command_that_changes_nothing_of_the_machine_is_left_to_the_rules(command: str) -> None:
    found = judge_command(command, allow=[None])
    assert found.decision == "allow", found.reason


@each_row(
    [
        ("sudo apt-get update", "sudo apt-get:*", "allow"),
        ("sudo apt-get update", "sudo *", "allow"),
        ("/usr/bin/sudo apt-get update", "sudo:*", "allow"),
        ("sudo -u postgres psql", "sudo:*", "allow"),
        ("sudo reboot", "sudo:*", "ask"),
        ("sudo reboot", "sudo reboot", "allow"),
        ("sudo rm -rf /", "sudo rm -rf /", "deny"),
        ("env sudo ls", "env:*", "ask"),
        ("nice reboot", "nice reboot", "allow"),
        ("mount /dev/sda1 /mnt", "mount:*", "allow"),
        ("mount /dev/sda1 /mnt", "* /mnt", "ask"),
        ("mount /dev/sda1 /mnt", "*mnt", "ask"),
        ("systemctl reboot", "systemctl status:*", "ask"),
        ("ls | xargs sudo rm", "xargs:*", "ask"),
    ]
)
def test_only_a_rule_that_names_the_program_allows_it(command: str, rule: str, decision: str) -> None:
    assert judge_command(command, allow=[None, rule]).decision == decision


def test_the_question_names_the_program_and_is_about_this_command_alone() -> None:
    policy = LayeredPolicy([Layer(name="user", allow=("Bash",))], cwd="/tmp", home="/nowhere")
    found = policy.decide(spec_of("Bash"), {"command": "ls && shutdown now"})
    assert (found.decision, found.layer, found.single_use) == ("ask", "guard", True)
    assert found.reason == "shutdown may harm the machine; a rule must name it"
    found = policy.decide(spec_of("Bash"), {"command": "sudo ls"})
    assert found.reason == "sudo gives the rights of another user; a rule must name it"
