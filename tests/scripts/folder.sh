#!/bin/bash
# A run folder: the run removes and replaces nothing but what it wrote itself, finds its newest whole checkpoint, and
# says what is wrong where it cannot go on.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 3000 text >held
steps=12 data=text shape="--layers 1 --heads 2 --width 16 --context 16"

# train OUT OPTIONS...: a tiny run with checkpoints at steps 4, 6 (the best), 8 and 12. What it says goes to ./log.
train() {
    local out=$1
    shift
    # shellcheck disable=SC2086 # several options
    "$BANYAN" train --data "$data" --eval-data held --eval-batches 2 --tokenizer byte --out "$out" $shape --batch-size 4 --warmup-steps 5 --lr-scheduler constant --max-steps "$steps" \
        --eval-steps 6 --save-steps 4 --save-total-limit 3 --threads 1 --quiet "$@" >log 2>&1
}
train alone
part() { (steps=8 && rm -rf "$1" && train "$@"); } # OUT: two thirds of it
same() { # OUT
    local file
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json; do
        cmp "alone/last/$file" "$1/last/$file" || return 1
    done
}
says() { grep -q -e "$1" log; }
# refused TEXT OUT OPTIONS...: the run stops with this message, and the folder is as it was, but for tokenised data.
refused() {
    local text=$1 out=$2 code
    shift
    rm -rf before
    [ -e "$out" ] && cp -a "$out" before
    train "$@"
    code=$?
    [ $code -eq 1 ] || return 1
    if [ -e before ]; then
        diff -r --no-dereference -x .lock -x data "$out" before || return 1
    else
        [ ! -e "$out" ] || return 1
    fi
    says "$text"
}

# ---- files of others -------------------------------------------------------------------------------------------

foreign() { # OUT: put things there that look like a run's
    mkdir -p "$1/data" "$1/averaged" "$1/sub/checkpoint-000004"
    cp text "$1/data/corpus.txt"
    echo notes >"$1/averaged/notes"
    echo mine | tee "$1/thesis.tmp-1" "$1/run.json.tmp-x" "$1/.draft-new" "$1/data/a.tmp-12" "$1/sub/checkpoint-000004/x" >/dev/null
}
foreign_there() { # OUT
    cmp text "$1/data/corpus.txt" && [ "$(cat "$1/averaged/notes")" = notes ] || return 1
    [ "$(cat "$1/thesis.tmp-1" "$1/run.json.tmp-x" "$1/.draft-new" "$1/data/a.tmp-12" "$1/sub/checkpoint-000004/x" |
        sort -u)" = mine ]
}
foreign run
data=run/data/corpus.txt
check "a run in a folder with files of others" eval '(steps=8 && train run) && foreign_there run'
check "it goes on" eval 'train run && same run && foreign_there run'
check "--overwrite leaves them" eval 'train run --overwrite && same run && foreign_there run'
check "--overwrite without the input leaves everything" refused "no such file" run --data missing.txt --overwrite
check "--overwrite with a tokenizer that cannot be read" refused "nowhere" run --tokenizer nowhere --overwrite
check "--overwrite that asks for too much context" refused "exceed the model.s context" run --seq 64 --overwrite
check "after that the run is still there" eval 'train run && same run'
check "averaged/ of somebody else" refused "run/averaged is in the way" run --average 2 --overwrite
check "what the run made cannot be the start of its successor" \
    eval '(shape="" && refused "belongs to the run" run --init-from run/last --overwrite)'
check "nor its tokenised data" refused "belongs to the run" run --data run/data/train.bin --overwrite

data=text
part run
mkdir run/checkpoint-000012
echo mine >run/checkpoint-000012/weights
check "a checkpoint of somebody else" refused "run/checkpoint-000012 is in the way" run
check "with --overwrite too" refused "run/checkpoint-000012 is in the way" run --overwrite
rm -r run/checkpoint-000012
check "without it the run goes on" eval 'train run && same run'

mkdir -p mixed/data && echo mine >mixed/data/train.json
check "tokens would replace a file" refused "mixed/data/train.json is in the way" mixed
rm -rf mixed && mkdir mixed && echo mine >mixed/metrics.jsonl
check "metrics would replace a file" refused "mixed/metrics.jsonl is in the way" mixed

part run
echo mine >run/checkpoint-000004/notes
check "notes in a checkpoint outlive it" eval 'train run --save-total-limit 1 && same run &&
    [ "$(ls run/checkpoint-000004)" = notes ] && [ ! -e run/checkpoint-000008 ]'

# ---- a start that fails leaves nothing ----------------------------------------------------------------------------

check "no folder for data that are not there" refused "no such file" new/deeper/run --data missing.txt
check "nor its parents" [ ! -e new ]
check "no folder for a model that cannot be" refused "exceed the model.s context" new/run --seq 64
check "no tokens of it either" [ ! -e new ]
mkdir -p kept && echo mine >kept/file
check "a folder that was there stays, with what it holds" refused "exceed the model.s context" kept --seq 64

