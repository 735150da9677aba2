#!/bin/bash
# A disk that fills up: a clear message, exit 1, the checkpoint before it whole; with room again the run goes on to the
# same bytes. The small disk is a tmpfs in a mount namespace of our own; besides that, a limit on the size of files.
. "$(dirname "$0")/lib/common.sh"

# train OUT STEPS [KIB]: a tiny run, no file of which may be larger than so many KiB. What it says passes through a
# pipe, for a log would be such a file.
train() {
    (
        [ $# -eq 3 ] && ulimit -f "$3"
        exec "$BANYAN" train --data text --eval-data held --tokenizer byte --out "$1" --layers 1 --heads 2 --width 16 \
            --context 16 --batch-size 4 --warmup-steps 5 --lr-scheduler constant --max-steps "$2" --eval-steps 5 \
            --threads 1 --quiet 2>&1
    ) | cat >log
    return "${PIPESTATUS[0]}"
}

# The checkpoint of step 10 is the last one, byte for byte, opens, and nothing half-written lies around.
intact() { # OUT
    diff -r "$1/last/" kept && [ "$(readlink "$1/last")" = checkpoint-000010 ] || return 1
    "$BANYAN" generate "$1/last" "a" --max-new-tokens 2 --threads 1 || return 1
    ! find "$1" -name 'unfinished*' -o -name '*.tmp-*' -o -name '.*-new' | grep .
}

refused() { # REASON OUT STEPS [KIB]: the run cannot go on, and says why in one line
    local reason=$1 code
    shift
    train "$@"
    code=$?
    [ $code -eq 1 ] && grep -q "$reason" log && [ "$(wc -l <log)" -eq 1 ] && intact "$1"
}

same() { # OUT
    cmp "$1/last/model.safetensors" alone/last/model.safetensors &&
        cmp "$1/last/optimizer.safetensors" alone/last/optimizer.safetensors &&
        sed 's/^{"step": \([0-9]*\),.*/\1/' "$1/metrics.jsonl" | cmp - <(seq 20)
}
goes_on() { train "$1" 20 && same "$1"; }

# Leave so many KiB free on ./small.
leave() {
    local free
    rm -f small/filler
    free=$(df -k --output=avail small | tail -n 1)
    head -c $(((free - $1) * 1024)) /dev/zero >small/filler
}

no_room_to_start() { # REASON
    local code
    rm -rf small/new
    train small/new 20
    code=$?
    [ $code -eq 1 ] && grep -q "$1" log && ! [ -e small/new/data/train.bin ] &&
        ! find small/new -name '*.tmp-*' | grep .
}

# On disks that are too small for the start of a run, no file of events is left that has nothing in it.
no_empty_events() {
    local size
    mkdir tight && printf '{"prompt": "a"}\n{"prompt": "b"}\n' >prompts.jsonl
    for size in 4 8 12 16; do
        mount -t tmpfs -o size=${size}k none tight || return 1
        "$BANYAN" align alone --method grpo --reward length:2 --data prompts.jsonl --max-new-tokens 2 --max-steps 2 --threads 1 --quiet \
            --out tight/new && return 1
        find tight -name '*tfevents*' -size 0 | grep . && return 1
        umount tight
    done
}

on_small_disk() {
    mount -t tmpfs -o size=1m none small || exit 1
    train small/run 10 || exit 1
    cp -r small/run/last/ kept
    for room in 0 4 8 16 24 40 60 80; do
        leave $room
        check "$room KiB left: refused, and nothing is lost" refused "No space left on device" small/run 20
    done
    leave 4
    check "no room to begin" no_room_to_start "No space left on device"
    check "no empty files of events" no_empty_events
    rm -rf small/filler small/new
    check "with room again it goes on" goes_on small/run
}

small_files() {
    trap '' XFSZ # so that a write beyond the limit fails instead of ending the process
    for limit in 0 1 8 24; do
        rm -rf run && cp -a start run
        check "files of at most $limit KiB: refused, and nothing is lost" refused "File too large" run 20 $limit
    done
    check "without the limit it goes on" goes_on run
}

if [ "${1:-}" = on_small_disk ]; then
    on_small_disk
    exit
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" && mkdir small || exit 1
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 3000 text >held
if ! train alone 20 || ! train start 10; then
    echo "not ok a run to compare with"
    exit 1
fi

script=$BANYAN_SOURCE/tests/scripts/disk.sh
if unshare -m sh -c 'mount -t tmpfs none small' 2>/dev/null; then
    unshare -m bash "$script" on_small_disk
elif unshare -rm sh -c 'mount -t tmpfs none small' 2>/dev/null; then
    unshare -rm bash "$script" on_small_disk
else
    echo "not run a full disk: mounting a small one is not permitted here"
fi
rm -rf kept && cp -r start/last/ kept
small_files
