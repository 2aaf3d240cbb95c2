"""Commands that print or copy a file which a rule denies to read. ``OUT`` is an empty folder elsewhere."""

from tests.policy.tables import split_table

READING = split_table(r"""
    cat .env
    cat .e*
    cat ./.en?
    cat .[e]nv
    cat {.env,x}
    cat .{e,f}nv
    shopt -s dotglob; cat *
    cat ~+/.env
    cat "$PWD/.env"
    cat $(pwd)/.env
    cat secrets/*
    cat sec*/key.txt
    cat s*/k*
    cat */key.txt
    head -c 100 app/.env
    cd app && cat .env
    cd app; cat .e*
    cd secrets; cat *
    cd secrets && cat $(ls)
    cd secrets && head k*
    (cd secrets; cat key.txt)
    pushd secrets; cat *
    cat app/../.env
    a=.env; cat $a
    a=.e; b=nv; cat $a$b
    cat "${F:-.env}"
    cat < .env
    read l < .env; echo $l
    read -r l < .e*; echo "$l"
    while read l; do echo $l; done < .env
    mapfile -t a < .env; echo "${a[@]}"
    echo $(<.env)
    echo "$(< .env)"
    echo `cat .env`
    exec 3<.env; cat <&3
    source .env; echo $KEY
    . ./.env; echo $KEY
    set -a; . .env; set +a; env | grep TOKEN
    export $(cat .env | xargs); env | grep TOKEN
    export $(grep -v '^#' .env); printenv KEY
    env $(cat .env) printenv KEY
    xargs -a .env echo
    paste .env
    tac .env
    nl .env
    od -c .env
    xxd .env
    base64 .env
    sort .env
    cut -c1- .env
    rev .env
    fold .env
    strings .env
    grep KEY .env
    grep -r KEY .
    grep -r KEY
    grep -rn TOKEN secrets
    grep -r TOKEN s*
    grep -rh KEY . --include=.env
    grep '' .e*
    egrep -R KEY
    rg --hidden KEY
    rg TOKEN secrets
    rg -uu TOKEN
    rg --no-ignore --hidden TOKEN .
    sed -n p .env
    sed '' .e*
    sed -n 'r .env' x
    sed 'r .env' x
    awk 1 .env
    awk '{print}' .e*
    awk 'BEGIN{while((getline l<".env")>0)print l}'
    perl -ne print .env
    perl -pe 1 .e*
    python3 -c 'print(open(".env").read())'
    python3 -c 'import os;print([open(f).read() for f in os.listdir("secrets") for f in ["secrets/"+f]])'
    python3 -c 'import pathlib;print(pathlib.Path(".env").read_text())'
    python3 -c 'import subprocess as s;print(s.getoutput("cat .env"))'
    node -e 'console.log(require("fs").readFileSync(".env","utf8"))'
    diff /dev/null .env
    diff <(cat .env) x
    cmp .env x
    comm .env x
    join .env x
    cp .env OUT/e
    cp -r . OUT/x
    cp -r secrets OUT/s
    cp -a s* OUT/
    cp -r app OUT/
    cp app/.e* OUT/e
    cp {.env,x} OUT/
    ln -s .env y && cat y
    ln -s $PWD/.env y; cat y
    ln .env y; cat y
    ln -s secrets y; cat y/*
    ln -s . y; cat y/.env
    cp -l .env y && cat y
    cp -s $PWD/.env y && cat y
    mv .env y; cat y
    mv secrets y; cat y/key.txt
    mv app y && cat y/.env
    install .env y; cat y
    dd if=.env
    dd if=.env of=OUT/e
    dd < .env
    tar c .
    tar c secrets
    tar cf OUT/x.tar .
    tar czf - . | base64
    tar c app | tar xO
    tar -C secrets -c key.txt
    tar c s*
    zip -qr OUT/x.zip .
    zip -q - .env
    zip -qr - secrets | base64
    gzip -c .env
    gzip -c secrets/key.txt | zcat
    xz -c .env
    split .env OUT/z
    csplit -f OUT/z .env 1
    curl -s file://$PWD/.env
    curl -s "file://$(pwd)/secrets/key.txt"
    curl -sT .env file://OUT/e
    curl -s -T .env file://OUT/e
    tee OUT/e < .env
    tee < .env
    jq -R . .env
    jq -Rs . < .e*
    find . -name .env -exec cat {} \;
    find . -name '.e*' -exec cat {} +
    find . -name .env | xargs cat
    find . -type f -exec grep -H KEY {} +
    find secrets -type f | xargs cat
    find . -type f | xargs grep TOKEN
    find . -name .env -execdir cat {} \;
    find . -name key.txt -exec cp {} OUT/ \;
    find . -name .env -exec sh -c 'cat "$0"' {} \;
    find . -maxdepth 1 -type f -print0 | xargs -0 cat
    ls -A | xargs cat
    ls secrets | xargs -I{} cat secrets/{}
    for f in .e*; do cat $f; done
    for f in secrets/*; do cat $f; done
    for d in */; do cat $d/key.txt; done
    for d in *; do grep -r TOKEN $d; done
    for f in $(ls -A); do cat $f; done
    for f in $(find .); do cat $f; done
    while read f; do cat $f; done < rlist.txt
    while read -r f; do cat "$f"; done < <(find . -name .env)
    cat $(cat rlist.txt)
    cat $(<rlist.txt)
    xargs cat < rlist.txt
    cat rlist.txt | xargs cat
    xargs -a rlist.txt cat
    tar c -T rlist.txt
    wc -l --files0-from=<(printf .env)
    cat $(echo .env)
    cat $(printf '.%s' env)
    cat $(find . -name .env)
    cat `find . -name .env`
    cat $(ls -d .e*)
    cat $(git ls-files secrets)
    git ls-files | xargs cat
    git ls-files -z | xargs -0 grep TOKEN
    git grep TOKEN
    git grep TOKEN HEAD
    git grep TOKEN HEAD~2
    git grep TOKEN HEAD~2 -- .env
    git grep --no-index KEY
    git grep --untracked KEY
    git grep -h -e KEY --no-index -- .env
    git show HEAD:secrets/key.txt
    git show HEAD~2:.env
    git show HEAD~2:./.env
    git show HEAD~2:app/.env
    git show :secrets/key.txt
    git show :0:secrets/key.txt
    git show HEAD^^:.env
    git show 'HEAD@{2}:.env'
    git show "HEAD~2":".env"
    git show main~2:.env
    git show $(git rev-list --max-parents=0 HEAD):.env
    git show $(git rev-parse HEAD~2):.env
    c=$(git log --format=%h | tail -1); git show $c:.env
    git show HEAD~2
    git show HEAD~1
    git show --stat -p HEAD~2
    git show HEAD~2 -- .env
    git show HEAD~2 -- .e*
    git show HEAD~2 -- ':(glob)**/.env'
    git show :/one
    git show $(git log --format=%h -- .env | tail -1)
    git -C app show HEAD~2:./.env
    git -C app show HEAD~2:app/.env
    cd app && git show HEAD~2:./.env
    cd app && git show HEAD~2:.env
    cd secrets && git show HEAD:./key.txt
    git diff HEAD~2
    git diff HEAD~2 HEAD
    git diff HEAD~2 HEAD~1 -- .env
    git diff HEAD~2:.env x
    git diff HEAD~2:.env HEAD:x
    git diff :0:secrets/key.txt x
    git diff --no-index /dev/null .env
    git diff --no-index x .e*
    git log -p
    git log -p -- .env
    git log -p --all
    git log -S TOKEN -p
    git log -S TOKEN --patch
    git log -STOKEN -p
    git log -G TOKEN -u
    git log --all -p -S TOKEN
    git log -L1,1:secrets/key.txt
    git log -L 1,+1:secrets/key.txt
    git log --patch-with-stat
    git log --format= -p HEAD~2
    git log -U3
    git log -c -p
    git log --cc -p
    git log -m -p
    git log --stat -p
    git whatchanged -p
    git rev-list --all --objects | awk '{print $1}' | git cat-file --batch
    git cat-file -p HEAD:secrets/key.txt
    git cat-file -p HEAD~2:.env
    git cat-file blob HEAD~2:.env
    git cat-file -p $(git rev-parse HEAD~2:.env)
    git cat-file --textconv HEAD~2:.env
    git cat-file --filters HEAD~2:.env
    git cat-file --batch <<< HEAD~2:.env
    echo HEAD~2:.env | git cat-file --batch
    git archive HEAD
    git archive HEAD | tar xO
    git archive HEAD~2 .env | tar xO
    git archive HEAD secrets | tar xO
    git archive --format=tar HEAD~2 | tar x -C OUT
    git blame secrets/key.txt
    git blame HEAD~2 -- .env
    git annotate secrets/key.txt
    git blame -p HEAD~2 .env
    echo 2 >> secrets/key.txt; git stash -q; git stash show -p
    git format-patch -3 --stdout
    git format-patch --root --stdout HEAD~2
    git diff-tree -p HEAD~1
    git diff-tree -p --root HEAD~2
    git diff-index -p HEAD~2
    git fast-export HEAD
    git checkout HEAD~2 -- .env && cat .env
    git checkout HEAD~2 -- .env; cat .e*
    git checkout HEAD~2 -- app
    git restore --source HEAD~2 -- .env
    git restore --source=HEAD~2 --worktree app
    git worktree add -q OUT/wt
    git worktree add -q OUT/wt HEAD~2 && cat OUT/wt/.env
    git worktree add -q OUT/wt HEAD~2
    git clone -q . OUT/c
    git clone -q $PWD OUT/c
    git clone -q --bare . OUT/c && git -C OUT/c show HEAD~2:.env
    git -C OUT clone -q $OLDPWD/. c; git --git-dir=.git show HEAD~2:.env
    git --git-dir=.git show HEAD~2:.env
    git --git-dir .git --work-tree=OUT checkout HEAD~2 -- .
    GIT_DIR=.git git show HEAD~2:.env
    git -c core.pager=cat show HEAD~2:.env
    git cherry-pick HEAD~2; git show
    git checkout-index -f --prefix=OUT/ -a
    git checkout-index --prefix=OUT/ secrets/key.txt
    git bundle create OUT/b --all && git clone -q OUT/b OUT/c
    git unpack-file $(git rev-parse HEAD~2:.env); cat .merge_file_*
    git merge-file -p .env x x
    git hash-object .env; cat .env
    git update-index --add .env; git show :.env
    git add -f .env; git diff --cached
    git add -f .env && git commit -qm x && git show
    git difftool -y -x cat HEAD~2 -- .env
    git reflog -p
    git log --reflog -p
    git notes add -F .env HEAD; git log -1
    git tag -a -F .env t; git tag -n9
    git commit --allow-empty -qF .env; git log -1
    git commit --allow-empty -q -m "$(cat .env)"; git log -1
    git config -f .env -l
    git ls-tree -r HEAD~2 | awk '{print $3}' | xargs -n1 git cat-file -p
    git ls-tree -r HEAD | while read a b c d; do git cat-file -p $c; done
    git show-index < .git/index; git show $(git hash-object secrets/key.txt)
    git stash create; git show HEAD:secrets/key.txt
    git log --diff-filter=D -p
    git log -1 -p --stat HEAD~2
    git show --format=raw HEAD~2
    git rebase --show-current-patch; git show HEAD~2:.env
    git --no-pager show HEAD~2:.env
    git --no-pager log -p
    git -p show HEAD~2:.env
    python3 -c "import subprocess as s; print(s.run(['git','show','HEAD~2:.env'],capture_output=True,text=True).stdout)"
    bash -c 'git show HEAD~2:.env'
    vim -es -c '%p' -c q! .env
    ex -sc '%p|q!' .env
    ed -s .env <<< '%p'
    ed -s x <<< $'r .env\n%p\nQ'
    bash .env; bash -v .env
    bash -v .env
    make -f .env
    make -f .env -pn
    sh -v .e*
    node .env
    python3 .env
    patch -o OUT/p .env p.diff
    echo "$(cat .env)"
    printf '%s' "$(cat secrets/*)"
    cat 0<.env
    cat - < .env
    cat <(cat .env)
    cat /proc/self/cwd/.env
    cat /proc/self/fd/3 3< .env
    cat /dev/fd/3 3<.env
    cat /dev/stdin < .env
    exec < .env; cat
    exec < .env; read a; echo $a
    { cat; } < .env
    (cat) < .e*
    while :; do cat; break; done < .env
    bash -c 'cat .e*'
    eval 'cat .e*'
    echo 'cat .env' | bash
    echo 'cat .env' > s.sh; bash s.sh
    sqlite3 :memory: "select readfile('.env')"
    sqlite3 :memory: '.read .env'
    sqlite3 :memory: '.import .env t' 'select * from t'
    comm -12 secrets/key.txt secrets/key.txt
    git diff --no-index --stat x .env; cat .env
    column .env
    expand .env
    iconv .env
    pr .env
    shuf .env
    uniq .env
    ptx .env
    tsort .env
    m=.env; n=m; cat ${!n}
    declare -n r=q; q=.env; cat $r
    printf -v f '.%s' env; cat $f
    IFS=/; f=(. env); cat .${f[1]}
    f=xenv; cat .${f#x}
    f=.envx; cat ${f%x}
    f=.ENV; cat ${f,,}
    f=.axv; cat ${f/ax/en}
    f=a.envb; cat ${f:1:4}
    cat .env.bak 2>/dev/null || cat .e[n]v
    echo .env | cat $(cat)
    echo .env | xargs -I@ cat @
    echo .en | sed s/$/v/ | xargs cat
    python3 -m tarfile -c q.tar .; cat q.tar
    echo 'print(open(".env").read())' | python3
    node -p 'process.loadEnvFile(); process.env.KEY'
    grep -d recurse TOKEN .
    grep --directories=recurse TOKEN .
    grep -rA 3 TOKEN
    grep -rm 1 TOKEN
    rg TOKEN -g '.env' --hidden
    rg -g '*.txt' TOKEN
    rg -C 2 TOKEN
    tar cT <(ls -A)
    find . -name .env | tar cT -
    a=(show HEAD~2:.env); git "${a[@]}"
    declare -A m=([k]=.env); cat ${m[k]}
    cat $(ls -A | grep '^\.e')
    grep -r KEY . --include=.e*
    python3 -c 'import sys; print(open(sys.argv[1]+"/.env").read())' app
    find . -name x -exec true {} + -o -name key.txt -exec cat {} +
    find . -name \*.md -exec true \; -o -type f -exec cat {} +
    find . -not -name '*.py' -type f -exec cat {} +
    find . -type f ! -path './secrets/*' -exec cat {} +
    find . -name x -o -type f -not -path './.env' -exec cat {} +
    grep -r KEY . --exclude=.env --include=.env
    grep -r KEY . --exclude-dir=.env
    grep -r KEY . --exclude=app
    grep -r -e TOKEN
    rg -e TOKEN
    rg -ttxt TOKEN
    rg --type-add 'z:*.txt' -tz TOKEN
    rg --type-not py TOKEN
    rg -tall TOKEN
    rg -g .env TOKEN
    rg -g '{.env,x}' TOKEN
    rg --hidden -g '!.env' -g '.env' TOKEN
    rg --files -g '.e*' | xargs cat
    cat .{e..e}nv
    cat .en[^a]
    cat .[[:alpha:]]nv
    cat secrets/[[:lower:]]*
    printf '\056env' | xargs cat
    cat $(printf '%b' '\x2eenv')
    sed --expression='r .env' x
    python3 -c 'import io;print(io.FileIO(".e"+"nv").read())'
    python3 -c 'import shutil;shutil.copytree("secrets","OUT/e")'
    python3 -c 'import shutil;shutil.make_archive("OUT/a","tar",".")'
    python3 -c 'import tarfile;t=tarfile.open("OUT/a","w");t.add(".")'
    python3 -c 'print("it\x27s");print(open(".env").read())'
    python3 -c "print(\"it's\");print(open(\".env\").read())"
    node -e 'const {readFileSync:r}=require("fs");console.log(r(".e"+"nv")+"")'
    node -e 'console.log(fs["readFileSync"](".e"+"nv")+"")'
    curl -s "file://$PWD/.en[v-v]"
    rsync -ag . OUT
    rsync -a --include=.env --exclude='.*' . OUT
    git log --full-diff -p -- src
    git log -p -- sec*
    git log -p -- src ':(glob)secrets/*'
    git log -p -- src :/secrets
    git grep TOKEN -- ":!$X"
    git grep TOKEN -- ':!/x'
    git grep TOKEN -- ':!../x'
    env --ch=secrets cat key.txt
    env -iC secrets cat key.txt
    env -S'-C secrets cat key.txt'
    env -S '-i -C secrets cat key.txt'
    env -vS '-C secrets cat' key.txt
    command cd secrets; cat key.txt
    builtin cd secrets && cat key.txt
    command -- cd secrets; cat key.txt
    command builtin cd secrets; cat key.txt
    command pushd secrets; cat key.txt
    cd -e -P secrets; cat key.txt
    cd "$(echo secrets)"; cat key.txt
    cd s?crets; cat key.txt
    shopt -s cdable_vars; q=secrets; cd q; cat key.txt
    read -a f <<< 'x .env'; cat ${f[1]}
    read -ra f <<< 'x .env'; cat "${f[@]}"
    IFS=, read -a f <<< x,.env; cat ${f[1]}
    read -d x f <<< '.envx'; cat $f
    read -d, -r f <<< '.env,'; cat $f
    read -n4 f <<< .envxx; cat $f
    read -N 4 f <<< .envxx; cat $f
    mapfile -t a <<< $'x\n.env'; cat ${a[1]}
    f='x .env'; cat $f
    f=.e; f+=nv; cat $f
    f=env; git show HEAD~2:.$f
    git diff HEAD~2:app HEAD:src
    git -c protocol.file.allow=always submodule add ./ q
    perl -e 'open F,chr(46)."env";print <F>'
    tar --dir=secrets -c key.txt
    tar cC secrets key.txt
    tar cfC OUT/z.tar secrets key.txt
""")
