//! The faults of a push, and the points where they happen.

use super::rng::Rng;
use crate::support::World;
use std::fs;

/// The point of a push where a fault happens. At each of these a hook of the server looks for an instruction that
/// names the pushed commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// In a pre-receive hook that was installed before the gate, and is now its first child.
    BeforeGate,
    /// Between the gate and the refs.
    Update,
    /// The refs are locked and about to move.
    Prepared,
    /// They have moved.
    Committed,
    /// The client has been told.
    PostReceive,
}

impl Point {
    fn name(self) -> &'static str {
        match self {
            Point::BeforeGate => "before-gate",
            Point::Update => "update",
            Point::Prepared => "prepared",
            Point::Committed => "committed",
            Point::PostReceive => "post-receive",
        }
    }
}

/// The fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    StopReceivePack,
    KillReceivePack,
    StopHook,
    KillHook,
    StopClient,
    /// The client disconnects in the middle of its push.
    KillClient,
    /// The hook is slow.
    Slow,
}

impl Deed {
    fn name(self) -> &'static str {
        match self {
            Deed::StopReceivePack => "stop receive-pack",
            Deed::KillReceivePack => "kill receive-pack",
            Deed::StopHook => "stop hook",
            Deed::KillHook => "kill hook",
            Deed::StopClient => "stop client",
            Deed::KillClient => "cut (kill client)",
            Deed::Slow => "slow",
        }
    }

    /// The shell code of the fault, in a hook that knows the pids.
    fn script(self, millis: u64) -> String {
        let seconds = format!("{}.{:03}", millis / 1000, millis % 1000);
        // The process that stops another one also continues it; it keeps no pipe open.
        let stop = |whom: &str| {
            format!("(sleep {seconds}; kill -CONT {whom}) </dev/null >/dev/null 2>&1 5>&- &\nkill -STOP {whom}")
        };
        match self {
            Deed::StopReceivePack => stop("$receive_pack"),
            Deed::KillReceivePack => "kill -KILL $receive_pack".to_owned(),
            Deed::StopHook => stop("$PPID"),
            Deed::KillHook => "kill -KILL $PPID".to_owned(),
            Deed::StopClient => stop("$client"),
            Deed::KillClient => "kill -KILL $client".to_owned(),
            Deed::Slow => format!("sleep {seconds}"),
        }
    }
}

/// A planned fault of a push.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) point: Point,
    pub(crate) deed: Deed,
    millis: u64,
}

impl Order {
    /// Six of seven pushes have one.
    pub(crate) fn draw(rng: &mut Rng) -> Option<Order> {
        if rng.one_in(7) {
            return None;
        }
        let point = rng.pick(&[
            Point::BeforeGate,
            Point::Update,
            Point::Update,
            Point::Prepared,
            Point::Prepared,
            Point::Committed,
            Point::PostReceive,
        ]);
        let anywhere = [
            Deed::StopReceivePack,
            Deed::StopReceivePack,
            Deed::StopReceivePack,
            Deed::StopClient,
            Deed::KillReceivePack,
            Deed::KillClient,
            Deed::Slow,
            Deed::Slow,
        ];
        let deed = match point {
            Point::BeforeGate => rng.pick(&[Deed::StopHook, Deed::KillHook, Deed::KillReceivePack, Deed::KillClient]),
            _ => rng.pick(&anywhere),
        };
        Some(Order { point, deed, millis: rng.between(20, 600) })
    }

    /// Writes it where the hooks of the server find it.
    pub(crate) fn leave(&self, world: &World, commit: &str) {
        let Order { point, deed, millis } = *self;
        let dir = world.server().join("orders");
        let text = format!("echo '{} at {}' >>faults\n{}\n", deed.name(), point.name(), deed.script(millis));
        fs::write(dir.join("new").with_extension(commit), text).unwrap();
        fs::rename(dir.join("new").with_extension(commit), dir.join(format!("{}-{commit}", point.name()))).unwrap();
    }
}

