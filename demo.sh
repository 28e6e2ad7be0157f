#!/bin/sh
# git-fence at work, for real: a server's bare repository, pushes with newer and older tokens, a stalled
# push that a newer one has to wait for, and two agents that want to work at the same time. Everything
# happens in a directory that is removed.
set -eu
exec 2>&1
here=$(cd "$(dirname "$0")" && pwd)
gate=${GIT_FENCE_HOOK:-}
if [ -z "$gate" ]; then
    cargo build --release --locked --manifest-path "$here/Cargo.toml"
    gate=${CARGO_TARGET_DIR:-$here/target}/release/git-fence-hook
fi

PATH=$(dirname "$gate"):$PATH # where git finds  git fence
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

say "A bare repository, and the gate in front of it"
git init -q --bare -b main server.git
git init -q -b main work
"$gate" install server.git

say "Token 5 lands, 4 is too old, 6 lands"
push main 5
push main 4
push main 6

say "Token 7 stalls between the hook and its refs; token 8 waits for it, and they land in order"
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

say "So far tokens came from elsewhere, and only the operator lets a fence change over to leases"
"$gate" tokens lease --reason "from here on with leases" server.git

say "Two agents at once, under a lease that lives in the remote: one works, the other leaves"
git clone -q server.git one
git clone -q server.git two
cat >agent.sh <<'AGENT'
git commit -q --allow-empty -m "work of $GIT_FENCE_OWNER"
git push -q origin HEAD:main && echo "$GIT_FENCE_OWNER has pushed, with token $GIT_FENCE_TOKEN"
until [ -e ../other-has-left ]; do sleep 0.05; done
git commit -q --allow-empty -m "more work of $GIT_FENCE_OWNER"
git push -q origin HEAD:main && echo "$GIT_FENCE_OWNER has pushed again: each plain git push carries a token of its own"
AGENT
printf '$ git fence run --owner one -- sh agent.sh\n'
(cd one && git fence run --owner one -- sh ../agent.sh) &
while ! "$gate" status server.git | grep -q "'one'"; do sleep 0.05; done
printf '$ git fence run --owner two -- sh agent.sh\n'
(cd two && git fence run --owner two -- sh ../agent.sh)
touch other-has-left
wait
git -C two fence log

say "Nobody writes here without the lease any more, whatever number they pick"
push main 99

say "What the log says"
"$gate" audit server.git
"$gate" audit verify server.git
