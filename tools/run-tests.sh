#!/bin/bash
# run-tests.sh BUILD_DIR [--long] - runs every test and ends with one line of counts.
# Programs are BUILD_DIR/tests/test_* (cmocka), shell tests are tests/scripts/*.sh, which print `ok NAME`,
# `not ok NAME` or `not run NAME: reason`; what they share is in tests/scripts/lib. With --long: tests/long/*.sh instead, and
# the emulated GPU kernels with all samples of the op table rather than a few for every branch.
# The output of a test is shown only when it failed. TEST_TIMEOUT is in seconds of processor time, for one process, so that a
# loaded machine fails no test; a test that waits for something that never comes ends after ten times as long.
# Shell tests find BANYAN (the program), BANYAN_BUILD, BANYAN_SOURCE and BANYAN_SHARED in their environment.
set -u
export LC_ALL=C
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000} # tests share the machine: threads that wait do not spin

if [ $# -lt 1 ] || [ ! -d "$1" ]; then
    echo "usage: tools/run-tests.sh BUILD_DIR [--long]" >&2
    exit 2
fi
build=$(cd "$1" && pwd)
long=${2:-}
cd "$(dirname "$0")/.." || exit 2
root=$PWD
limit=${TEST_TIMEOUT:-$([ -n "$long" ] && echo 7200 || echo 300)}

export BANYAN=$build/banyan BANYAN_BUILD=$build BANYAN_SOURCE=$root
export BANYAN_SHARED=${BANYAN_SHARED:-$root/../shared}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
unset CMOCKA_MESSAGE_OUTPUT CMOCKA_XML_FILE CMOCKA_TEST_FILTER

total_passed=0 total_failed=0 total_skipped=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# Sum the counts of cmocka's groups: "announced passed failed skipped".
count_cmocka() {
    awk '/^\[==========\] (.*: )?Running [0-9]+ test/ { sub(/.*Running /, ""); announced += $1 }
         /^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
         /^\[  FAILED  \] [0-9]+ test/ { failed += $4 }
         /^\[  SKIPPED \] [0-9]+ test/ { skipped += $4 }
         END { print announced + 0, passed + 0, failed + 0, skipped + 0 }' "$log"
}

count_lines() {
    awk '/^ok /      { passed++ }
         /^not ok /  { failed++ }
         /^not run / { skipped++ }
         END { print passed + failed + skipped + 0, passed + 0, failed + 0, skipped + 0 }' "$log"
}

# run_one NAME COUNTER COMMAND...: one program or script, one line of report.
run_one() {
    local name=$1 counter=$2 rc why="" start end announced passed failed skipped
    shift 2
    start=$(date +%s%N)
    (ulimit -S -t "$limit" && exec timeout -k 10 $((10 * limit)) "$@") >"$log" 2>&1 </dev/null
    rc=$?
    end=$(date +%s%N)
    read -r announced passed failed skipped < <($counter)

    # What was announced and never reported did not pass; nor did a program that says nothing or ends badly.
    if [ $((passed + failed + skipped)) -lt "$announced" ]; then
        failed=$((announced - passed - skipped))
        why="stopped before its end"
    elif [ "$announced" -eq 0 ]; then
        failed=$((failed + 1))
        why="printed no count"
    elif [ $rc -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
        why="tests passed, but the program did not end well"
    fi
    case $rc in
    152) why="used more than $limit s of processor time" ;;
    124 | 137) why="did not end within $((10 * limit)) s" ;;
    *) [ -n "$why" ] && [ $rc -ne 0 ] && why="$why, exit status $rc" ;;
    esac

    [ "$failed" -gt 0 ] && cat "$log"
    printf '%-34s %4d passed' "$name" "$passed"
    [ "$failed" -gt 0 ] && printf ', %d FAILED' "$failed"
    [ "$skipped" -gt 0 ] && printf ', %d not run' "$skipped"
    [ -n "$why" ] && printf ' (%s)' "$why"
    printf '  %.1f s\n' "$(((end - start) / 1000000))e-3"
    if [ "$skipped" -gt 0 ]; then
        sed -n -e 's/^not run /    not run: /p' -e '/^\[  SKIPPED \] [0-9]* test(s)/d' \
            -e 's/^\[  SKIPPED \] /    not run: /p' "$log" | sort -u
    fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
}

# run_program NAME [ARGUMENT...]: a program of the build, if it was built
run_program() {
    local name=$1
    shift
    if [ -x "$build/tests/$name" ]; then
        run_one "$name${*:+ $*}" count_cmocka "$build/tests/$name" "$@"
    else
        echo "$name: not built"
        total_skipped=$((total_skipped + 1))
    fi
}

# The sources are the list, so that a program left over from a removed test is not run.
if [ -z "$long" ]; then
    for source in tests/test_*.c; do
        run_program "$(basename "$source" .c)"
    done
    run_program test_cuda_emulated --branches
else
    run_program test_cuda_emulated
fi
run_program test_resident_emulated
run_program test_hopper_emulated ${long:+--all}

if [ -n "$long" ]; then
    scripts=(tests/long/*.sh)
else
    scripts=(tools/check-layers.sh tools/check-names.sh tests/scripts/*.sh)
fi
for script in "${scripts[@]}"; do
    [ -e "$script" ] || continue
    shell='sh'
    head -n 1 "$script" | grep -q bash && shell=bash
    run_one "$(basename "$script")" count_lines $shell "$script"
done

echo "banyan: $total_passed tests passed, $total_failed failed, $total_skipped not run"
[ $total_failed -eq 0 ] && [ $((total_passed + total_skipped)) -gt 0 ]
