"""Commands that neither print nor change a file which a rule denies. ``OUT`` is an empty folder elsewhere."""

from tests.policy.tables import split_table

HARMLESS = split_table(r"""
    cat README.md
    cat src/*.py
    cat *.md
    cp x src/y
    cp src/main.py src/copy.py
    cp -r src OUT/src
    cp x src/
    cd src && cp ../x .
    cd src; rm -f util.py
    (cd src && ls)
    rm untracked.txt
    rm -f src/*.pyc
    rm -rf build dist
    rm -rf src/__pycache__
    find . -name '*.pyc' -delete
    find . -name __pycache__ -type d -exec rm -rf {} +
    find src -name '*.py' -exec sed -i s/x/y/ {} +
    find . -name '*.py' | xargs grep KEY
    find . -name '*.py' | xargs sed -i s/x/y/
    find src -type f | xargs wc -l
    find . -name '*.md' -exec cat {} \;
    grep -rn KEY src
    grep -rn --include='*.py' KEY .
    grep -rl KEY src | xargs sed -i s/KEY/K/
    sed -i s/x/y/ src/util.py
    sed -i s/x/y/ src/*.py
    sed -n 1,5p README.md
    tee src/log.txt <<< hi
    echo hi > src/new.txt
    echo hi >> README.md
    for f in src/*.py; do wc -l "$f"; done
    for f in src/*.py; do sed -i s/x/y/ "$f"; done
    f=src/util.py; cp x "$f"
    d=src; cp x $d/y
    d=$(mktemp -d); cp x $d/
    mkdir -p build/out && cp src/*.py build/out
    mv src/util.py src/helpers.py
    mv untracked.txt src
    ln -s src link
    chmod +x src/main.py
    chmod 644 src/*
    touch src/new.py
    install -m 755 x src/tool
    tar czf OUT/s.tgz src
    tar tf x.tar
    unzip -l x.zip
    git status
    git status --short
    git add src
    git add -A
    git add .
    git commit -qm msg
    git log --oneline -5
    git log --stat
    git log -3 --format=%h
    git show --stat
    git show HEAD:src/util.py
    git show HEAD:README.md
    git show HEAD~1 --name-only
    git diff -- src
    git diff src/util.py
    git diff --stat
    git diff --name-only
    git diff HEAD -- src/util.py
    git blame src/util.py
    git grep KEY -- src
    git ls-files
    git checkout -- src/util.py
    git checkout src/util.py
    git restore src/util.py
    git restore src
    git mv src/util.py src/u.py
    git rm -q README.md
    git stash list
    git branch
    git checkout -q -b feature
    git switch -q -c feature2
    git rev-parse HEAD
    git config user.name
    git tag v1
    git fetch 2>/dev/null
    make
    make all
    python3 -c 'print(1)'
    python3 -c 'import json; print(json.load(open("src/data.json")))'
    python3 -c 'open("src/o.txt","w").write("x")'
    python3 src/main.py
    node -e 'console.log(1)'
    node -e 'require("fs").writeFileSync("src/o.txt","x")'
    perl -pi -e s/x/y/ src/util.py
    perl -ne 'print if /KEY/' README.md
    awk '{print $1}' README.md
    awk '{print > "src/o.txt"}' x
    sort -o src/s x
    sort x | uniq -c
    wc -l README.md | tee src/wc.txt
    ls -la
    ls conf
    ls -R .
    stat conf/a.yml
    cat conf/a.yml
    grep old conf/a.yml
    grep -rn old conf
    head -3 conf/*.yml
    diff conf/a.yml conf/c.yml
    cp conf/a.yml src/copy
    cat conf/*.yml > src/all
    cd conf && cat *.yml
    cd conf; ls
    cd conf && ls && cd .. && touch src/z
    cd conf && cp a.yml ../src/b
    tar c conf > OUT/c.tar
    find conf -type f
    find conf -name '*.yml' | xargs cat
    find conf -name '*.yml' -exec cat {} +
    find . -name '*.yml'
    ls conf | wc -l
    for f in conf/*.yml; do echo $f; done
    for f in conf/*.yml; do cat $f; done
    jq . src/data.json
    jq .a src/data.json > src/o.json
    curl -s file:///etc/hostname -o src/h
    echo $HOME; echo "$PATH" | tr : '\n'
    x=5; echo $((x+1))
    date > src/date
    test -f .env && echo yes
    [ -f .env ] && echo yes
    wc -c x
    du -sh .
    while read l; do echo $l; done < README.md
    read l < README.md; echo $l
    while read f; do echo $f; done < list.txt
    cat list.txt
    xargs echo < list.txt
    echo src/main.py | xargs cat
    printf 'src/util.py\n' | xargs rm
    ls src/*.py | xargs wc -l
    git diff --name-only | xargs echo
    npm run build 2>/dev/null
    pytest -q 2>/dev/null
    sed 's/a/b/' conf/a.yml > src/o
    sed 's/a/b/' conf/a.yml | tee src/o
    dd if=/dev/zero of=src/z bs=1 count=1
    dd if=conf/a.yml of=src/z
    truncate -s 0 src/util.py
    split -l 1 README.md src/part_
    zip -qr OUT/s.zip src
    gzip -k src/util.py
    patch --version
    git apply --stat p.diff
    git apply --check p.diff
    git log --format=%s -- conf
    echo ".env" >> .gitignore
    cat .gitignore
    diff -u x README.md
    bash -c 'echo hi > src/o'
    env FOO=1 python3 src/main.py
    cp x "$(dirname src/main.py)/y"
    rsync -a src/ OUT/ 2>/dev/null
    cd src && touch n && cd .. && touch src/z
    cd src && cp ../x . && cd .. && ls conf
    mkdir -p d && cp conf/c.yml d/c2.yml
    cp "$(ls src/*.py | head -1)" OUT/
    d=$(mktemp -d) && cp -r src "$d"/
    tmp=$(mktemp); sort x > "$tmp" && mv "$tmp" src/sorted
    cp x "$(git rev-parse --show-toplevel)/src/q"
    cp x "$(realpath src)/q"
    cp x $(dirname src/main.py)
    echo src/main.py src/util.py | xargs rm
    printf '%s\n' src/*.py | xargs wc -l
    find src -name '*.py' | xargs rm
    find src -type f -delete
    find . -name '*.pyc' -o -name '*.pyo' | xargs rm -f
    cat list.txt | xargs ls
    while read f; do ls $f; done < list.txt
    cat conf/a.yml | sed s/a/b/ > src/o.yml
    sed 's/w x/y/' conf/c.yml > src/o.yml
    sed -i 's/new conf/old/' src/util.py
    tar czf OUT/c.tgz conf
    zip -qr OUT/c.zip conf
    cp -r src OUT/src2
    cp -r src src2
    mv src lib
    for i in 1 2 3; do echo $i > src/f$i; done
    for f in src/*; do mv "$f" "$f.bak"; done
    for f in src/*.py; do cp "$f" "${f%.py}.bak"; done
    head -1 conf/c.yml | tee src/h
    git add conf
    git commit -qam x
    git diff conf
    git log --oneline -- conf
    git checkout -q -b fix/x
    git show HEAD -- src
    git show HEAD:conf/a.yml
    git blame conf/a.yml
    git restore --staged .
    git restore --staged src
    git clean -fd
    grep -rn --exclude-dir=node_modules KEY src
    grep -rA 3 KEY src
    rg -C 2 KEY src
    for d in src; do touch $d/x; done
    python3 -c 'import sys; print(open(sys.argv[1]).read())' x
    echo 'print(1)' | python3
    echo 'print(1)' > src/z.py; python3 src/z.py
    awk '{print $1 > "src/o"}' x
    awk '{print ($1 > 2)}' x
    sed -n 'w src/o' x
    rm -r src
    chmod -w src/main.py
    mv --target-directory=src x
    git log -1 --output=src/log
    for d in $(find src -type d); do ls $d/; done
    curl -s --stderr src/log file:///etc/hostname
    zip -rq OUT/s.zip src
    gzip -k src/data.json
    gzip -rk src
    git add -u
    rg -t py KEY
    rg -tpy -n def
    rg -g '*.py' KEY
    rg -g '*.{py,md}' KEY
    rg -g '!secrets/**' -g '!app' KEY
    rg -e KEY src
    rg --files -g '*.py' | xargs wc -l
    grep -rn --include='*.py' --include='*.md' KEY .
    grep -rn --exclude-dir=secrets --exclude='.env*' --exclude-dir=app KEY .
    grep -rn -e KEY src
    find . -name '*.py' -exec python3 -m py_compile {} \;
    find . -type f -name '*.py' -not -path '*/node_modules/*' | xargs grep -l KEY
    find . -type f -name '*.py' ! -path './conf/*' -exec grep -l KEY {} +
    find . -type f \( -name '*.ts' -o -name '*.py' \) -not -path '*/node_modules/*' | xargs grep -n KEY
    find . -type f ! -path './secrets/*' ! -path './.env' ! -path './app/*' ! -path './.git/*' -exec grep -l KEY {} +
    find . -type f -name '*.py' ! -name '*_test.py' -exec sed -i s/x/y/ {} +
    find . -name '*.md' -not -path './conf/*' -exec wc -l {} +
    git diff -- . ':!secrets' ':!conf' ':!.env' ':!app'
    git log -p -2 -- src/*.py
    tar czf OUT/a.tgz --exclude=secrets --exclude=.env .
    cat [[:upper:]]*.md
    ls [^.]*.md
    touch src/{a..c}.txt
    split -l 100 README.md
    python3 -c "print('hi'); open('src/o','w').write('it')"
    node -e "const {readFileSync}=require('fs');console.log(readFileSync('src/data.json','utf8'))"
    tar cf OUT/s.tar src
    tar cfC OUT/s.tar src main.py
    tar --create --file=OUT/s.tar --dir=src main.py
    cd src; mktemp -p .
    builtin cd src && touch z
    command cd src; cp main.py z.py
    cd ./sr?; touch z
    cd "$(echo src)"; touch z
    cd src && cp main.py ~-/src/z.py
    cd src; cat ~-/README.md
    read -a d <<< 'src README.md'; cat "${d[1]}"
    read -n3 d <<< srcx; touch $d/z
    mapfile -t d <<< $'src\nx'; ls ${d[0]}
    f=README; f+=.md; cat $f
    opts=-n; opts+=" -H"; grep $opts print src/main.py
    m='fix conf of the app'; echo "$m"
    f='src/main.py src/util.py'; wc -l $f
    split --filter='wc -l' x
    env -S 'cat README.md'
    env -C src cat main.py
    find src -name '*.py' -exec env wc -l {} \;
    find src -name '*.py' -exec nice touch {} \;
    git diff HEAD:src HEAD~1:src
    f=main; git show HEAD:src/$f.py
    node --cpu-prof-dir=OUT -e 1
    tsc --outDir dist
    cargo build --target x86_64-unknown-linux-gnu
    pytest --basetemp=OUT -q
    npm run build --prefix src
    script -qc'ls src' OUT/typescript
    sqlite3 :memory: '.show'
    perl -e 'open F,"README.md";print <F>'
""")
