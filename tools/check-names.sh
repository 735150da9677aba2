#!/bin/sh
# check-names.sh - checks that a name means one thing. Prints each violation, and a last line `ok names` or `not ok names`.
#   1. `by_` belongs to the public headers: code in src/ uses no other name with that prefix.
#   2. No type is defined twice in the headers of src/ and include/.
#   3. No two files of src/ share a base name, except X.c with its X.h, and a CPU kernel with its CUDA twin.
#   4. No family of models is compared by name outside src/models: what a family does differently is in its record.
cd "$(dirname "$0")/.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

sources() {
    find src -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' \) | LC_ALL=C sort
}

# Removes comments and strings.
code() {
    cat "$@" | perl -0777 -pe 's{/\*.*?\*/}{}gs; s{//[^\n]*}{}g; s{"(\\.|[^"\\])*"}{""}g'
}

# shellcheck disable=SC2046 # file names have no spaces
{
    code include/banyan/*.h | grep -oE '\bby_[a-z0-9_]+' | LC_ALL=C sort -u >"$tmp/public"
    code $(sources) | grep -oE '\bby_[a-z0-9_]+' | LC_ALL=C sort -u >"$tmp/used"
}
# Names of the test hooks in cpu_branch sections and of status variables inside macros.
printf '%s\n' by_branches by_branch_here_ by_try_status_ >>"$tmp/public"
LC_ALL=C sort -u -o "$tmp/public" "$tmp/public"
if ! LC_ALL=C comm -13 "$tmp/public" "$tmp/used" >"$tmp/private" || [ -s "$tmp/private" ]; then
    sed 's/$/: not in include\/banyan: internal names take the prefix of their room/' "$tmp/private"
    bad=1
fi

# shellcheck disable=SC2046
for header in include/banyan/*.h $(sources | grep -E '\.(h|cuh)$'); do
    code "$header" | grep -oE '^\} [a-z][a-z0-9_]*;|^typedef (struct|enum|union) [a-z0-9_]+ \{' |
        sed -E 's/^\} ([a-z0-9_]+);/\1/; s/^typedef [a-z]+ ([a-z0-9_]+) \{/\1/' | LC_ALL=C sort -u
done | LC_ALL=C sort | uniq -d >"$tmp/types"
if [ -s "$tmp/types" ]; then
    sed 's/$/: defined in two headers/' "$tmp/types"
    bad=1
fi

# One entry per base name and folder; the kernels' and backends' folders of cpu and cuda count as one.
sources | sed -E 's/^src\/(cpu|cuda)\//src\/backend\//; s|^(.*)/([^/]*)\.[a-z]+$|\2 \1|' | LC_ALL=C sort -u |
    awk '{ if ($1 == last) print $1 ": " where " and " $2; last = $1; where = $2 }' >"$tmp/files"
if [ -s "$tmp/files" ]; then
    sed 's/$/: two files of one base name/' "$tmp/files"
    bad=1
fi

families=$(grep -hoE '\.family = "[^"]+"' src/models/*.c | sed -E 's/.*"(.*)"/\1/' | paste -sd '|')
if grep -rnE "strn?cmp\([^;]*\"($families)\"" src include --include='*.[ch]' | grep -v '^src/models/' >"$tmp/families"; then
    sed 's/$/   (a family compared by name)/' "$tmp/families"
    bad=1
fi

[ $bad = 0 ] && echo "ok names" || { echo "not ok names"; exit 1; }
