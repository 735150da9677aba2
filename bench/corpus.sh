#!/bin/sh
# corpus.sh FILE [MEGABYTES] - a text of this size (100) out of what a Debian machine has: manual pages in all their languages,
# documentation and changelogs, Python sources, and the corpora of BANYAN_SHARED where they are. Real text with many different words; the
# same machine gives the same file. Valid UTF-8, as the peer needs it.
set -eu
export LC_ALL=C
out=$1
size=$((${2:-100} * 1000000))
shared=${BANYAN_SHARED:-$(dirname "$0")/../../shared}

# Through UTF-16, which has no room for what other programs refuse. Programs disagree about control characters, so they go, and
# so does the last line, which is cut.
clean() {
    iconv -f utf-8 -t utf-16le -c | iconv -f utf-16le -t utf-8 -c | tr -d '\000-\010\013\014\016-\037' | sed '$d'
}

# take BYTES DIRECTORY PATTERN: the first bytes of all such files, in the order of their names
take() {
    find "$2" -type f -name "$3" ! -name '*.pdf.gz' ! -name '*.ps.gz' -size -3000k 2>/dev/null | sort | xargs -r -d '\n' zcat -f 2>/dev/null | head -c "$1"
}

{
    cat "$shared"/data/corpora/*.txt "$shared"/data/tasks/multi30k/train.* 2>/dev/null || true
    take $((size * 40 / 100)) /usr/share/man '*.gz'
    take $((size * 25 / 100)) /usr/share/doc '*.gz'
    take $((size * 10 / 100)) /usr/share/doc '*.html'
    take "$size" /usr/lib/python3 '*.py'
    take "$size" "${PYTHON_SOURCES:-/usr/lib}" '*.py'
} 2>/dev/null | head -c "$size" | clean >"$out.tmp" || true
mv "$out.tmp" "$out"
