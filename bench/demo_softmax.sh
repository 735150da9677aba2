#!/bin/sh
# demo_softmax.sh - why attention divides the scores by sqrt(D): the gradient that passes softmax, by D, with and without
# the factor. Runs examples/saturation.c, prints its table and draws the gradients. A second.
#   bench/demo_softmax.sh [OUT.svg]
# Environment: BUILD (build), DEVICE (cpu).
set -eu
cd "$(dirname "$0")/.."
out=${1:-softmax.svg}
program=${BUILD:-build}/examples/saturation
[ -x "$program" ] || { echo "demo_softmax.sh: $program is not there: ninja -C ${BUILD:-build} example-saturation" >&2; exit 1; }
table=$("$program" "${DEVICE:-cpu}")
printf '%s\n' "$table"
printf '%s\n' "$table" | awk 'NR > 2 { print "scaled-by-1/sqrt(D)", $1, $3; print "not-scaled", $1, $5 }' |
    awk -v title="Gradient of the scores through softmax, 64 keys" -v xlabel="D, width of a head" \
        -v ylabel="norm of the gradient" -v logx=1 -v logy=1 -f bench/plot.awk >"$out"
echo "curves: $out"
