#!/usr/bin/env bash
# Makes a Debian package: programs, manual pages, completions, licences. Plain dpkg-deb: cargo-deb would have to be
# built first, for minutes, and does nothing here that takes more than these lines.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    cat <<'USAGE'
usage: packaging/deb.sh [--programs DIR] [--manual DIR] [--out DIR] [--fast]

Builds git-fence and writes git-fence_VERSION_ARCHITECTURE.deb, whose path it prints.

  --programs DIR   pack the programs in DIR instead of building them (target/static: a static package)
  --manual DIR     pack DIR/share, which git-fence-manual has written, instead of building it
  --out DIR        where the package goes [default: target/debian]
  --fast           do not compress, for tests
USAGE
}

fail() { printf '%s\n' "error: $1" "hint: $2" >&2 && exit 1; }

programs='' manual='' out=$root/target/debian level=6
while [ $# -gt 0 ]; do
    case $1 in
    --programs) programs=$2 && shift 2 ;;
    --manual) manual=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --fast) level=0 && shift ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing" "on Debian and Ubuntu it comes with dpkg"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
architecture=$(dpkg --print-architecture)

if [ -z "$programs" ]; then
    (cd "$root" && cargo build --release --locked -p git-fence -p git-fence-stores >&2)
    programs=$root/target/release
fi
if [ -z "$manual" ]; then
    manual=$tree.manual
    trap 'rm -rf "$tree" "$tree.manual"' EXIT
    (cd "$root" && cargo run --release --locked --quiet -p git-fence-manual -- "$manual" >&2)
fi

install -D -m 755 -t "$tree/usr/bin" "$programs"/git-fence "$programs"/git-remote-fence "$programs"/git-fence-hook
# A static build has no program for databases.
[ ! -x "$programs"/git-fence-store ] || install -m 755 -t "$tree/usr/bin" "$programs"/git-fence-store

mkdir -p "$tree/usr/share"
cp -r "$manual/share/." "$tree/usr/share/"
# Debian's zsh looks for completions of packages here.
mv "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +

doc=$tree/usr/share/doc/git-fence
install -D -m 644 -t "$doc" "$root"/LICENSE-MIT "$root"/LICENSE-APACHE "$root"/README.md
cp -r "$root/docs" "$doc/docs"
gzip -9nc "$root/CHANGELOG.md" >"$doc/changelog.gz"
cat >"$doc/copyright" <<COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: git-fence

Files: *
Copyright: the authors of git-fence
License: MIT or Apache-2.0
 Either the MIT licence, in LICENSE-MIT beside this file, or the Apache licence 2.0,
 in LICENSE-APACHE, as you like.
COPYRIGHT

# What the programs ask the C library for; a static program asks for nothing.
depends='git (>= 1:2.39)'
if grep -aq 'GLIBC_2\.' "$tree"/usr/bin/*; then
    libc=$(grep -aohE 'GLIBC_2\.[0-9]+' "$tree"/usr/bin/* | sed 's/GLIBC_//' | sort -uV | tail -n 1)
    depends="$depends, libc6 (>= $libc), libgcc-s1"
fi

find "$tree" -type d -exec chmod 755 {} +
find "$tree/usr/share" -type f -exec chmod 644 {} +
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: git-fence
Version: $version
Architecture: $architecture
Maintainer: the authors of git-fence <git-fence@localhost>
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Depends: $depends
Recommends: man-db
Section: vcs
Priority: optional
Description: fencing tokens for git
 Lets agents, cron jobs and CI bots push to a shared repository without stepping
 on each other. A lease says whose turn it is, every push carries a token that
 grows, and the server refuses a push whose token is too old: the check and the
 update of the refs are one step.
CONTROL

mkdir -p "$out"
package=$out/git-fence_${version}_${architecture}.deb
# The same sources make the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
dpkg-deb --root-owner-group -Zgzip -z"$level" --build "$tree" "$package" >/dev/null
printf '%s\n' "$package"
