# common.sh - what the shell tests share; each begins with `. "$(dirname "$0")/lib/common.sh"`. What a test's command prints
# lies in $tmp: out and err, or log; why is what check's own command printed.
# shellcheck shell=sh disable=SC2034 # some of it is for the scripts
set -u
export LC_ALL=C GOMP_SPINCOUNT=0
tmp=. rc=0 failed=0

# own_folder: a new folder, which goes with the script.
own_folder() {
    tmp=$(mktemp -d) || exit 2
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT TERM
}

# check NAME COMMAND...: the test passes when the command succeeds.
check() {
    local name=$1 part
    shift
    if "$@" >"$tmp/why" 2>&1; then
        echo "ok $name"
        return
    fi
    failed=1
    echo "not ok $name"
    echo "    failed: $*; exit code of the last run $rc"
    for part in out err log why; do
        [ -s "$tmp/$part" ] && tail -n 8 "$tmp/$part" | head -c 2000 | sed "s/^/    $part: /"
    done
}

# run ARGUMENTS...: the program; leaves the exit code in rc, what was printed in out and err.
run() {
    "$BANYAN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
}

# works [TEXT]: the last run succeeded and printed a line that matches.
works() {
    [ "$rc" -eq 0 ] && grep -q -e "${1:-.}" "$tmp/out"
}

# fails CODE TEXT: the last run ended with this code, printed nothing, and said why in one line that holds the text.
fails() {
    [ "$rc" -eq "$1" ] && [ ! -s "$tmp/out" ] && grep -q -e "$2" "$tmp/err" && [ "$(grep -c '^banyan' "$tmp/err")" -eq 1 ]
}

# For scripts with a function train, and the options of a small model in `small`.
# shows COUNT TEXT OPTIONS...: --show-batch prints so many rows, with this in them.
shows() {
    local count=$1 text=$2
    shift 2
    train --show-batch "$count" "$@" && [ "$(grep -c '^row [0-9]*: ' "$tmp/out")" -eq "$count" ] && grep -q -e "$text" "$tmp/out"
}

# refuses TEXT OPTIONS...: a run that cannot begin says why.
refuses() {
    local text=$1
    shift
    rm -rf "$tmp/bad"
    # shellcheck disable=SC2086 # several options
    train ${small:-} --out "$tmp/bad" --max-steps 2 "$@"
    [ $? -eq 1 ] && grep -q -e "$text" "$tmp/err"
}
