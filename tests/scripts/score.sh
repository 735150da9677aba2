#!/bin/sh
# score.sh - `banyan score` from outside: what it prints for texts whose figures sacreBLEU and rouge_score gave, and files that do not fit.
# shellcheck disable=SC2317
. "$(dirname "$0")/lib/common.sh"
own_folder
data=$BANYAN_SOURCE/tests/data/score

score() {
    "$BANYAN" score "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}

report() {
    echo "not ok $1"
    head -c 500 "$tmp/out" "$tmp/err" | awk '{ print "    > " $0 }'
    failed=1
}

# shows NAME TEXT: the last command worked and printed a line with this in it
shows() {
    if [ "$rc" -eq 0 ] && grep -qF -e "$2" "$tmp/out"; then echo "ok $1"; else report "$1"; fi
}

# refuses NAME TEXT: it failed, printed nothing and said why
refuses() {
    if [ "$rc" -eq 1 ] && [ ! -s "$tmp/out" ] && grep -qF -e "$2" "$tmp/err"; then echo "ok $1"; else report "$1"; fi
}

printf 'The cat sat on the mat.\nIt rained all day in Berlin.\n' >"$tmp/hyp"
printf 'The cat is sitting on the mat.\nIt rained the whole day in Berlin.\n' >"$tmp/ref"
version=$("$BANYAN" --version | sed 's/^banyan \([0-9.]*\).*/\1/;q')

score "$tmp/hyp" "$tmp/ref"
shows "BLEU as sacreBLEU prints it" "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:banyan-$version = 42.38 85.7/66.7/40.0/25.0 (BP = 0.867 ratio = 0.875 hyp_len = 14 ref_len = 16)"
score --metric chrf,chrf++,rouge "$tmp/hyp" "$tmp/ref"
shows "chrF" "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:banyan-$version = 56.33"
shows "chrF++" "chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:banyan-$version = 59.24"
shows "ROUGE" "rougeL|nrefs:1|stem:no|version:banyan-$version = 76.92 (P = 83.33 R = 71.43)"
score --metric rouge --stem - "$tmp/ref" <"$tmp/hyp"
shows "hypotheses from the input" "rouge1|nrefs:1|stem:yes|version:banyan-$version"
score --sentence --json --metric bleu,rouge "$data/hypotheses.txt" "$data/references1.txt" "$data/references2.txt"
if [ "$rc" -eq 0 ] && [ "$(wc -l <"$tmp/out")" -eq "$(wc -l <"$data/hypotheses.txt")" ] && [ "$(grep -c '^{"bleu":{"score":.*}$' "$tmp/out")" -eq "$(wc -l <"$tmp/out")" ]; then
    echo "ok one object for every line"
else
    report "one object for every line"
fi

printf '\n \n' >"$tmp/blank"
score --metric bleu,chrf,rouge "$tmp/blank" "$tmp/blank"
shows "texts without words: BLEU" " = 0.00 0.0/0.0/0.0/0.0 (BP = 1.000 ratio = 0.000 hyp_len = 0 ref_len = 0)"
shows "texts without words: ROUGE" "rougeLsum|nrefs:1|stem:no|version:banyan-$version = 0.00 (P = 0.00 R = 0.00)"

printf 'one\n' >"$tmp/short"
score "$tmp/hyp" "$tmp/short"
refuses "different numbers of lines" "$tmp/hyp has 2 lines, $tmp/short has 1"
score "$tmp/short" "$tmp/short" "$tmp/ref"
refuses "of the third file too" "$tmp/short has 1 lines, $tmp/ref has 2"
: >"$tmp/none"
score "$tmp/none" "$tmp/none"
refuses "empty files" "$tmp/none has no lines"
score "$tmp/hyp" "$tmp/missing"
refuses "a missing file" "$tmp/missing: "
score "$tmp/hyp" "$tmp"
refuses "a directory" "$tmp is a directory"
printf 'good\nbad \377\n' >"$tmp/bytes"
score --metric rouge "$tmp/hyp" "$tmp/bytes"
refuses "bytes that are not UTF-8" "line 2: reference 1: invalid UTF-8 at byte 5"
printf 'a\000b\nc\n' >"$tmp/nul"
score "$tmp/nul" "$tmp/hyp"
refuses "a NUL character" "$tmp/nul: line 1 contains a NUL character"
score --metric bleu,meteor "$tmp/hyp" "$tmp/ref"
refuses "an unknown metric" '"meteor" is not one of'
score - - <"$tmp/hyp"
refuses "the input twice" "only once"
exit "$failed"