# ---- copies, lost links, damage -----------------------------------------------------------------------------------

part whole
copy() { rm -rf run && cp -a whole run; }
goes_on() { train run && same run && [ "$(readlink run/last)" = checkpoint-000012 ] && says "$1"; }
copy && rm run/last
check "no last: the newest whole checkpoint" goes_on "continuing from checkpoint-000008"
copy && find run -type l -delete
check "a copy without links" goes_on "continuing from checkpoint-000008"
rm -rf run && cp -rL whole run
check "a copy with directories for links" goes_on "12 steps\|4 steps"
check "they are links again" [ -L run/best ]
rm -rf run && cp -rL whole run && rm -r run/checkpoint-*
check "a copy of last and best alone" eval 'train run && same run'
copy && rm run/last/trainer_state.json
check "a lost state: the checkpoint before" goes_on "trainer_state.json.*continuing from checkpoint-000006"
copy && truncate -s 40 run/last/trainer_state.json
check "half a state: the checkpoint before" goes_on "continuing from checkpoint-000006"
copy && rm run/checkpoint-*/trainer_state.json
check "no state at all: nothing is touched" refused "no checkpoint is complete" run
check "--overwrite is the way out" eval 'train run --overwrite && same run'
flip() { # FILE OFFSET: change one byte
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059 # the format is the byte
    printf "$(printf '\\%03o' $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
copy && flip run/last/model.safetensors $(($(stat -c %s run/last/model.safetensors) - 5))
check "a damaged weight is named" refused 'model.safetensors: tensor ".*damaged.*remove run/checkpoint-000008' run
check "and the advice works" eval 'rm -r run/checkpoint-000008 && goes_on "continuing from checkpoint-000006"'
copy && flip run/last/optimizer.safetensors $(($(stat -c %s run/last/optimizer.safetensors) - 5))
check "a damaged moment is named" refused 'optimizer.safetensors: tensor "moment.*damaged' run

# ---- logs never end a run ------------------------------------------------------------------------------------------------

copy && rm run/metrics.jsonl run/loss.svg && mkdir run/metrics.jsonl run/loss.svg
check "no metrics and no curve: a warning each, and the same model" eval '
    train run && same run && [ "$(grep -c "training continues without" log)" -eq 2 ]'

# ---- folders of older versions ---------------------------------------------------------------------------------------

old() { # OUT: without the list, without checksums
    local file
    rm -f "$1/owned.json"
    sed -i '/"checksum"/d; s/\("data": .*\)/\1/' "$1/run.json"
    # the member before it is now the last
    awk '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) { if (i == NR - 1) sub(/,$/, "", line[i]); print line[i] } }' \
        "$1/run.json" >run.json && mv run.json "$1/run.json"
    for file in "$1"/checkpoint-*/trainer_state.json; do
        sed -n '2,4p; 5s/,$//p' "$file" | sed '1i {' >state && echo '}' >>state && mv state "$file"
    done
}
same_weights() { cmp alone/last/model.safetensors run/last/model.safetensors; }
copy && old run
check "a folder of an older version goes on" eval 'train run && same_weights && [ -s run/owned.json ]'
copy && old run && foreign run
check "and is replaced, without files of others" eval 'train run --overwrite && same run && foreign_there run'
rm -rf run && cp -rL whole run && old run
check "a copy of it with directories for links" eval 'train run && same_weights && [ -L run/last ]'

# ---- models -------------------------------------------------------------------------------------------------------------

cp -rL alone/best model && rm model/optimizer.safetensors model/trainer_state.json
printf 'label\ttext\na\tone\nb\ttwo\na\tthree\nb\tfour\n' >table.tsv
cp -a model model.before
tune() { "$BANYAN" finetune "$@" --data table.tsv --max-steps 2 --batch-size 2 --threads 1 --quiet >log 2>&1; }
spared() { diff -r model model.before; }
check "finetune into the model it reads is refused" eval '! tune model -o model && says "another folder" && spared'
check "also with --overwrite" eval '! tune model -o ./model/ --overwrite && says "another folder" && spared'
check "finetune into another model is refused" eval '! tune alone/best -o model && says "model/.* is in the way" && spared'
check "also with --overwrite" eval '! tune alone/best -o model --overwrite && says "model/.* is in the way" && spared'
check "finetune twice into one folder" eval 'tune model -o tuned && tune model -o tuned --overwrite && [ -s tuned/config.json ]'
learn() { "$BANYAN" train-tokenizer --kind bpe --vocab-size 300 text --quiet "$@" >log 2>&1; }
check "train-tokenizer into a model is refused" eval '! learn --out model && says "already holds a model" && spared'
check "train-tokenizer over a file is refused" eval 'learn --out t.json && ! learn --out t.json && says "exists"'
check "train-tokenizer --overwrite does it" eval 'learn --out t.json --overwrite && learn --out model --overwrite && ! spared'
