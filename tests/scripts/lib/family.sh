# family.sh - what the tests of model families share, besides common.sh. Runs are folders in $tmp.
# shellcheck shell=sh disable=SC2154 # tmp is of common.sh

# same A B [FILE...]: the last checkpoints of two runs have the same bytes, with these files too.
same() {
    local a=$1 b=$2 file
    shift 2
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json "$@"; do
        cmp "$tmp/$a/last/$file" "$tmp/$b/last/$file" || return 1
    done
}

# less A B: both are numbers, and A is below B.
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }'; }

# loss RUN LINE: the training loss on a line of metrics.jsonl.
loss() { sed -n "$2s/.*\"loss\": \\([0-9.]*\\).*/\\1/p" "$tmp/$1/metrics.jsonl"; }

# has RUN TEXT: config.json of the last checkpoint contains a line that matches.
has() { grep -q "$2" "$tmp/$1/last/config.json"; }

# ids N: the token ids of text number N of the last run with --json.
ids() { sed -n "$1s/.*\"ids\":\\(\\[[^]]*\\]\\).*/\\1/p" "$tmp/out"; }

# batched RUN PROMPT PROMPT OPTIONS...: two prompts in one batch give the texts that they give alone.
batched() {
    local dir=$tmp/$1/last a=$2 b=$3 first second
    shift 3
    run generate "$dir" --prompt "$a" --greedy --threads 1 --json "$@"
    first=$(ids 1)
    run generate "$dir" --prompt "$b" --greedy --threads 1 --json "$@"
    second=$(ids 1)
    printf '%s\n%s\n' "$a" "$b" >"$tmp/prompts"
    run generate "$dir" -f "$tmp/prompts" --lines --greedy --threads 1 --json "$@"
    [ -n "$first" ] && [ "$first $second" = "$(ids 1) $(ids 2)" ]
}

# labelled_data: $tmp/labels.tsv, tags.conll and squad.json, which a tiny model can learn.
labelled_data() {
    local i=0
    printf 'text\tlabel\n' >"$tmp/labels.tsv"
    while [ $i -lt 40 ]; do
        printf 'a good film\tgood\na bad book\tbad\n' >>"$tmp/labels.tsv"
        printf 'Anna B-PER\nran O\n\nthe O\ndog O\n\n' >>"$tmp/tags.conll"
        i=$((i + 1))
    done
    cat >"$tmp/squad.json" <<'END'
{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Anna ran home.", "qas": [{"id": "1", "question": "Who?",
 "answers": [{"text": "Anna", "answer_start": 0}]}]}]}]}
END
}

# learns RUN CLASS DATA TASK METRIC OPTIONS...: fine-tuning with this head learns the data, and the result is evaluated.
learns() {
    local from=$1 class=$2 data=$tmp/$3 task=$4 metric=$5 out=$tmp/$1-$4
    shift 5
    run finetune "$tmp/$from/last" --task "$task" --data "$data" --eval "$data" --out "$out" --threads 1 --quiet \
        --learning-rate 3e-3 --epochs 12 --batch-size 8 --json "$@"
    works "$metric" && grep -q "$class" "$out/config.json" || return 1
    run eval "$out" --data "$data" --threads 1 --json
    works "$metric"
}
