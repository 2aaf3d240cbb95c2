"""Commands that change a file which a rule denies to change. ``SRC`` is a folder elsewhere."""

from tests.policy.tables import split_table

CHANGING_FILES = split_table(r"""
    cp x conf/a.yml
    cp x co*/a.yml
    cp x c[o]nf/a.yml
    cp x conf/[ab].yml
    shopt -s extglob⏎cp x conf/+(a).yml
    shopt -s globstar; cp x deep/**/a.yml
    shopt -s globstar; rm -f **/a.yml
    cp x conf/
    cp x conf
    cp -t conf x
    cp -tconf x
    cp --target-directory=conf x
    cp x "$PWD/conf/a.yml"
    cp x $(pwd)/conf/a.yml
    cp x `pwd`/conf/a.yml
    d=conf; cp x $d/a.yml
    d=co; e=nf; cp x $d$e/a.yml
    f=conf/a.yml; cp x "$f"
    f=$(ls conf/a*); cp x "$f"
    d=$(echo conf); cp x $d/a.yml
    d=$(find . -maxdepth 1 -name 'co*'); cp x $d/a.yml
    cp x "${D:-conf}/a.yml"
    cp x ~+/conf/a.yml
    cp x src/../conf/a.yml
    cp x ./conf//a.yml
    cp x 'conf/a.yml'
    cp x con"f"/a\.yml
    cp x $'conf/a.yml'
    cp x $'\x63onf/a.yml'
    echo new | tee conf/a.yml
    echo new | tee -a co*/a.yml
    echo new | tee src/n conf/[a]*.yml >/dev/null
    echo new > conf/a.yml
    echo new >> co*/a.yml
    echo new >| conf/a.yml
    echo new &> conf/a.yml
    echo new 1<> conf/a.yml
    > conf/a.yml
    : > "conf/a.yml"
    exec 3> conf/a.yml; echo new >&3
    exec {fd}>conf/a.yml; echo new >&$fd
    sed -i s/old/new/ conf/a.yml
    sed -i s/old/new/ co*/*.yml
    sed -i.bak s/old/new/ conf/*
    sed --in-place s/old/new/ conf/a*
    sed -n 'w conf/a.yml' x
    sed 's/new/evil/w conf/a.yml' x
    sed -i -e s/old/new/ $(git ls-files conf)
    sed -i s/old/new/ $(grep -rl old conf)
    grep -rl old . | xargs sed -i s/old/new/
    grep -rl old --include=a.yml . | xargs sed -i s/old/new/
    git ls-files | xargs sed -i s/old/new/
    git grep -l old | xargs sed -i s/old/new/
    rg -l old | xargs sed -i s/old/new/
    perl -pi -e s/old/new/ conf/a.yml
    perl -i -pe s/old/new/ co*/a.yml
    perl -pi -e s/old/new/ $(find . -name a.yml)
    perl -e 'unlink "conf/a.yml"'
    perl -e 'unlink glob("co*/*.yml")'
    python3 -c 'open("conf/a.yml","w").write("new")'
    python3 -c 'import glob;[open(f,"w").write("new") for f in glob.glob("co*/*")]'
    python3 -c 'import pathlib; pathlib.Path("co"+"nf","a.yml").write_text("new")'
    python3 -c 'import shutil; shutil.rmtree("conf")'
    python3 -c 'import os; os.chdir("conf"); open("a.yml","w").write("new")'
    python3 - <<'X'⏎import os⏎os.remove("conf/"+"a.yml")⏎X
    node -e 'require("fs").writeFileSync("conf/a.yml","new")'
    node -e 'const fs=require("fs"); fs.readdirSync("conf").forEach(f=>fs.writeFileSync("conf/"+f.toString(),"new"))'
    rm conf/a.yml
    rm -f co*/a.yml
    rm -f conf/*
    rm -rf conf
    rm -rf c*
    rm -rf ./*/er
    rm -rf -- "con"f
    rm -rf src/../conf
    unlink conf/a.yml
    unlink co*/a.yml
    rmdir conf; rm -r conf/sub
    find . -name c.yml -delete
    find conf -delete
    find conf -type f -delete
    find . -path './conf/*' -delete
    find . -name '*.yml' -exec rm {} \;
    find . -name '*.yml' -exec rm {} +
    find conf -type f -exec sed -i s/old/new/ {} +
    find . -name a.yml -exec cp x {} \;
    find . -name a.yml -exec sh -c 'cp x "$1"' _ {} \;
    find . -name a.yml -execdir cp ../x {} \;
    find . -name a.yml -fprint conf/c.yml
    find . -fprint conf/a.yml
    find . -fprintf conf/a.yml %p
    find . -fls conf/a.yml
    find . -newer x -o -name a.yml -delete
    find . -regex '.*/a.yml' -delete
    find . -iname 'A.YML' -delete
    find . -name a.yml | xargs rm
    find . -name a.yml -print0 | xargs -0 rm
    find . -name a.yml | xargs -I{} cp x {}
    find . -name a.yml | while read f; do rm "$f"; done
    find . -name a.yml | while IFS= read -r f; do echo new > "$f"; done
    for f in $(find . -name a.yml); do cp x $f; done
    for f in conf/*; do [ -f $f ] && cp x "$f"; done
    for f in conf/*.yml; do echo new > "$f"; done
    for d in c*; do rm -r $d; done
    for f in co*; do touch $f/new.yml; done
    while read f; do rm $f; done < list.txt
    while read f; do echo new > $f; done < <(ls conf/*.yml)
    xargs rm < list.txt
    xargs -a list.txt rm
    cat list.txt | xargs rm
    cat list.txt | xargs -I{} cp x {}
    echo conf/a | sed 's/$/.yml/' | xargs rm
    echo conf/a.yml | xargs rm
    printf 'conf/a.yml\n' | xargs rm
    printf '%s\n' conf/*.yml | xargs rm
    ls conf/*.yml | xargs rm
    ls conf | sed s,^,conf/, | xargs rm -f
    (cd conf && ls | xargs rm -f)
    xargs rm <<< conf/a.yml
    xargs cp x <<< conf/a.yml
    mapfile -t a < list.txt; rm "${a[@]}"
    a=(conf/*.yml); rm "${a[@]}"
    a=(conf/a.yml conf/c.yml); rm "${a[0]}"
    set -- conf/*.yml; rm "$1"
    f() { cp x "$1"; }; f conf/a.yml
    f() { cp x "$1"/a.yml; }; f conf
    f() { rm "$@"; }; f co*/a.yml
    read f < list.txt; rm "$f"
    f=$(<list.txt); rm $f
    rm $(cat list.txt)
    rm $(<list.txt)
    rm `cat list.txt`
    cd conf && cp ../x a.yml
    cd conf; rm *
    cd conf && cp ../x .
    cd conf && echo new > a.yml
    cd conf && sed -i s/old/new/ *.yml
    cd co* && rm a.yml
    cd "$PWD/conf" && rm a.yml
    cd src/../conf && rm a.yml
    d=conf; cd $d && rm a.yml
    cd deep; cd er; rm a.yml
    cd deep/er && cp ../../x a.yml
    (cd conf; cp ../x a.yml)
    (cd conf; cp ../x .)
    { cd conf; cp ../x .; }
    pushd conf; cp ../x a.yml; popd
    pushd conf >/dev/null && cp ../x . && popd
    pushd conf; rm -f ./*
    CDPATH=. cd conf && rm a.yml
    cd() { :; }; rm conf/a.yml
    bash -c 'cp x conf/a.yml'
    bash -c 'cd conf && cp ../x .'
    sh -c 'rm co*/a.yml'
    bash <<< 'rm conf/a.yml'
    bash <<X⏎rm co*/a.yml⏎X
    echo 'rm conf/a.yml' | sh
    echo 'rm co*/a.yml' | bash -s
    eval 'rm co*/a.yml'
    eval rm conf/a.yml
    echo 'rm conf/a.yml' > s.sh; sh s.sh
    echo 'rm -f co*/*.yml' > s.sh; . ./s.sh
    source <(echo 'rm conf/a.yml')
    env rm conf/a.yml
    env -C conf rm a.yml
    env -C conf cp ../x .
    nice rm -f co*/a.yml
    command cp x co*/a.yml
    \cp x co*/a.yml
    /bin/cp x co*/a.yml
    timeout 5 cp x conf
    mv x conf/a.yml
    mv x conf
    mv x co*/a.yml
    mv conf/a.yml y
    mv conf y
    mv co* y
    mv -t conf x
    mv -f x -t conf
    ln -f x conf/a.yml
    ln -sf x conf/a.yml
    ln -sf ../x conf
    ln -sfn src conf
    ln -s conf link && cp x link/a.yml
    ln -s conf/a.yml link && echo new > link
    ln -s "$PWD/conf" link; rm link/a.yml
    ln conf/a.yml hard && echo new > hard
    ln conf/a.yml hard; cp x hard
    cp -l conf/a.yml hard && echo new > hard
    cp -s $PWD/conf/a.yml soft; echo new > soft
    install x conf/a.yml
    install x conf
    install -D x conf/sub/e.yml
    install -t conf x
    install -m 600 x co*/a.yml
    dd if=x of=conf/a.yml
    dd if=x of=conf/a.yml conv=notrunc
    f=a; dd if=x of=conf/$f.yml
    truncate -s 0 conf/a.yml
    truncate -s0 co*/*
    touch conf/new.yml
    touch deep/a.yml
    mkdir conf/n
    mkdir -p conf/n/m
    shred conf/a.yml
    shred -u co*/a.yml
    split -b 1 x conf/
    split x conf/z
    csplit -f conf/ x 1
    cp -r src conf/src
    cp -r SRC/conf .
    cp -rT SRC/conf conf
    cp -a SRC/. .
    cp -r SRC/* .
    cp SRC/conf/* conf
    cp --parents conf/c.yml deep; cp --parents deep/er/a.yml conf
    (cd SRC && tar c conf) | tar x
    tar xf x.tar
    tar -xf x.tar -C .
    tar x < x.tar
    cat x.tar | tar -x
    tar xf x.tar conf/a.yml
    tar --extract --file=x.tar
    tar xf x.tar --strip-components=1 -C conf
    unzip -o x.zip
    unzip -oq x.zip -d .
    python3 -m zipfile -e x.zip .
    patch -p1 < p.diff
    patch -p1 -i p.diff
    patch conf/a.yml p.diff
    cat p.diff | patch -p1
    git apply p.diff
    git apply < p.diff
    cat p.diff | git apply
    git checkout HEAD~2 -- conf/a.yml; echo x >> conf/a.yml
    git rm -q conf/a.yml
    git rm -rq conf
    git rm -q 'co*/a.yml'
    git mv conf/a.yml y
    git mv conf y
    git clean -fdx conf; rm -r conf
    git -C conf rm -q a.yml
    git -C conf mv a.yml b.yml
    git checkout HEAD~2 -- .env
    git checkout HEAD~2
    git checkout -q HEAD~2 .
    git restore -s HEAD~2 .env
    git restore --source=HEAD~2 .
    git reset --hard HEAD~2
    git checkout-index -f -a
    git stash
    git stash -u
    git stash push -a
    git clean -fdxq
    git clean -fdX
    git worktree add conf/w
    git init -q conf/r
    git clone -q . conf/clone
    git show HEAD:src/util.py > conf/a.yml
    git diff > conf/a.yml
    git diff --output=conf/a.yml
    git log --output=conf/a.yml -p
    git archive -o conf/a.yml HEAD
    git bundle create conf/a.yml HEAD
    git format-patch -1 -o conf HEAD
    make -C conf -f ../x; rm conf/a.yml
    make -f - <<< 'all: ; rm conf/a.yml'
    awk 'BEGIN{print "new" > "conf/a.yml"}'
    awk '{print > "conf/" "a.yml"}' x
    awk -v f=conf/a.yml '{print > f}' x
    ed -s conf/a.yml <<< $'1d\nw\nq'
    ed -s <<< $'r x\nw conf/a.yml\nq'
    printf '1d\nw\n' | ed -s conf/a.yml
    ex -sc '1d|x' conf/a.yml
    ex -s x <<< 'w! conf/a.yml'
    vim -es -c '1d' -c wq conf/a.yml
    vim -es -c 'e conf/a.yml' -c '1d' -c 'wq'
    vim -es -u NONE '+1d' '+wq' co*/a.yml
    vim -es -c 'w! conf/a.yml' -c q x
    tee conf/a.yml <<< new
    tee co*/a.yml <<< new
    tee conf/a.yml < x
    cat x > conf/a.yml
    cat < x > co*/a.yml
    cat <<X > conf/a.yml⏎new⏎X
    cat > conf/a.yml <<'X'⏎new⏎X
    sort -o conf/a.yml x
    sort x -o co*/a.yml
    sort --output=conf/a.yml x
    uniq x conf/a.yml
    chmod 600 conf/a.yml
    chmod 600 co*/a.yml
    chmod -R 700 conf
    chmod 600 conf/*
    find conf -type f -exec chmod 600 {} +
    zip -q conf/a.zip x
    zip -qm y.zip conf/a.yml
    gzip conf/a.yml
    gzip -r conf
    xz conf/*.yml
    jq . src/data.json > conf/a.yml
    curl -s file:///etc/hostname -o conf/a.yml
    curl -so conf/a.yml file://$PWD/x
    (cd conf; curl -sO file://$PWD/../x)
    sqlite3 :memory: '.output conf/a.yml' 'select 1'
    sqlite3 :memory: ".once conf/c.yml" "select 1"
    script -qc true conf/a.yml
    xxd x conf/a.yml
    base64 x > conf/a.yml
    mktemp -p conf
    mktemp conf/XXXXXX
    mkfifo conf/p
    for f in conf/*.yml; do mv -- "$f" "${f/old/new}.bak"; done
    ls conf/*.yml | while read f; do mv $f $f.bak; done
    i=1; while [ $i -lt 2 ]; do rm conf/a.yml; i=2; done
    if true; then cp x conf; fi
    [ -f x ] && cp x conf/a.yml || true
    case x in x) rm conf/a.yml;; esac
    trap 'rm conf/a.yml' EXIT
    nohup rm conf/a.yml
    coproc rm conf/a.yml; wait
    rm conf/a.yml &
    cp x "$(dirname conf/a.yml)"/a.yml
    cp x "$(dirname conf/c.yml)"
    cp x $(dirname $(find . -name c.yml))
    cp x "$(git rev-parse --show-toplevel)/conf/a.yml"
    cp x $(realpath conf)/a.yml
    cp x $(basename $PWD/conf)/a.yml
    cp x /proc/self/cwd/conf/a.yml
    node -e "const fs=require('fs');const p=require('path');fs.rmSync(p.join('conf','a.yml'))"
    python3 -c "import os; os.system('rm conf/a.yml')"
    perl -MFile::Copy -e 'copy("x","conf/a.yml")'
    cd "$(dirname conf/c.yml)" && rm c.yml
    cd "$(find . -name er)"; rm a.yml
    d=$(ls -d co*); cd $d; rm c.yml
    cd "$(ls -d co*)" && cp ../x .
    cd "$(ls -d co*)" && rm -f *
    cd "$(ls -d co*)" && rm -rf sub
    ln -s conf l; cd l && cp ../x a.yml
    ln -s conf l; cp x l/a.yml
    ln -s conf l; cp x l*/a.yml
    cp x $(basename conf)/a.yml
    cp x $(realpath conf/a.yml)
    cp x $(readlink -f conf)/new.yml
    cp x $(dirname conf/a.yml)
    sed -n 'w conf/z.yml' x
    sed -e 's/n/m/w conf/z.yml' -n x
    grep -rlZ old conf | xargs -0 sed -i s/old/new/
    echo conf/{a,c}.yml | xargs rm
    echo co*/a.yml | xargs rm
    printf '%s\n' conf/a.yml conf/c.yml | xargs -n1 rm
    printf 'conf/%s.yml\n' a c | xargs rm
    echo conf/a.yml conf/c.yml | xargs -n 1 cp x
    awk '{print "rm conf/a.yml"}' x | sh
    for d in conf deep; do rm -rf $d; done
    for x in a c; do rm conf/$x.yml; done
    for x in a c; do echo n > "conf/$x.yml"; done
    n=a; echo hi > conf/$n.yml
    cat x | tee $(find . -name a.yml)
    find conf -name '*.yml' -exec truncate -s 0 {} \;
    find . -type f -name '*.yml' -execdir rm {} +
    find . -name '*.yml' -exec mv {} {}.bak \;
    find . -name '*.yml' -exec tee {} \; < x
    find . -name c.yml -okdir rm {} \; ; rm conf/c.yml
    mv deep/er/a.yml{,.bak}
    cp -r src/. conf/
    cp -a src conf/
    cp src/*.py conf
    cp src/* conf/
    install -Dm644 x conf/new.yml
    install -d conf/newdir
    ln -s x conf/link
    ln -st conf ../x
    mv -t conf x README.md
    git checkout HEAD~1 -- conf; cp x conf/a.yml
    echo conf | xargs -I{} find {} -delete
    echo "'conf/a.yml'" | xargs rm
    awk '{print > FILENAME ".b"; print > ("conf/" $1)}' x
    awk -vf=a 'BEGIN{print "x" > "conf/" f ".yml"}'
    find . -type d -name conf -prune -exec rm -r {} +
    find . -type d -name 'con?' -exec rm -rf {} +
    d=of=conf/a.yml; dd if=x $d
    unzip -ojd conf x.zip
    7z x -y x.zip
    jar xf x.zip
    git diff HEAD~1 --output conf/a.yml
    git log --output conf/c.yml
    sed -ne 'wconf/a.yml' x
    sed -n --expression='w conf/a.yml' x
    sed -n '1!{wconf/a.yml⏎}' x
    sed 's|n|m|wconf/a.yml' x
    f=conf/a.yml; sed -n "w $f" x
    vim -es -c 'cd conf|e a.yml|1d|wq'
    vim -es -c 'lcd conf' -c 'e c.yml' -c '1d' -c wq
    printf '%s\n' 'r x' 'w conf/a.yml' q | ed -s
    echo 'unlink "conf/a.yml"' | perl
    perl -e 'open F, q{>}.q{conf/a.yml}'
    echo 'open("conf/a.yml","w")' | python3
    echo 'open("conf/a.yml","w")' | python3 -
    python3 < <(echo 'open("conf/a.yml","w")')
    echo 'open("conf/a.yml","w")' > z.py; python3 z.py
    python3 -c 'import sys; open(sys.stdin.read().strip(),"w")' <<< conf/a.yml
    python3 -c 'import sys; open(sys.argv[1],"w")' $(cat list.txt)
    echo conf/a.yml | xargs python3 -c 'import sys; open(sys.argv[1],"w")'
    python3 -c 'import shutil; shutil.copy("x","conf")'
    python3 -c 'import shutil; shutil.copytree("src","conf",dirs_exist_ok=True)'
    python3 -c 'import zipfile; zipfile.ZipFile("x.zip").extractall()'
    python3 -c 'import tarfile; tarfile.open("x.tar").extractall()'
    node -e 'fs.writeFileSync(`conf/a.yml`,"x")'
    node -e 'fs.cpSync("src","conf",{recursive:true})'
    echo 'require("fs").rmSync("conf/a.yml")' | node
    echo '.output conf/a.yml' | sqlite3 :memory:
    printf 'a:\n\trm conf/a.yml\n' > mk; make -f mk a
    curl -s --trace conf/a.yml file://$PWD/x
    curl -s --stderr conf/a.yml file://$PWD/nope
    curl -s --libcurl conf/a.yml file://$PWD/x
    curl -sK <(echo "output=conf/a.yml") file://$PWD/x
    curl -sT x file://$PWD/conf/a.yml
    read -r d f <<< 'conf a.yml'; echo x > $d/$f
    IFS=, read d f <<< conf,a.yml; echo x > $d/$f
    grep -rl old . --include=*.yml | while read f; do rm $f; done
    find . -name *.yml -delete
    find conf -name c.* -exec rm {} +
    n='*.yml'; find . -name "$n" -exec rm {} \;
    chmod -w conf/a.yml
    chmod -R -r conf
    mv --target-directory=conf x
    cp -tconf src/main.py
    awk '{print > $1}' list.txt
    x=$(cat list.txt); awk "{print > \"$x\"}" x
    x=$(cat list.txt); git diff --output=$x
    x=$(cat list.txt); xxd x $x
    x=$(cat list.txt); sed -n "w $x" x
    x=$(cat list.txt); find . -path ./$x -delete
    while read l; do echo q | tee $l; done < list.txt
    cat list.txt | xargs -I{} curl -so {} file://$PWD/x
    cat list.txt | xargs -I{} sort -o {} x
    find . -maxdepth 1 -type d ! -name . -exec rm -r {} +
    find . -depth -name conf -exec mv {} q \;
    find . -name conf -execdir rm -r {} \;
    find . -name conf -exec chmod -R a-w {} \;
    for d in $(find . -name conf); do touch $d/new; done
    ls | while read d; do touch $d/new; done
    strip -o conf/a.yml /bin/true
    git rm --pathspec-from-file list.txt
    gzip -r .
    zip -rm q.zip .
    find . -name README.md -exec true \; , -name c.yml -exec truncate -s0 {} \;
    find . -name '*.yml' -exec python3 -c 'import sys;open(sys.argv[1],"w")' {} \;
    find . -name '*.yml' | tar cf z.tar -T - --remove-files
    find . -name '*.yml' | zip -qm@ z
    find -delete -name zz
    rm -rf c{o..o}nf
    rm -rf [^x]onf
    rm -rf [[:lower:]]onf
    cp x [^s]onf
    cd conf; split ../x
    cd conf; csplit ../x 1
    python3 -c 'from shutil import rmtree as r;r("co"+"nf")'
    python3 -c 'import logging;logging.basicConfig(filename="co"+"nf/z",level=10);logging.debug(1)'
    python3 -c 'import shutil;shutil.unpack_archive("x.tar")'
    python3 -c 'import tempfile;tempfile.mkstemp(dir="conf")'
    node -e 'fs.promises.rm("co"+"nf",{recursive:true})'
    awk 'BEGIN{printf "" > "conf/a.yml"}'
    tar xC . -f x.tar
    cat x.tar | tar -xC .
    rg --files-with-matches old | xargs rm
    rg -tyaml -l old | xargs sed -i s/old/x/
""")
