"""Arithmetic evaluation: external text that bash evaluates would run the commands in its subscripts."""

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table

FOREIGN = split_table(r"""
    read x; echo $((x))
    read -r x < f; [[ $x -gt 3 ]]
    x=$(cat f); echo $((x))
    x=$(cat f); echo $((x + 1))
    x=$(cat f); y=$x; echo $((y))
    x=$(<f); ((x))
    x=`cat f`; (( x > 3 ))
    echo $(( $(cat f) ))
    echo $(( $(cat f) + 1 ))
    [[ $(cat f) -eq 1 ]]
    x=$(cat f); [[ 3 -lt $x ]]
    x=$(cat f); [[ $x -eq 1 ]]
    while read -r n; do s=$((s + n)); done < f
    mapfile -t a < f; echo $((a[0]))
    mapfile < f; echo $((MAPFILE))
    read < f; echo $((REPLY))
    for x in $(cat f); do echo $((x)); done
    for x in *; do echo $((x)); done
    for x in *; do [[ $x -gt 1 ]]; done
    x=$(cat f); echo ${a[x]}
    x=$(cat f); echo ${a[$x]}
    x=$(cat f); echo ${s:x}
    x=$(cat f); echo ${s:0:x}
    x=$(cat f); echo "${s:$x}"
    x=$(cat f); a[x]=1
    x=$(cat f); a[$x]=1
    x=$(head -1 f | tr -d a); echo $((x))
    x=$(wc -l f); echo $((x))
    x=$(grep foo f); echo $((x))
    x=$(jq .a f); echo $((x))
    x='a['; x+='$(rm y)]'; echo $((x))
    cat f | while read n; do echo $((n * 2)); done
    x=$(cat f); for ((i=0; i<x; i++)); do echo $i; done
    i='-v a[$(rm x)] -o y'; [ $i -lt 3 ]
    i=-v; [ $i 'a[$(rm x)]' ]
    read i < f; [ $i -lt 3 ]
    i=0; while [ $i -lt 3 ]; do i=$(cat f); done
    : ${i:=x}; [ $i -lt 3 ]
    i=0; : ${j:=$(cat f)}; i=$j; [ $i -lt 3 ]
    [ $i -lt 3 ]
    i=$(cat f); [ $i -lt 3 ]
    [ $(cat f) -gt 3 ]
    f() { x=$1; [ $x -lt 3 ]; }; f '-v a[$(rm y)] -o z'
    f() { for x in "$@"; do [ $x -lt 3 ]; done; }; f '-v a[$(rm y)] -o z'
    f() { for x; do [ $x -lt 3 ]; done; }; f '-v a[$(rm y)] -o z'
    f() { x=${1}; echo $((x)); }; f "$(cat g)"
    f() { echo $(($1)); }; f "$(cat g)"
    f() { echo $((${1} + 1)); }; f "$(cat g)"
    f() { [[ $1 -gt 3 ]]; }; f "$(cat g)"
    f() { x=$*; echo $((x)); }; f "$(cat g)"
    a=($(cat f)); echo $((a[0]))
    a=($(cat f)); (( a > 1 ))
    a=(*); echo $((a[0]))
    a+=("$(cat f)"); echo $((a))
    a=([0]=$(cat f)); echo $((a))
    declare -a a=($(cat f)); echo $((a[0]))
    read x < f; a=([$x]=1)
    read x < f; [[ "$x" -eq 1 ]]
    read x < f; [[ 1 -eq "a b $x" ]]
    read x < f; [[ -v $x ]]
    read x < f; [[ -v "$x" ]]
    read x < f; [[ -n a && -R $x ]]
    read x < f; echo `echo $((x))`
    read x < f; y=`[[ $x -eq 1 ]]`
    n=$(grep -rc foo src); (( n > 0 ))
    n=$(grep -cH foo f); (( n > 0 ))
    n=$(grep -c foo *.py); echo $((n))
    n=$(grep -c foo $files); echo $((n))
    n=$(grep -cepat a b); echo $((n))
    n=$(wc -l --files0-from=list); echo $((n))
    n=$(stat -c %n * %s); echo $((n))
    n=$(seq -f "$x" 1); echo $((n))
    n=$(seq $x); echo $((n))
""")

