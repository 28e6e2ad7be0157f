#!/bin/sh
# A demonstration of git-fence with real pushes: a bare repository on a server, pushes with newer and older
# tokens, a stalled push that a newer one has to wait for, and two agents that want to work at the same
# time. Everything happens in a temporary directory, which is removed at the end.
set -eu
exec 2>&1
here=$(cd "$(dirname "$0")" && pwd)
gate=${GIT_FENCE_HOOK:-}
if [ -z "$gate" ]; then
    cargo build --release --locked --manifest-path "$here/Cargo.toml"
    gate=${CARGO_TARGET_DIR:-$here/target}/release/git-fence-hook
fi

PATH=$(dirname "$gate"):$PATH # so that git finds 'git fence'
scene=$(mktemp -d)
trap 'rm -rf "$scene"' EXIT
cd "$scene"
export GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@example.com GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@example.com

say() { printf '\n== %s\n' "$*"; }
push() { # push BRANCH TOKEN
    printf '$ git push server HEAD:%s -o fence-token=%s\n' "$1" "$2"
    git -C work commit -q --allow-empty -m "token $2"
    git -C work push -q "$scene/server.git" "+HEAD:refs/heads/$1" -o "fence-token=$2" || true
}

say "Install the gate in a bare repository"
git init -q --bare -b main server.git
git init -q -b main work
"$gate" install server.git

say "Token 5 lands, 4 is stale, 6 lands"
push main 5
push main 4
push main 6

say "Token 7 stalls between the hook and the ref update; token 8 waits, and both land in order"
cat >server.git/hooks/update <<'SLOW'
#!/bin/sh
case $1 in refs/heads/slow) sleep 2 ;; esac
SLOW
chmod +x server.git/hooks/update
push slow 7 &
while ! "$gate" status server.git | grep -q 'in flight'; do sleep 0.05; done
"$gate" status server.git
push main 8
wait

say "So far the fence took own tokens; only the operator can switch it to leases"
"$gate" tokens lease --reason "switch to leases" server.git

say "Two agents at once, with a lease that lives in the remote: one works, the other skips"
git clone -q server.git one
git clone -q server.git two
cat >agent.sh <<'AGENT'
git commit -q --allow-empty -m "work of $GIT_FENCE_OWNER"
git push -q origin HEAD:main && echo "$GIT_FENCE_OWNER has pushed, with token $GIT_FENCE_TOKEN"
until [ -e ../other-has-left ]; do sleep 0.05; done
git commit -q --allow-empty -m "more work of $GIT_FENCE_OWNER"
git push -q origin HEAD:main && echo "$GIT_FENCE_OWNER has pushed again: each plain git push carries its own token"
AGENT
printf '$ git fence run --owner one -- sh agent.sh\n'
(cd one && git fence run --owner one -- sh ../agent.sh) &
while ! "$gate" status server.git | grep -q "'one'"; do sleep 0.05; done
printf '$ git fence run --owner two -- sh agent.sh\n'
(cd two && git fence run --owner two -- sh ../agent.sh)
touch other-has-left
wait
git -C two fence log

say "Without the lease, no token is accepted any more, however high"
push main 99

say "The log"
"$gate" audit server.git
"$gate" audit verify server.git
