#!/usr/bin/env bash
# Builds programs that need no library of the machine they run on: musl, linked statically.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(uname -m)-unknown-linux-musl

if ! rustc --print sysroot --target "$target" >/dev/null 2>&1 ||
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    command -v rustup >/dev/null || {
        printf '%s\n' "error: Rust's library for $target is missing" \
            "hint: install it with your distribution's packages, or use rustup (https://rustup.rs)" >&2
        exit 1
    }
    rustup target add "$target"
fi
cargo build --release --locked --target "$target"
mkdir -p target/static
cp -f "target/$target/release/git-fence" "target/$target/release/git-remote-fence" \
    "target/$target/release/git-fence-hook" target/static/
ls -l target/static
