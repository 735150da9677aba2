#!/bin/sh
# An installed library is found by pkg-config and by CMake, and a program builds against it and runs.
. "$(dirname "$0")/lib/common.sh"
own_folder
prefix="$tmp/usr"

cmake --install "$BANYAN_BUILD" --prefix "$prefix" >"$tmp/log" 2>&1 || {
    echo "not ok install"
    cat "$tmp/log" >&2
    exit 1
}
echo "ok install"
check "manual pages and completion are there" test -s "$prefix/share/man/man1/banyan-train.1" -a \
    -s "$prefix/share/bash-completion/completions/banyan" -a -s "$prefix/share/zsh/site-functions/_banyan" -a \
    -s "$prefix/share/fish/vendor_completions.d/banyan.fish"
# Every command has a page, which renders without a warning.
pages() {
    local verb page
    for verb in '' $("$BANYAN" help --list); do
        page=$prefix/share/man/man1/banyan${verb:+-$verb}.1
        [ -s "$page" ] || { echo "$page is missing"; return 1; }
        if command -v man >/dev/null 2>&1 && command -v groff >/dev/null 2>&1; then
            LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >/dev/null | grep . && return 1
        fi
        if command -v mandoc >/dev/null 2>&1; then
            mandoc -Tlint -Wwarning "$page" | grep -v 'missing date' | grep . && return 1
        fi
    done
    [ "$(find "$prefix/share/man/man1" -name '*.1' | wc -l)" -eq "$(($("$BANYAN" help --list | wc -l) + 1))" ]
}
check "a manual page for every command" pages
check "the program runs from its new place" "$prefix/bin/banyan" --version

# A library with the address sanitizer refuses a program without it, unless told not to look.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
export LD_LIBRARY_PATH="$(dirname "$(find "$prefix" -name 'libbanyan.so.*' | head -n 1)")"
if command -v pkg-config >/dev/null 2>&1; then
    export PKG_CONFIG_PATH="$LD_LIBRARY_PATH/pkgconfig"
    # shellcheck disable=SC2046
    check "a program builds with pkg-config" ${CC:-cc} "$BANYAN_SOURCE/examples/architecture.c" -o "$tmp/program" \
        $(pkg-config --cflags --libs banyan) -lm
    check "and runs with the shared library" "$tmp/program"
else
    echo "not run a program builds with pkg-config: pkg-config is not there"
fi

mkdir "$tmp/project"
cat >"$tmp/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(banyan REQUIRED)
add_executable(user main.c)
target_link_libraries(user banyan::banyan m)
END
cp "$BANYAN_SOURCE/examples/architecture.c" "$tmp/project/main.c"
check "CMake finds the package" cmake -S "$tmp/project" -B "$tmp/project/build" "-DCMAKE_PREFIX_PATH=$prefix"
check "a program builds with CMake" cmake --build "$tmp/project/build"
check "and runs" "$tmp/project/build/user"
