"""Commands that change a denied file in a folder, or by an option or a part of a text, that is spelled unusually."""

from tests.policy.tables import split_table

CHANGING_IN_FOLDERS = split_table(r"""
    env -S'-C conf touch z'
    env --ch=conf touch z
    env -iC conf touch z
    tar xfC x.tar .
    tar xvfC x.tar $PWD
    tar xCf . x.tar
    tar --ext -f x.tar
    tar --ge -f x.tar
    tar --extr --file x.tar --dir .
    git grep -Orm old
    git grep -O'rm -f' old
    git grep --open-files-in-pager=rm old
    git grep --open=rm old
    split --filter='cat > conf/$FILE' x
    split --filter 'cat > conf/z' x
    split --fil='rm conf/a.yml' x
    read -a d <<< 'conf a.yml'; rm ${d[0]}/${d[1]}
    read -ra d <<< 'src conf'; rm -r ${d[1]}
    IFS=, read -ra d <<< src,conf/a.yml; rm ${d[1]}
    mapfile -t d <<< $'src\nconf'; touch ${d[1]}/z
    mapfile -td, d <<< src,conf,; touch ${d[1]}/z
    read -d , d <<< conf,; touch $d/z
    read -n4 d <<< confx; touch $d/z
    cd src && cp main.py ~-/conf
    cd src; cp main.py $OLDPWD/conf
    cd src; mv main.py ~-/conf
    cd src; ln -s main.py ~-/conf/
    cd src; rm -r ~-/conf
    cd src; cp -r . ~-/conf
    cd src; install main.py ~-/conf
    builtin cd conf; touch z
    command cd conf && touch z
    command -- cd conf; touch z
    command -p cd conf; touch z
    builtin pushd conf; touch z
    command builtin cd conf; touch z
    time cd conf; touch z
    cd -e -P conf; touch z
    cd "$(echo conf)"; touch z
    cd `echo conf`; touch z
    cd ./c?nf; touch z
    cd() { builtin cd conf; }; cd x; touch z
    cd conf; mktemp -p .
    find src -name '*.py' -exec mv {} co* \;
    find . -name c.yml -exec env rm {} \;
    find . -name c.yml -exec nice rm {} \;
    d='src conf'; rm -r $d
    d=co; d+=nf; rm -r $d
    node --cpu-prof --cpu-prof-dir=conf -e 1
    sqlite3 :memory: <<< '.sh rm conf/a.yml'
    script -qc'rm conf/a.yml' y
""")
