#!/bin/sh
# first_hour.sh - what a newcomer meets: finished runs, progress lines, labelled tables as input, folders without a
# tokenizer or with a pipe in them, captions of pictures, and counts that agree.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 2

# ---- a tiny BERT ---------------------------------------------------------------------------------------------------
mkdir words
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'
    printf '%s\n' good bad fine awful film book the a
} >words/vocab.txt
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >words/tokenizer_config.json
i=0
while [ $i -lt 30 ]; do
    echo "a good film . a bad book . the fine film . the awful book ."
    i=$((i + 1))
done >text.txt
set -- --model bert --objective mlm --data text.txt --tokenizer words --layers 2 --heads 8 --width 32 --inner 32 --context 24 \
    --batch-size 4 --threads 1 --out bert
run train "$@" --max-steps 20 --log-every 10 --eval-steps 20
check "--log-every thins the printed lines" [ "$(grep -c '^train ' err)" -eq 2 ]
check "and the log" [ "$(wc -l <bert/metrics.jsonl)" -eq 2 ]
run train "$@" --max-steps 20
check "a finished run names --max-steps and --overwrite" eval 'works model && grep -q "already has its 20 steps.*--max-steps.*--overwrite" err'

# ---- starting from it ------------------------------------------------------------------------------------------------
run train --init-from bert --objective mlm --data text.txt --threads 1 --batch-size 4 --max-steps 1 --out next
check "--init-from takes a run folder" works model
run train --init-from runs/none --data text.txt --out none
check "a model to start from that is not there" fails 1 "runs/none: no such directory"
run train --tokenizer bert-base-uncased --data text.txt --out none
check "a tokenizer that is not there" fails 1 "tokenizer bert-base-uncased: no such directory"
run train --model bert --data text.txt --tokenizer words --width 32 --heads 8 --context 24 --max-steps 1 --out none
check "text without documents names the objective mlm" fails 1 "the objective mlm"
run train --resume bert --max-steps 10
check "a shorter run is refused" fails 1 "extended, not shortened"

# ---- a classifier and labelled tables --------------------------------------------------------------------------------
i=0
while [ $i -lt 16 ]; do
    printf 'a good film\tpos\na bad film\tneg\nthe fine book\tpos\nthe awful book\tneg\n'
    i=$((i + 1))
done >train.tsv
set -- --data train.tsv --threads 1 --max-steps 12 --learning-rate 5e-3 --dropout 0 --out c
run finetune bert "$@" --logging-steps 6
check "finetune thins its lines" eval 'works model && [ "$(grep -c "^tune " err)" -eq 2 ]'
run finetune bert "$@"
check "a finished fine-tuning too" eval 'works model && grep -q "already has its 12 steps.*--max-steps.*--overwrite" err'

printf 'the good book\nthe bad book\n' >lines.txt
run classify c -f lines.txt --json --threads 1
cp out expected
# reads FILE NOTE: classify gives what the plain lines gave, and tells what it read.
reads() {
    run classify c -f "$1" --json --threads 1
    works label && cmp out expected && grep -q -e "$2" err
}
printf 'sentence\tlabel\nthe good book\tpos\nthe bad book\tneg\n' >named.tsv
check "a table with a header" reads named.tsv 'named.tsv: 2 rows; with a header, text column 1 "sentence", label column 2'
printf 'the good book\tpos\nthe bad book\tneg\n' >bare.tsv
check "a table without one, whose last column has labels" reads bare.tsv 'bare.tsv: 2 rows; no header, text column 1, label column 2'
printf 'label,text\npos,"the good book"\nneg,the bad book\n' >named.csv
check "commas and quotes" reads named.csv 'text column 2 "text"'
printf 'text\nthe good book\nthe bad book\n' >texts.csv
check "no labels" reads texts.csv 'texts.csv: 2 rows; with a header, text column 1'
printf '{"text": "the good book", "label": "pos"}\n{"text": "the bad book", "label": "neg"}\n' >named.jsonl
check "JSON lines" reads named.jsonl 'named.jsonl: 2 rows'
printf 'the good book\tthe film\nthe bad book\ta film\n' >pairs.tsv
run classify c -f pairs.tsv --json --threads 1
check "pairs stay pairs, which is told" eval 'works "\"pair\":\"the film\"" && grep -q "separates a text from its pair" err'
printf 'the good book,x\nthe bad book,y\n' >odd.csv
check "a table without a header or known labels" reads odd.csv 'odd.csv: 2 rows; no header, text column 1'

# ---- convert, inspect ------------------------------------------------------------------------------------------------
cp -r c piped && rm piped/config.json && mkfifo piped/config.json
run convert piped copy -q
check "convert: a pipe instead of config.json" eval 'fails 1 "piped/config.json: it is not a regular file" && [ ! -e copy ]'
cp -r c dangling && rm -f dangling/tokenizer.json && ln -s nowhere dangling/tokenizer.json
run convert dangling copy -q
check "convert: a link to nothing" eval 'fails 1 "dangling/tokenizer.json" && [ ! -e copy ]'
run convert c copy -q --json
tensors=$(sed 's/.*"tensors":\([0-9]*\).*/\1/' out) elements=$(sed 's/.*"elements":\([0-9]*\).*/\1/' out)
run inspect c --json
check "inspect counts what convert counts" eval 'works "\"stored_tensors\":$tensors,\"stored_elements\":$elements,"'
if command -v python3 >/dev/null 2>&1; then
    # A head beside its tied table, and a buffer: the file has more than the model.
    python3 - "$BANYAN_SOURCE/tests/data/verify/gpt2" more <<'PY'
import json, os, shutil, struct, sys
src, out = sys.argv[1:]
os.mkdir(out)
shutil.copy(src + "/config.json", out)
data = open(src + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
body = data[8 + n:]
name = next(k for k in head if k.endswith("wte.weight"))
a, b = head[name]["data_offsets"]
head["lm_head.weight"] = dict(head[name], data_offsets=[len(body), len(body) + b - a])
body += body[a:b]
text = json.dumps(head).encode()
open(out + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
    run convert more dry -n --json
    tensors=$(sed 's/.*"tensors":\([0-9]*\).*/\1/' out)
    run inspect more
    check "inspect tells where a file has more" eval 'works "stored as f32 in more: $tensors tensors, .*repeated tied tensors"'
fi

# ---- a model without a tokenizer -------------------------------------------------------------------------------------
printf 'a good film\ta fine film\na bad film\tan awful film\nthe book\ta book\n' >pairs.tsv
run train --model transformer --data pairs.tsv --eval-data pairs.tsv --tokenizer bpe:60 --layers 1 --heads 2 --width 16 --max-steps 2 --threads 1 --quiet --out t
cp -rL t/last bare && rm -f bare/tokenizer.json bare/vocab.json bare/*.txt
run translate bare "a film" --threads 1
check "translate without a tokenizer names generate --ids" eval 'fails 1 tokenizer && grep -q "hint: .*banyan generate bare --ids" err'
run generate bare --ids --beams 2 -p "5 6 2" -n 4 --threads 1
check "which works" works '^[0-9]'

# ---- pictures --------------------------------------------------------------------------------------------------------
run attention bert --threads 1 -o heads.svg 'a good film the bad book'
check "captions are whole" eval 'works heads.svg && ! grep -q "…<" heads.svg'
exit $failed