PLAIN = split_table(r"""
    x=5; echo $((x * 2))
    n=$(wc -l < f); echo $((n + 1))
    n=$(ls | wc -l); [[ $n -gt 5 ]] && echo many
    n=$(ls | wc -l | tr -d ' '); echo $((n * 2))
    n=$(grep -c foo f); echo $((n))
    n=$(grep -ci foo f); echo $((n))
    n=$(cat f | grep -c -v foo); echo $((n))
    s=$(stat --format=%Y f); echo $(( $(date +%s) - s ))
    for i in $(seq 1 $n); do echo $((i * i)); done
    [[ -v FOO ]] && echo set
    read -r x < f; [[ "$x" == foo && $n -gt 3 ]] && echo yes
    x=$(cat f); a=("$x"); echo "${a[0]}" $((${#a[@]} + 1))
    read x < f; echo `echo $x`
    read x < f; echo $((${#x} + 1))
    a=([0]=x [1]=y); echo "${a[1]}"
    declare -A m=([one]=1 [two]=2); echo "${m[one]}"
    a=([0]=1 [1]=2); echo $((a[0] + a[1]))
    n=$(grep -c foo f); (( n > 3 )) && echo yes
    s=$(stat -c %s f); echo $((s / 1024))
    s=$(stat -c%s f); echo $((s / 1024))
    a=$(date +%s); echo $(( $(date +%s) - a ))
    for i in $(seq 5); do echo $((i * i)); done
    for i in 1 2 3; do echo $((i * i)); done
    for i in {1..5}; do echo $((i % 2)); done
    for ((i=0; i<10; i++)); do echo $i; done
    i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done
    i=0; while (( i < 3 )); do echo $i; ((i++)); done
    total=0; for f in *.py; do n=$(wc -l < "$f"); total=$((total + n)); done; echo $total
    echo $((1 + 2))
    echo $(( $# + 1 ))
    echo $((RANDOM % 10))
    read -r x < f; echo "$x"
    read -r x < f; [[ $x == foo ]] && echo yes
    read -r x < f; [ "$x" -gt 3 ] && echo yes
    while read -r l; do echo "$l"; n=$((n+1)); done < f; echo $n
    x=$(cat f); [[ -n $x ]] && echo set
    x=$(cat f); [[ $x =~ ^[0-9]+$ ]] && echo num
    x=$(cat f); echo "${x:0:10}"
    x=$(cat f); echo "${x%.*}"
    x=$(cat f); echo "${x:-none}"
    x=$(git rev-parse HEAD); echo "${x:0:7}"
    for f in *.py; do echo "${f%.py}"; done
    for f in *; do [[ -f $f ]] && echo "$f"; done
    for f in *; do n=$((n + 1)); done; echo $n
    a=(1 2 3); for i in 0 1 2; do echo "${a[$i]}"; done
    a=(x y); echo "${a[@]}" "${#a[@]}" "${a[0]}"
    x=$(cat f); n=3; echo $((n)) "$x"
    f() { echo "$1"; n=$((n + $#)); }; f a
    x=$#; [ $x -gt 0 ] && echo some
    find . -name '*.py' | while read -r f; do n=$(wc -l < "$f"); echo "$n $f"; done
    [ $(ls | wc -l) -gt 5 ] && echo many
    n=$(wc -l < f); if [ $n -gt 10 ]; then echo long; fi
    x=foo; [ $x = foo ] && echo yes
    for i in 1 2 3; do [ $i -eq 2 ] && echo two; done
""")


@each_row(FOREIGN)
def test_arithmetic_on_external_text_is_asked_about(command: str) -> None:
    assert judge_command(command).decision == "ask"


@each_row(PLAIN)
def test_arithmetic_on_known_numbers_needs_no_rule(command: str) -> None:
    found = judge_command(command)
    assert found.decision == "allow", found
