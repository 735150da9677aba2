#!/bin/sh
# docs.sh - make docs: every public function is on the page and has a comment; one without is an error that names it.
. "$(dirname "$0")/lib/common.sh"
own_folder

check "the page is made" make -C "$BANYAN_SOURCE" --no-print-directory docs BUILD="$tmp"
page=$tmp/docs/api.html
# The functions of the library itself, not as the generator reads them.
complete() {
    grep -hv '^#' "$BANYAN_SOURCE"/include/banyan/*.h | tr '\n' ' ' | grep -o 'BY_API [^;]*;' | sed 's/(.*//; s/.*[ *]//' | sort >"$tmp/declared"
    grep -o '<b id="[a-z0-9_]*">' "$page" | sed 's/.*"\(.*\)".*/\1/' | sort >"$tmp/shown"
    [ "$(wc -l <"$tmp/declared")" -gt 250 ] && diff "$tmp/declared" "$tmp/shown"
}
check "with every function" complete
check "and its comments" grep -q 'Finds the span of texts\[i\] that answers questions\[i\]' "$page"
printf '/* x.h - a header. */\n\nBY_API int by_one(void); /* one */\nBY_API int by_two(void);\n\n/* Three. */\nBY_API int by_three(void);\n' >"$tmp/x.h"
awk -f "$BANYAN_SOURCE/tools/api.awk" "$tmp/x.h" >"$tmp/out" 2>"$tmp/err"
rc=$?
check "a function without a comment" [ "$rc" -eq 1 -a "$(cat "$tmp/err")" = "$tmp/x.h: by_two has no comment" ]
