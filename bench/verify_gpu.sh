#!/bin/sh
# verify_gpu.sh - `banyan verify` of all recorded cases on a GPU: a line for each case that fails, with its worst tensors, and the counts.
#   bench/verify_gpu.sh [DIR...]     DIR: a case, or a folder of cases; if none is given, ../shared/parity and tests/data/verify
# Environment: BANYAN (build/banyan), DEVICE (cuda), DTYPES ("f32"), JOBS (4: cases at a time). Cases of families that this program does
# not have are counted apart. Ends with 1 if a case fails.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || set -- ../shared/parity tests/data/verify
export banyan="${BANYAN:-build/banyan}" device="${DEVICE:-cuda}"
results=$(mktemp) || exit 1
trap 'rm -f "$results"' EXIT

# shellcheck disable=SC2016 # for the inner shell
for dir in "$@"; do
    find "$dir" -name case.json
done | sed 's,/case.json$,,' | sort | while read -r dir; do
    for dtype in ${DTYPES:-f32}; do
        printf '%s\n%s\n' "$dir" "$dtype"
    done
done | xargs -r -n 2 -P "${JOBS:-4}" sh -c '
    out=$("$banyan" verify "$0" --device "$device" --dtype "$1" 2>&1) && word=ok || word=FAILED
    case $out in *"unknown model family"*) word=unknown ;; esac
    if [ $word = FAILED ]; then
        out=$(echo "$out" | grep -E "FAILED|^banyan" | head -n 4)
    else
        out=$(echo "$out" | tail -n 1)
    fi
    printf "%-8s %-40s %s: %s\n" $word "$0" "$1" "$out"
' >"$results"
grep -v '^ok' "$results" | grep -v '^unknown'
for word in ok FAILED unknown; do
    echo "$word: $(grep -c "^$word " "$results")"
done
! grep -q '^FAILED' "$results"
