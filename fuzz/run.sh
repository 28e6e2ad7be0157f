#!/bin/sh
# Runs all fuzz targets, or the named ones, one after the other:
#
#     ./fuzz/run.sh [seconds] [target]...
#
# Coverage-guided (libFuzzer), with the pinned stable toolchain: without a sanitizer, whose runtime needs
# nightly, but with debug assertions and overflow checks. Needs a C++ compiler and
# `cargo install cargo-fuzz --locked`. Findings are in fuzz/artifacts/<target>/.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' Cargo.toml)
failed=
for target; do
    mkdir -p "corpus/$target"
    echo "== $target, $seconds s"
    if cargo fuzz run --fuzz-dir . --sanitizer none --debug-assertions "$target" \
        "corpus/$target" "seeds/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=5 -print_final_stats=1 2>"corpus/$target.log"; then
        grep -aE 'DONE|number_of_executed_units|average_exec' "corpus/$target.log"
    else
        tail -n 40 "corpus/$target.log"
        failed="$failed $target"
    fi
done
[ -z "$failed" ] || { echo "findings in:$failed"; exit 1; }
