#!/bin/bash
# Runs from a folder alone and from a file of options: what is recorded is what is repeated.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 3000 text >held
banyan() { "$BANYAN" "$@" >log 2>&1; }
same() { # A B
    cmp "$1/last/model.safetensors" "$2/last/model.safetensors" && cmp "$1/last/trainer_state.json" "$2/last/trainer_state.json"
}
says() { grep -q -e "$1" log; }
at() { [ "$(readlink "$1/last")" = "checkpoint-$2" ]; }
small="--data text --eval-data held --eval-batches 2 --tokenizer byte --layers 1 --heads 2 --width 16 --context 16 -b 4
    --lr-scheduler linear --learning-rate 1.5e-3 --beta2 0.95 --save-steps 4 --threads 1 --quiet"
# shellcheck disable=SC2086 # several options
train() { banyan train $small "$@"; }

train --out alone --max-steps 12
cp -a alone done
check "a finished run, by its folder alone" eval 'banyan train --out alone && says "nothing left to do" && same alone done'
check "the same by --resume" eval 'banyan train --resume alone && says "nothing left to do"'
check "its options, for another folder" eval 'banyan train --config alone/run.json --out again -q && same alone again'
check "what is given wins" eval 'banyan train --config alone/run.json --out other --seed 3 -q && ! same alone other'
check "lists are replaced, not joined" eval 'banyan train --config alone/run.json --out fewer --data held -q &&
    tr -d " \n" <fewer/run.json | grep -q "\"data\":\[\"held\"\]"'

# shellcheck disable=SC2086 # several options
"$BANYAN" train $small --out cut --max-steps 1000000 >log.cut 2>&1 &
pid=$!
for _ in $(seq 200); do
    [ -e cut/last ] && break
    sleep 0.05
done
kill -KILL $pid
wait $pid 2>/dev/null
check "a killed run goes on from its folder" eval '
    banyan train --resume cut --max-steps 2000000 --patience 1 --eval-steps 1 --no-quiet; says "continuing from step"'
check "and has been extended" grep -q '"steps": 2000000' cut/run.json

check "a run is extended from its folder" eval 'banyan train --resume alone --max-steps 20 && at alone 000020'
check "that is recorded" eval 'grep -q "\"max-steps\": *20" alone/run.json && banyan train --resume alone && says "nothing left"'
check "fewer steps are refused" eval '! banyan train --resume alone --max-steps 10 && says "has 20 steps"'

cat >options.json <<'END'
{"data": "text", "eval-data": ["held"], "eval_batches": 2, "tokenizer": "byte", "layers": 1, "heads": 2, "width": 16,
 "context": 16, "batch-size": 4, "lr-scheduler": "linear", "lr": 1.5e-3, "beta2": 0.95, "save-steps": 4, "threads": 1,
 "quiet": true, "max-steps": 12, "out": "file", "seed": null}
END
check "options from a file" eval 'banyan train --config options.json && same done file'
sed 's/"layers"/"layer"/' options.json >wrong.json
check "an option that does not exist is named" eval '! banyan train --config wrong.json && says "\"layer\" is not an option.*layers"'
sed 's/"layers": 1/"layers": {}/' options.json >wrong.json
check "a value that is none is named" eval '! banyan train --config wrong.json && says "\"layers\" must be"'
sed 's/"layers": 1/"layers": 1.5/' options.json >wrong.json
check "a value out of range too" eval '! banyan train --config wrong.json && says "layers must be a whole number"'
check "a file that is not there" eval '! banyan train --config none.json && says "none.json"'
check "a folder without a run" eval 'mkdir empty && ! banyan train --resume empty && says "is not a run folder" && [ -z "$(ls -A empty)" ]'
check "a folder that is not there" eval '! banyan train --resume none && says "is not a run folder" && [ ! -e none ]'
check "neither data nor a run" eval '! banyan train --out nothing && says "no data" && [ ! -e nothing ]'
check "of another verb" eval '! banyan finetune --resume alone && says "belongs to banyan train"'
check "two folders" eval '! banyan train --resume alone --out elsewhere && says "omit --out"'

cp -rL done/last model && rm model/optimizer.safetensors model/trainer_state.json
printf 'label\ttext\na\tone\nb\ttwo\na\tthree\nb\tfour\n' >table.tsv
tune() { banyan finetune model --data table.tsv --batch-size 2 --threads 1 --quiet "$@"; }
check "fine-tuning, by its folder alone" eval 'tune --max-steps 2 -o tuned && banyan finetune --resume tuned && says "nothing left"'
check "extended" eval 'banyan finetune --resume tuned --max-steps 5 --quiet && at tuned 000005 && grep -q "\"steps\": 5" tuned/run.json'
check "for another folder" eval 'banyan finetune --config tuned/run.json -o tuned2 && at tuned2 000005'

# ---- from another directory: paths are those of the directory in which the run was started -----------------------------
mkdir data elsewhere
split -n 3 text data/part.
cp -r model data/model
"$BANYAN" train --data 'data/part.*,held' --eval-data held --tokenizer data/model --layers 1 --heads 2 --width 16 --context 16 \
    -b 4 --max-steps 2 --threads 1 --quiet --out far >log 2>&1
away() { (cd elsewhere && "$BANYAN" "$@" --threads 1 --quiet >../log 2>&1); }
check "goes on from another directory" eval 'away train --resume ../far && says "nothing left"'
check "and is extended there" eval 'away train --resume ../far --max-steps 4 && at far 000004'
check "its paths are absolute then" grep -q "$tmp/data/part" far/run.json
check "and back" eval 'banyan train --resume far --max-steps 5 && at far 000005'
check "fine-tuning too" eval 'away finetune --resume ../tuned --max-steps 6 && at tuned 000006'
check "its options for another run" eval 'away train --config ../far/run.json --max-steps 2 --out near && [ -e elsewhere/near/last ]'
check "data that are gone are named" eval 'mv held gone; ! away train --resume ../far --max-steps 6 && says "held" && mv gone held'