/// Executes an instruction for `$1` and one of the words after it. Each is executed once.
///
/// `receive_pack` is the nearest ancestor of that name; the client is its parent.
const OBEY: &str = r#"
obey() {
    point=$1; shift
    for word; do
        order=orders/$point-$word
        [ -e "$order" ] || continue
        mv "$order" "orders/done-$point-$word" || continue
        receive_pack=$PPID
        while [ "$receive_pack" -gt 1 ] && ! tr '\0' ' ' <"/proc/$receive_pack/cmdline" | grep -q '^[^ ]*git-receive-pack \|^[^ ]*git receive-pack '; do
            receive_pack=$(cut -d' ' -f4 "/proc/$receive_pack/stat")
        done
        [ "$receive_pack" -gt 1 ] || continue
        client=$(cut -d' ' -f4 "/proc/$receive_pack/stat")
        # A receive-pack whose client is gone has another parent.
        tr '\0' ' ' <"/proc/$client/cmdline" | grep -q ' push \|send-pack\|remote-fence' || client=$receive_pack
        . "./orders/done-$point-$word"
    done
}
"#;

/// Undoes some of the pushes, as merge queues and mirrors do: `$1` to `$3` are a line of post-receive.
///
/// The commit, or the name of the deleted ref, decides which ones, so that a seed is reproducible. A ref is changed
/// only from the value that this push has set: a ref that another push has moved is not touched in any case.
const UNDO: &str = r#"
undo_with() {
    done=$1; shift
    CHAOS_RESETS=1 git update-ref "$@" 2>/dev/null && echo "$done by post-receive" >>faults
}
undo() {
    case $3 in refs/heads/gone/*[2468]) undo_with 'reset' "$3" "$1" "$2"; return;; refs/heads/gone/*) return;; esac
    case $3 in refs/heads/*) ;; *) return;; esac
    case $2/$1 in
        [0-7]*/0000000000*|8*) undo_with 'deleted' -d "$3" "$2";;
        [0-7]*) undo_with 'reset' "$3" "$1" "$2";;
    esac
}
"#;

/// Makes the server record ref updates, execute instructions and undo pushes. Call it before installing the gate.
pub(crate) fn listen(world: &World, before_gate: bool) {
    fs::create_dir(world.server().join("orders")).unwrap();
    let hook = |name: &str, body: &str| world.write_hook(name, &format!("{OBEY}{body}"));
    if before_gate {
        hook("pre-receive", "obey before-gate $(cut -d' ' -f2); exit 0");
    }
    hook("update", "obey update $3\ncase $1 in */declined) echo 'not here' >&2; exit 1;; esac; exit 0");
    hook(
        "post-receive",
        &format!(
            "{UNDO}lines=$(cat)\n\
             obey post-receive $(echo \"$lines\" | cut -d' ' -f2)\n\
             echo \"$lines\" | while read -r old new ref; do undo $old $new \"$ref\"; done; exit 0"
        ),
    );
    // With the refs locked: the planned updates and the values of all refs. One write of one block, so
    // that blocks of different pushes do not mix. A process that resets refs says so in its environment. If any part
    // of the hook is killed, nothing may move, because it would not be recorded.
    hook(
        "reference-transaction",
        "case $1 in prepared|committed) ;; *) exit 0;; esac\n\
         moves=$(cat) || exit 1\n\
         if [ $1 = prepared ]; then\n\
         seen=$(git for-each-ref --format='at %(objectname) %(refname)' refs/heads/raw refs/heads/leased) || exit 1\n\
         kind=transaction; [ -z \"$CHAOS_RESETS\" ] || kind=reset\n\
         printf '%s\\n%s\\n%s\\nend\\n' $kind \"$moves\" \"$seen\" >>moves\n\
         fi\n\
         [ -z \"$CHAOS_RESETS\" ] || exit 0\n\
         obey $1 $(echo \"$moves\" | cut -d' ' -f2); exit 0",
    );
}
