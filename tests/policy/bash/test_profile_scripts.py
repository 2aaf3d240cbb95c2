"""The read-only profile: sed, awk and jq scripts, and ps, whose arguments can be interpreted in two ways."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

BEYOND = split_table(r"""
    sed 's/[[:alpha:]/]/;#/w out' f
    sed 's/[\]/;#/w out' f
    sed 's/[]/;#]/x/w out' f
    sed 's/[^]/;#]/x/w out' f
    sed 's/[[.a.]/;#]/x/w out' f
    sed 's/[[:]/;#]/x/w out' f
    sed 's/[/]/w x/' f
    sed 's/[/]/gw x/' f
    sed 's[a[b[w out' f
    sed 's]a]b]w out' f
    sed '/[\]/;#/w out' f
    sed 's/a⏎/w x⏎/' f
    sed 'a foo\\⏎w out' f
    sed 'a foo\\\\⏎w out' f
    sed 'a\\⏎w out' f
    sed 'a\ ⏎s#⏎w out⏎##' f
    sed 'a⏎w out' f
    sed 'i foo⏎w out' f
    sed 'c\⏎foo\⏎bar⏎w out' f
    sed "s/a/b/$x" f
    sed "s$((1+1))a2b2;w out1c1" f
    sed "s$#a2b2;w out1c1" f
    sed "\$((1+1))a2p;w out1p" f
    sed -n "$(cat f)p" f
    awk 'BEGIN{x = /"/; print 1 > "out"; y = /"/}'
    awk '{x = 1 + /"/; print > "out"; y = 1 + /"/}' f
    awk '{a = 4 / /"/; print > "out"; y = 1 / /"/}' f
    awk '{x ? /"/ : 1; print > "out"; y ? /"/ : 1}' f
    awk '{if (0) x; else /"/; print > "out"; /"/}' f
    awk '{if (1) /"/; print > "out"; if (1) /"/}' f
    awk '{while (1) /"/; print > "out"; while (1) /"/}' f
    awk '{do /"/; while (0); print > "out"; do /"/; while (0)}' f
    awk '{switch (x) {case /"/: print > "out"; break; case /"/:}}' f
    awk '{exit /"/; print > "out"; exit /"/}' f
    awk '{x = length /"/; print > "out"; y = /"/}' f
    awk '{x++ /"/; print > "out"; x++ /"/}' f
    awk '/[\]/]"/ {print > "out"} /"/' f
    awk '/[[:]/]"/ {print > "out"} /"/' f
    awk '/[]/]"/ {print > "out"} /"/' f
    awk '{print a ?⏎ b : c > "x"}' f
    awk '{print a ? b :⏎ c > "x"}' f
    awk 'BEGIN {ARGV[1] = "/etc/shadow"; ARGC = 2} 1'
    awk "{print $x}" f
    jq -n '$ ENV'
    jq -n '$#x⏎ENV'
    jq -n '{a: env}'
    jq '.[env | keys[]]' f
    jq '"\(env.X)"' f
    jq 'include "x"; .' f
    jq 'import "x" as x; .' f
    ps -auxe
    ps -axe
    ps -aux -e
    ps -efx
    ps -u x -e
    ps -u xe
    ps -u "$x"
    ps -eo pid,environ
    ps axo pid,environ
    ps O environ
    ps --format=environ
    ps --form environ
    ps aux e
    ps 1 e
    man -u
    git log --format="$x"
    git log --pretty="%h $x"
""")

READING = split_table(r"""
    sed 's/[^/]*$//' f
    sed 's/[^/]*\///' f
    sed 's/[\/]/x/' f
    sed 's#[^#]*#x#' f
    sed 's/[]]/x/' f
    sed 's/[][]//g' f
    sed -n 's/^[[:space:]]*//p' f
    sed 's/[[:space:]]*$//' f
    sed -n '/\[section\]/,/^\[/p' f
    sed '$a\' f
    sed 'a\  indented' f
    sed '1a\⏎hello' f
    sed '1i\⏎line1\⏎line2' f
    sed -e 'a\' -e 'w x' f
    sed ':a;N;$!ba;s/\n/ /g' f
    sed -n '/begin/,/end/{//!p}' f
    sed -n "$((n + 1)),\$p" f
    sed -n "1,$#p" f
    awk -F'[/:]' '{print $2}' f
    awk '/[^/]+\/x/' f
    awk '{x = $1 / $2; print x}' f
    awk '{sum += $1 / 1024} END {print sum / NR, NR}' f
    awk '{print ($1 + $2) / 2}' f
    awk '{print a[1] / 2}' f
    awk '{gsub(/[^a-z]/, "", $1); print $1}' f
    awk '{n = split($0, a, /[ \t]+/); print n}' f
    awk '$1 ~ /foo|bar/ && $2 !~ /baz/' f
    awk '/start/{flag=1;next}/end/{flag=0}flag' f
    awk '/^[[:space:]]*#/ {next} {print}' f
    awk 'function f(x) {return x / 2} {print f($1)}' f
    awk "NR == $((n + 1))" f
    jq '.include' tsconfig.json
    jq '.compilerOptions.import' f
    jq '{env: .environment, name}' f
    jq '."import"' f
    jq 'select(.name == "include")' f
    jq --arg env prod '.[$env]' f
    ps -aux
    ps -axo pid,command
    ps axo user,pid,cmd
    ps axo pid,etime,args
    ps -eo user,etime
    ps -eo pid,user,%cpu,comm --sort=-%cpu
    ps -fu root
    ps -u "$USER"
    ps -p $$
    ps -o ppid= -p $PPID
    ps -ejH
    ps auxww
    ps 1234
    man ls
    git log --pretty=format:"%h - %s (%cr)" --graph
    git log -L1,5:src/a.py
    sort -k $((n + 1)) f
    uniq -f $# f
""")


@each_row(BEYOND)
def test_a_script_that_may_do_more_than_print_is_asked_about(command: str) -> None:
    assert judge_command(command).decision == "ask"


@each_row(READING)
def test_a_script_that_only_prints_is_allowed(command: str) -> None:
    found = judge_command(command)
    assert found.decision == "allow", found


def test_a_long_pattern_with_brackets_is_parsed_in_linear_time() -> None:
    assert judge_command("sed 's/" + "[" * 4000 + "/" * 4000 + "' f").decision == "ask"
    assert judge_command("awk '/" + "[/" * 4000 + "/' f").decision == "ask"
