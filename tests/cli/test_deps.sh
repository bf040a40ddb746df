#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What deps.sh would install, on a machine made of pretence: the quickstart one MPI library, the tests both and a browser; a
# browser or an MPI library that cannot be had is said and is no error; what is needed and cannot be had is one; nothing is touched when all is there.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
mkdir "$dir/bin"
for tool in bash cat chmod cut dirname env grep head mktemp readlink rm; do ln -s "$(command -v $tool)" "$dir/bin/"; done
pretend() { printf '#!/bin/bash\n%s\n' "$2" >"$dir/bin/$1" && chmod +x "$dir/bin/$1"; }
pretend id 'echo 0'
pretend dpkg-query 'grep -qx "${@: -1}" $DIR/installed && echo installed'
# Installs by writing a list; a package of the file `lacking` is one that no archive has; update is written down too.
pretend apt-get '
echo "$*" >>$DIR/asked
[ "$1" = install ] || exit 0
shift; names=(); for word in "$@"; do [ "${word#-}" = "$word" ] && names+=("$word"); done
for name in "${names[@]}"; do grep -qx "$name" $DIR/lacking && { echo "E: Unable to locate package $name"; exit 100; }; done
printf "%s\n" "${names[@]}" >>$DIR/installed
for program in firefox-esr clang-format-14; do
    [[ " ${names[*]} " = *" $program "* ]] && { echo "#!/bin/bash" >$DIR/bin/$program; chmod +x $DIR/bin/$program; }
done
exit 0'
export DIR=$dir
: >"$dir/installed" && : >"$dir/lacking" && : >"$dir/asked"
deps() { PATH=$dir/bin bash "$root/scripts/deps.sh" "$@" >"$dir/out" 2>"$dir/err"; }

deps || fail "a bare machine: $(cat "$dir/err")"
grep -qx libopenmpi-dev "$dir/installed" || fail "no MPI library"
for word in mpich libcmocka-dev firefox; do ! grep -q "$word" "$dir/installed" || fail "$word is not for the quickstart"; done
: >"$dir/asked"
deps && [ ! -s "$dir/asked" ] || fail "asked apt though all was there: $(cat "$dir/asked" "$dir/err")"

cp "$dir/installed" "$dir/before"
echo firefox-esr >"$dir/lacking"
deps --tests --quiet || fail "no browser is an error: $(cat "$dir/err")"
grep -qx libmpich-dev "$dir/installed" || fail "the tests need both MPI libraries"
grep -q '^deps: no browser here' "$dir/err" || fail "does not say that there is no browser: $(cat "$dir/err")"
: >"$dir/lacking" && : >"$dir/asked"
deps --tests && grep -qx firefox-esr "$dir/installed" || fail "no browser was installed: $(cat "$dir/err")"
: >"$dir/asked"
[ -x "$dir/bin/clang-format-14" ] || fail "no formatter was installed"
deps --tests && [ ! -s "$dir/asked" ] || fail "asked apt though the browser was there, too: $(cat "$dir/asked")"

# Without MPI there are threads; without yaml there is nothing.
: >"$dir/installed" && echo libopenmpi-dev >"$dir/lacking"
deps || fail "no MPI is an error: $(cat "$dir/err")"
grep -q 'could not install .*libopenmpi-dev' "$dir/err" && grep -qx cmake "$dir/installed" || fail "no MPI: $(cat "$dir/err")"
deps && grep -q 'could not install .*libopenmpi-dev' "$dir/err" || fail "no MPI, the second time: $(cat "$dir/err")"
: >"$dir/installed" && echo libyaml-dev >"$dir/lacking"
deps
[ $? = 1 ] && grep -q 'could not install .*libyaml-dev' "$dir/err" || fail "no yaml: $(cat "$dir/err")"

cp "$dir/before" "$dir/installed" && echo mpich >"$dir/lacking"
deps --tests
[ $? = 1 ] && grep -q 'could not install .*mpich' "$dir/err" && grep -q 'Unable to locate' "$dir/err" ||
    fail "a package that is not there: $(cat "$dir/err")"
deps --test
[ $? = 2 ] && grep -q '^usage' "$dir/err" || fail "an unknown word: $(cat "$dir/err")"
passed
