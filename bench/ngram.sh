#!/bin/sh
# ngram.sh TEXT - n-gram models beside KenLM, as Markdown tables: estimation of a 5-gram model (wall time, CPU time, peak memory), queries
# of the same text, and whether the results are the same. <unk>, <s> and </s> are taken out of the text first. Programs take turns; the
# best of ROUNDS (3) counts, by CPU time and by wall time.
# Environment: BUILD (build), KENLM (a folder with lmplz, build_binary and query), ORDER (5), MEMORY (2G), THREADS (1), WORK (a new
# folder in TMPDIR).
#
#   ngram.sh --budget TEXT [COPIES]   a text COPIES times as long (30), with the words of each line in another order: peak memory of
#                                     estimation with MEMORY, and with ten times as much on the text itself whether the result is the same
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
banyan=$PWD/${BUILD:-build}/banyan
order=${ORDER:-5} memory=${MEMORY:-2G} threads=${THREADS:-1} rounds=${ROUNDS:-3}
work=${WORK:-$(mktemp -d)} && mkdir -p "$work" || exit 1
budget=
[ "${1:-}" = --budget ] && budget=1 && shift
text=${1:?a text is needed}

# timed NAME COMMAND...: adds a line "wall cpu kilobytes" to NAME.times
timed() {
    name=$1
    shift
    /usr/bin/time -f '%e %U %S %M' -o "$work/one" "$@" >"$work/$name.out" 2>"$work/$name.err" || {
        echo "$name failed: $(tail -n 1 "$work/$name.err")" >&2
        exit 1
    }
    awk '{ print $1, $2 + $3, $4 }' "$work/one" >>"$work/$name.times"
}

# row TITLE NAME...: the best wall time, CPU time and the peak memory of programs that follow each other
row() {
    title=$1
    shift
    for name in "$@"; do
        awk 'NR == 1 { w = $1; c = $2 } { if ($1 < w) w = $1; if ($2 < c) c = $2; if ($3 > m) m = $3 } END { print w, c, m }' "$work/$name.times"
    done | awk -v t="$title" '{ w += $1; c += $2; if ($3 > m) m = $3 } END { printf "| %s | %.2f | %.2f | %.0f |\n", t, w, c, m / 1024 }'
}

estimate() { # NAME OUT TEXT MEMORY OPTIONS...
    name=$1 out=$2 source=$3 size=$4
    shift 4
    timed "$name" "$banyan" train --model ngram --order "$order" --skip-symbols --data "$source" --out "$out" --overwrite --quiet \
        --memory "$size" --threads "$threads" --temporary "$work" "$@"
}

echo "$(uname -m), $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg); $(basename "$text"), $(wc -c <"$text") bytes, $(wc -w <"$text") words; order $order, $threads threads, budget $memory"
echo

if [ "$budget" ]; then
    copies=${2:-30}
    cp "$text" "$work/long"
    for i in $(seq 2 "$copies"); do
        awk -v seed="$i" 'BEGIN { srand(seed) } { for (i = NF; i > 1; i--) { k = 1 + int(rand() * i); t = $i; $i = $k; $k = t } print }' "$text"
    done >>"$work/long"
    estimate long "$work/long-model" "$work/long" "$memory"
    estimate small "$work/small" "$text" "$memory"
    estimate tight "$work/tight" "$text" 64M
    echo "| $(wc -c <"$work/long") bytes | wall s | CPU s | peak MiB |"
    echo "|---|---|---|---|"
    row "Banyan, budget $memory" long
    cmp -s "$work/small/ngram.bin" "$work/tight/ngram.bin" && echo && echo "With a budget of 64M the model of the text itself is the same file."
    rm -f "$work/long"
    exit
fi

kenlm=${KENLM:?set KENLM to the folder of lmplz, build_binary and query}
sed -e 's/<unk>//g' -e 's/<s>//g' -e 's#</s>##g' "$text" >"$work/text" && text=$work/text
for i in $(seq "$rounds"); do
    estimate banyan "$work/model" "$text" "$memory"
    estimate banyan-arpa "$work/model" "$text" "$memory" --arpa "$work/banyan.arpa"
    timed lmplz sh -c "'$kenlm/lmplz' -o $order --skip_symbols -S $memory -T '$work/' --arpa '$work/kenlm.arpa' <'$text'"
    timed build_binary "$kenlm/build_binary" -T "$work/" probing "$work/kenlm.arpa" "$work/kenlm.bin"
    timed eval "$banyan" eval "$work/model" "$text" --threads 1 --quiet --json
    timed query sh -c "'$kenlm/query' -v summary '$work/kenlm.bin' <'$text'"
done
echo "| estimation | wall s | CPU s | peak MiB |"
echo "|---|---|---|---|"
row "Banyan: binary" banyan
row "Banyan: ARPA file and binary" banyan-arpa
row "lmplz: ARPA file" lmplz
row "lmplz and build_binary: ARPA file and probing binary" lmplz build_binary
echo
echo "| queries of $(sed -n 's/^Tokens:[^0-9]*//p' "$work/query.out") words, 1 thread | wall s | CPU s | peak MiB |"
echo "|---|---|---|---|"
row "Banyan: eval" eval
row "KenLM: query, probing" query
echo
echo "n-grams: $(grep -a '^ngram ' "$work/banyan.arpa" | cut -d = -f 2 | tr '\n' ' ')and $(grep -a '^ngram ' "$work/kenlm.arpa" | cut -d = -f 2 | tr '\n' ' ')"
echo "perplexity: $(sed 's/.*"perplexity":\([0-9.]*\).*/\1/' "$work/eval.out") and $(sed -n 's/^Perplexity including OOVs:[^0-9]*//p' "$work/query.out")"
