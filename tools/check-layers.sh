#!/bin/sh
# check-layers.sh - checks which room of src/ includes which, directly and through the public headers. Prints each violation as
# file:line, and a last line `ok layers` or `not ok layers`, so that it also serves as a shell test.
cd "$(dirname "$0")/.." || exit 1

# shellcheck disable=SC2016 # $0 belongs to awk
if ! find src include -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.inc' -o -name '*.def' \) | LC_ALL=C sort |
    xargs -r awk '
BEGIN {
    # room -> the rooms it may include, in addition to itself.
    may["base"]   = ""
    may["graph"]  = "base"
    may["cpu"]    = "base graph"
    may["cuda"]   = "base graph"
    may["nn"]     = "base graph"
    may["models"] = "base graph nn"
    may["io"]     = "base"
    may["model"]  = "base graph nn models io"
    may["text"]   = "base"
    may["chat"]   = "base text"
    may["score"]  = "base text"
    may["data"]   = "base graph text chat model image"
    may["report"] = "base image"
    may["ngram"]  = "base text data"
    may["image"]  = "base"
    may["train"]  = "base image graph nn models model text chat score data io report infer ngram"
    may["infer"]  = "base image graph nn models model text chat score data io ngram"
    may["align"]  = "base graph nn models model text chat score data io report train infer"
    may["verify"] = "base align chat ngram image graph nn models model text data io train infer"
    may["server"] = "base graph nn models model text chat score data io train infer report"
    may["cli"]    = "base align chat image ngram graph nn models model text score data io train infer verify report server"

    # public header -> the room that implements it. An include of it counts as an include of that room.
    of["base"] = "base"
    of["graph"] = "graph"
    of["model"] = of["pass"] = of["adapter"] = "model"
    of["model_io"] = "models"
    of["stream"] = "nn"
    of["reader"] = "model"
    of["examples"] = of["picture_set"] = "data"
    of["weights"] = "io"
    of["tokenizer"] = of["train_tokenizer"] = "text"
    of["chat"] = "chat"
    of["score"] = "score"
    of["ngram"] = "ngram"
    of["image"] = of["augment"] = "image"
    of["train"] = of["finetune"] = of["image_tasks"] = "train"
    of["generate"] = of["rewrite"] = of["predict"] = of["embed"] = of["evaluate"] = of["inspect"] = of["pixels"] = "infer"
    of["verify"] = "verify"
    of["align"] = of["align_run"] = of["align_policy"] = of["distill"] = "align"
    of["banyan"] = "cli" # all of them
}
FNR == 1 {
    split(FILENAME, part, "/")
    room = part[2]
    if (part[1] == "include") {
        header = part[3]
        sub(/\.h$/, "", header)
        if (!(header in of)) {
            printf "%s: no room is known for this header\n", FILENAME
            bad++
        }
        room = of[header]
    }
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    path = $0
    sub(/^[^"]*"/, "", path)
    sub(/".*/, "", path)
    if (path ~ /^\.\.?\//) {
        printf "%s:%d: \"%s\": write the path from src/\n", FILENAME, FNR, path
        bad++
        next
    }
    target = path
    if (!sub(/\/.*/, "", target))
        next
    if (target == "banyan") {
        header = path
        gsub(/^banyan\/|\.h$/, "", header)
        target = of[header]
    }
    if (!(target in may) || target == room)
        next
    if (!(room in may)) {
        printf "%s:%d: src/%s is not a room of the design\n", FILENAME, FNR, room
        bad++
    } else if (index(" " may[room] " ", " " target " ") == 0) {
        printf "%s:%d: %s may not include %s (\"%s\")\n", FILENAME, FNR, room, target, path
        bad++
    }
}
END { exit bad > 0 }'; then
    echo "not ok layers"
    exit 1
fi

# Conversions between text and floating point follow the locale of the host program: base/number.c has those that do
# not, and base/json.c the parser. The program itself never sets a locale.
raw='(^|[^_[:alnum:]])(v?sn?printf|strto(d|f|ld)|atof|setlocale|cJSON_(Parse|Print)[A-Za-z]*) *\(|sscanf *\([^"]*"[^"]*%[0-9]*l*[aefgAEFG]'
found=$(find src -type f -name '*.[ch]' ! -path 'src/cli/*' ! -path 'src/base/number.c' ! -path 'src/cuda/*' -print0 | LC_ALL=C sort -z |
    xargs -0 grep -nE "$raw" | grep -vE ':[0-9]+: *(/?\*|//)' | grep -vE '^src/base/json\.c:[0-9]+:.*cJSON_ParseWithLengthOpts')
found="$found$(grep -rnE '(^|[^_[:alnum:]])setlocale *\(' src/cli src/cuda)"
if [ -n "$found" ]; then
    echo "$found"
    echo "not ok layers: numbers as text go through base_format, base_strtod and base_json_tree, which no locale changes"
    exit 1
fi
echo "ok layers"
