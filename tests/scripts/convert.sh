#!/bin/bash
# convert.sh - `banyan convert` and `banyan inspect` on files from outside: types, shards, what comes along, what a kill, a full disk
# or a limit on files leaves behind.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"

gone() { [ ! -e "$1" ] && [ -z "$(ls -d "$1".unfinished-* 2>/dev/null)" ] && ! find . -name '*.tmp-*' | grep .; }
same() { cmp "$1/model.safetensors" run/last/model.safetensors; }

on_small_disk() {
    mount -t tmpfs -o size=256k none small || exit 1
    for room in 0 4 20 60 100; do
        rm -rf small/*
        head -c $((256 * 1024 - room * 1024)) /dev/zero >small/filler
        run convert run/last small/out -q
        check "a full disk, $room KiB left: refused, nothing is left" eval 'fails 1 "No space left" && gone small/out'
        run convert run/last/model.safetensors small/one.safetensors -q
        check "a full disk, $room KiB left, one file" eval 'fails 1 "No space left" && gone small/one.safetensors'
    done
    rm -rf small/*
    run convert run/last small/out -q
    check "with room it works" eval 'works wrote && same small/out'
}
if [ "${1:-}" = on_small_disk ]; then
    on_small_disk
    exit
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" && mkdir small || exit 1
printf 'the quick brown fox jumps over the lazy dog %d\n' $(seq 200) >text
run train --data text --tokenizer byte --eval-fraction 0 --layers 2 --heads 2 --width 32 --context 16 --max-steps 2 --threads 1 --out run --quiet
check "a model to convert" [ -s run/last/model.safetensors ]

# ---- types and files ---------------------------------------------------------------------------------------------------
run convert run copy -q
check "a run folder" eval 'works "^wrote copy: 28 tensors" && same copy'
check "the other files come along" eval 'cmp copy/tokenizer.json run/last/tokenizer.json && cmp copy/config.json run/last/config.json &&
    [ ! -e copy/optimizer.safetensors ] && [ ! -e copy/trainer_state.json ]'
run convert copy half --dtype bf16 -q
check "bf16" eval 'works "as bf16" && grep -q "\"dtype\": \"bfloat16\"" half/config.json'
run inspect half/model.safetensors
check "bf16 inspected" works 'transformer.wte.weight *bf16'
check "bf16 sums up" works '28 tensors, .* elements, .*bf16.*safetensors, 1 file'
run convert half back --dtype f32 -q
run generate back --prompt the -n 8 --greedy --threads 1
cp out first
run generate half --prompt the -n 8 --greedy --threads 1 --dtype f32
check "bf16 and back generate the same" cmp out first
run convert copy shards --shard-size 40kB --json
check "shards" eval 'works "\"files\":[2-9]" && [ -s shards/model.safetensors.index.json ]'
run inspect shards/model.safetensors.index.json
check "an index inspected" works '28 tensors, .*safetensors, [2-9] files'
run inspect shards --json
check "a sharded model inspected" works '"metadata":{"format":"pt"}.*"tokenizer":{"kind":"byte"'
run convert shards joined -q
check "shards joined again" same joined
run convert copy two.safetensors --dtype f16 -q
check "into one file" eval 'works wrote && [ -s two.safetensors ]'
run convert copy dry --shard-size 10KB --dry-run
check "a dry run" eval 'works "^would write dry" && gone dry'

# ---- sentence-transformers: the folders that modules.json names --------------------------------------------------------
cp -r copy sentences && mkdir sentences/1_Pooling sentences/other
modules() {
    printf '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "name": "1", "path": "%s", "type": "sentence_transformers.models.Pooling"},
 {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]\n' "$1" >sentences/modules.json
}
modules 1_Pooling
echo '{"word_embedding_dimension": 32, "pooling_mode_max_tokens": true}' >sentences/1_Pooling/config.json
touch sentences/1_Pooling/pytorch_model.bin sentences/other/file
run convert sentences vectors -q
check "the folders of modules come along" eval 'works wrote && cmp vectors/1_Pooling/config.json sentences/1_Pooling/config.json &&
    [ ! -e vectors/1_Pooling/pytorch_model.bin ] && [ ! -e vectors/other ]'
run embed sentences 'the quick fox' --threads 1
cp out first
run embed vectors 'the quick fox' --threads 1
check "and the copy embeds the same" eval 'works . && cmp out first'
for path in ../copy . .. /tmp 1_Pooling/deep; do
    modules "$path"
    run convert sentences outside -q
    check "a module at $path is refused" eval 'fails 1 "modules.json: the path" && gone outside'
done

# ---- PyTorch files -----------------------------------------------------------------------------------------------------
data=$BANYAN_SOURCE/tests/data/torch
for kind in zip stream protocol4 nested; do
    run convert "$data/$kind.bin" $kind.safetensors -q
    cp out said
    run inspect $kind.safetensors
    check "a .bin file ($kind)" eval 'grep -q "10 tensors" said && works "^b *f32 *(6, 4)"'
done
check "all four are the same file" eval 'cmp zip.safetensors stream.safetensors && cmp zip.safetensors protocol4.safetensors &&
    cmp zip.safetensors nested.safetensors'
run inspect "$data/zip.bin"
check "a .bin file inspected" eval 'works "^b  *f32 *(6, 4) .*strided" && works "PyTorch zip, 1 file"'
run inspect "$data/stream.bin" --json
check "a .bin file as JSON" works '"format":"PyTorch stream".*"name":"a","dtype":"f32","shape":\[2,3\],"bytes":24'
run convert "$data/deflated.bin" bomb
check "a compressed record is refused" eval 'fails 1 "compressed" && gone bomb'
printf 'PK\3\4 and nothing more' >broken.bin
run convert broken.bin broken
check "a broken archive is refused" eval 'fails 1 "broken.bin: the zip archive has no end" && gone broken'
printf '\200\002cos\nsystem\n(X\004\000\000\000trueR.' >evil.bin
run inspect evil.bin
check "a pickle that would call os.system" fails 1 'evil.bin: the file refers to os.system'

# ---- what is wrong -----------------------------------------------------------------------------------------------------
run convert copy half
check "a directory with something in it" fails 1 'half exists and is not empty'
run convert nothing out-dir
check "no such input" fails 1 nothing
run convert copy
check "OUT is missing" eval '[ $rc -eq 2 ] && grep -q OUT err'
run convert copy x --dtype f8
check "an unknown type" fails 2 dtype
run convert copy x --shard-size 5XB
check "a size that is none" fails 2 'such as 500MB'
run convert copy x.safetensors --shard-size 5GB
check "shards into a file" fails 1 'directory'
head -c 5000 copy/model.safetensors >cut.safetensors
run convert cut.safetensors x
check "a file cut short" eval 'fails 1 "cut.safetensors" && gone x'
run inspect small
check "an empty directory" fails 1 'small'

# ---- interruptions -----------------------------------------------------------------------------------------------------
# kill -9 at any moment: either nothing under the name or all of it.
whole() { [ -e killed ] || return 0; "$BANYAN" inspect killed >/dev/null && diff -r killed shards; }
for delay in 0.001 0.002 0.004 0.008 0.016 0.03; do
    rm -rf killed
    "$BANYAN" convert copy killed --shard-size 40kB -q >/dev/null 2>&1 &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    whole || break
done
check "kill -9 leaves nothing or everything" whole
rm -rf killed
mkdir killed.unfinished-999999999 killed.unfinished-$$ && touch killed.unfinished-$$/x
run convert copy killed --shard-size 40kB -q
check "what a process that lives is writing is left alone" [ -e killed.unfinished-$$/x ]
rm -r killed.unfinished-$$
check "and the next one finishes" eval 'works wrote && whole && [ -z "$(ls -d killed.unfinished-* 2>/dev/null)" ]'

run convert copy narrow -q --dtype bf16
"$BANYAN" generate narrow --ids -p "1 2" -n 1 --greedy --threads 1 >out 2>err
check "16-bit weights that are widened are announced" grep -q '^narrow: bf16 weights are converted to f32.*--dtype bf16' err
"$BANYAN" generate narrow --ids -p "1 2" -n 1 --greedy --threads 1 --dtype bf16 >out 2>err
check "and not when they are used as they are" eval '[ -s out ] && ! grep -q widened err'
"$BANYAN" generate copy --ids -p "1 2" -n 1 --greedy --threads 1 >out 2>err
check "nor are those of f32" eval '[ -s out ] && ! grep -q widened err'
run convert copy other.bin -q
check "another kind of file is refused" eval 'fails 1 "other.bin: .*ends in .safetensors" && [ ! -e other.bin ]'

small_files() {
    trap '' XFSZ
    (
        ulimit -f 16
        "$BANYAN" convert copy limited -q 2>&1
    ) | cat >err
    rc=${PIPESTATUS[0]}
    grep -q "File too large" err && gone limited
}
check "a limit on the size of files" small_files

script=$BANYAN_SOURCE/tests/scripts/convert.sh
if unshare -m sh -c 'mount -t tmpfs none small' 2>/dev/null; then
    unshare -m bash "$script" on_small_disk
elif unshare -rm sh -c 'mount -t tmpfs none small' 2>/dev/null; then
    unshare -rm bash "$script" on_small_disk
else
    echo "not run a full disk: mounting a small one is not permitted here"
fi
