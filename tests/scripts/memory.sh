#!/bin/sh
# Allocations that fail anywhere in the process, oneDNN and the C++ library included: the program ends with a message
# about memory or gets through; no signal. BANYAN_FAILURES: how many random failures of each kind (default 40).
. "$(dirname "$0")/lib/common.sh"

failures=${BANYAN_FAILURES:-40}
preload=$BANYAN_BUILD/tests/libfail-allocations.so
if [ ! -e "$preload" ]; then
    echo "not run allocations that fail: there is no $preload (it needs glibc and no sanitizer)"
    exit 0
fi
own_folder
cd "$tmp" || exit 2
seq 1 300 | sed 's/$/ brown foxes jump over the lazy dog/' >text

generate() { "$BANYAN" generate model/last -p "1 brown fox" --max-new-tokens 3 --seed 1 --threads 2; }
train() {
    "$BANYAN" train --data text --tokenizer char --layers 1 --heads 2 --width 32 --context 16 --batch-size 4 \
        --max-steps 2 --out "$1" --threads 2 --quiet
}

# attack KIND COMMAND...: one run of the command under the failure, which ends well or with a word on memory.
attack() {
    local kind=$1
    shift
    (
        export "BANYAN_FAIL_$kind" LD_PRELOAD="$preload"
        exec >>log 2>&1
        "$@"
    )
    rc=$?
    [ $rc -eq 0 ] && return 0
    [ $rc -eq 1 ] && grep -qi 'memory' log
}

# attacks KIND COMMAND...: as many as asked for, at random places.
attacks() {
    local kind=$1 i=0 total
    shift
    rm -rf count run
    BANYAN_FAIL_COUNT=count LD_PRELOAD=$preload "$@" >log 2>&1 || return 1
    total=$(cat count)
    [ "$total" -gt 1000 ] || return 1
    awk -v n="$failures" -v total="$total" -v seed="$total" \
        'BEGIN { srand(seed); for (i = 0; i < n; i++) print int(rand() * total) }' >places
    while read -r i; do
        rm -rf run
        : >log
        attack "$kind=$i" "$@" || {
            echo "allocation $i of $total: exit code $rc"
            return 1
        }
    done <places
    [ -s places ]
}

train model >log 2>&1 || { echo "not ok a model to attack"; exit 1; }
check "one failed allocation in generate" attacks AT generate
check "no memory from a point on in generate" attacks FROM generate
check "one failed allocation in train" attacks AT train run
check "no memory from a point on in train" attacks FROM train run
exit $failed
