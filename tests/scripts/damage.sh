#!/bin/bash
# Each file of a run folder deleted, cut short, and with one byte changed: the run then either stops and says why, with
# everything else as it was, or goes on to the same bytes as a run left alone.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1
head -c 20000 "$BANYAN_SOURCE"/src/graph/builders.c >text
head -c 1500 text >held
train() { # OUT STEPS
    "$BANYAN" train --data text --eval-data held --eval-batches 2 --tokenizer byte --out "$1" --layers 1 --heads 2 --width 8 \
        --context 8 --batch-size 4 --lr-scheduler constant --warmup-steps 2 --max-steps "$2" --eval-steps 3 --save-steps 2 \
        --save-total-limit 2 --threads 1 --quiet >log 2>&1
}
same() {
    cmp alone/last/model.safetensors "$1/last/model.safetensors" &&
        cmp alone/last/optimizer.safetensors "$1/last/optimizer.safetensors" &&
        cmp alone/last/trainer_state.json "$1/last/trainer_state.json"
}
cut_short() { truncate -s $(($(stat -c %s "$1") / 2)) "$1"; }
flip() { # the byte in the middle
    local at byte
    at=$(($(stat -c %s "$1") / 2))
    byte=$(od -An -tu1 -j $at -N 1 "$1")
    # shellcheck disable=SC2059 # the format is the byte
    printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
# stopped FILE: the last run said in one line what is wrong, and left everything as it was but for the tokenised data.
stopped() {
    [ "$(grep -c '^banyan train: ' log)" -eq 1 ] && diff -r --no-dereference -x .lock -x data -x "events.out*" run before
}
# survives HOW FILE: one of the two outcomes.
survives() {
    local code
    rm -rf run before
    cp -a half run
    "$1" "run/$2" || return 1
    cp -a run before
    train run 8
    code=$?
    echo "$1 $2: $code $(head -n 1 log)" >>outcomes
    case $code in
    0) same run ;;
    1) stopped ;;
    *) return 1 ;;
    esac
}
train alone 8
train half 4
files=$(cd half && find . -type f ! -name .lock ! -name 'events.out*' | sed 's,^\./,,' | sort)
check "there is something to damage" [ "$(wc -w <<<"$files")" -ge 20 ]
for file in $files $(cd half && ls events.out* | head -n 1); do
    for how in rm cut_short flip; do
        check "$how $file" survives $how "$file"
    done
done
for link in last best; do
    check "rm $link" survives rm $link
done
# Damage to what the run goes on from is never passed over in silence.
for file in model.safetensors optimizer.safetensors trainer_state.json config.json tokenizer.json; do
    check "damage to $file of the last checkpoint is reported" \
        eval '[ "$(grep -c "^\(rm\|cut_short\|flip\) checkpoint-000004/$file: .*\(checkpoint\|damaged\)" outcomes)" -eq 3 ]'
done
