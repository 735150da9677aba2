#!/bin/sh
# setup.sh [--check] [--test] [--demo] - sees to the Debian packages that the build needs. Silent when all is there.
# As root, or where sudo asks no password, installs what is missing; otherwise prints the command to type, and
# fails only when something required is missing. --check never installs, and BANYAN_NO_INSTALL=1 does the same.
# --test adds what the tests need, --demo the text that the demonstration trains on.
set -u
cd "$(dirname "$0")/.." || exit 1

install=1 test=0 demo=0
[ -n "${BANYAN_NO_INSTALL:-}" ] && install=0
for arg in "$@"; do
    case $arg in
    --check) install=0 ;;
    --test) test=1 ;;
    --demo) demo=1 ;;
    *)
        echo "usage: tools/setup.sh [--check] [--test] [--demo]" >&2
        exit 2
        ;;
    esac
done

has() {
    command -v "$1" >/dev/null 2>&1
}

has_header() {
    has cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1
}

# Fills `required` and `optional` with the packages that are not there.
look() {
    required='' optional=''
    has cc && has make || required="$required build-essential"
    has cmake || required="$required cmake"
    has_header cjson/cJSON.h || required="$required libcjson-dev"
    has cc && echo '#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>' | cc -E -x c - >/dev/null 2>&1 || required="$required libpcre2-dev"
    has_header utf8proc.h || required="$required libutf8proc-dev"
    if [ $test = 1 ]; then
        has_header cmocka.h || required="$required libcmocka-dev"
        has g++ || has c++ || optional="$optional g++"
    fi
    has ninja || optional="$optional ninja-build"
    has pkg-config || optional="$optional pkg-config"
    has_header oneapi/dnnl/dnnl.h || has_header dnnl.h || optional="$optional libdnnl-dev"
    has_header zlib.h || optional="$optional zlib1g-dev"
    has_header zstd.h || optional="$optional libzstd-dev"
    has_header png.h || optional="$optional libpng-dev"
    has_header jpeglib.h || optional="$optional libjpeg-dev"
    has_header webp/decode.h || optional="$optional libwebp-dev"
    if [ $demo = 1 ]; then
        # The demonstration says itself what it does without the text.
        has bible || optional="$optional bible-kjv"
        [ -e /usr/lib/bible.data ] || optional="$optional bible-kjv-text"
    fi
}

apt() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@" >&2
}

# The lists may be old or absent: fetch them once, and only after a first attempt without.
add() {
    apt install --no-install-recommends "$@" && return
    [ -n "${updated:-}" ] && return 1
    updated=1
    apt update
    apt install --no-install-recommends "$@"
}

look
[ -z "$required$optional" ] && exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    sudo="sudo"
    sudo -n true 2>/dev/null || install=0
fi
has apt-get || install=0

if [ $install = 1 ]; then
    echo "setup: installing$required$optional" >&2
    # shellcheck disable=SC2086 # the lists are words
    if ! add $required $optional; then
        for package in $required $optional; do
            add "$package"
        done
    fi
    # A cache that remembers what was not found would hide what now is.
    rm -f build*/CMakeCache.txt
    look
    # Without oneDNN, OpenBLAS is the next fastest.
    case $optional in
    *libdnnl-dev*) has_header cblas.h || add libopenblas-openmp-dev ;;
    esac
fi

if [ -n "$required" ]; then
    echo "setup: missing:$required" >&2
    echo "setup: type: ${sudo:+sudo }apt-get install --no-install-recommends$required$optional" >&2
    exit 1
fi
if [ -n "$optional" ]; then
    echo "setup: it will work without, but better with:" >&2
    echo "setup:   ${sudo:+sudo }apt-get install --no-install-recommends$optional" >&2
fi
exit 0
