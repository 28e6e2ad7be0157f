"""Leases and fenced pushes for Python programs, by way of ``git fence``.

    import git_fence

    with git_fence.lease(remote="origin", owner="nightly", wait="5m") as lease:
        lease.progress("page 3 of 9")
        lease.push("HEAD:main")

One file, Python 3.9 or newer, no dependencies: copy it. It needs git and the programs of git-fence in the PATH.

While the block runs, a ``git fence run`` in the background holds the lease and renews it. A process does that, not a
thread of this program: a thread stops where an extension module keeps the interpreter busy, and cannot give the lease back
when this program is killed. The lease is given back when the block ends, and also when this program dies.

Guaranteed: a push under a lease that has been taken over does not land, however long this program was paused; it raises
``Lost``. Not guaranteed: that the block stops at once when the lease is lost. Call ``lease.check()`` between long steps, or
ask ``lease.is_lost``; ``push`` does it first. A renewal shows that the machine is alive, not that this program gets on:
``stall_after`` and ``max_hold`` bound that.

Every error is a ``GitFenceError`` and has ``outcome``, ``code``, ``message``, ``retryable``, ``holder`` and ``report``: the
fields of the JSON that ``git fence --json`` prints.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any, Dict, List, Mapping, Optional, Sequence, Type, Union

__all__ = [
    "Denied",
    "GitFenceError",
    "Halted",
    "Held",
    "Lease",
    "Lost",
    "Pushed",
    "Refused",
    "Unreachable",
    "lease",
]

#: Seconds, a ``timedelta``, or a text as on the command line: ``"90s"``, ``"1h30m"``.
Duration = Union[int, float, str, datetime.timedelta]

#: The command that runs under the lease: says what its environment is, and stays until it is told to end or this program
#: is gone. A line ends it, too: a fork of this program may keep the pipe open.
_KEEPER = (
    "import json, os, sys; "
    "print(json.dumps(dict(os.environ)), flush=True); "
    "sys.stdin.buffer.raw.read(1)"
)


class GitFenceError(Exception):
    """Something did not work. The subclasses say what; this one is for wrong usage and broken setups."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        super().__init__(report.get("message", "git fence printed no message"))
        #: The whole report.
        self.report: Dict[str, Any] = dict(report)

    @property
    def outcome(self) -> str:
        """What came of it, in a word that never changes."""
        return str(self.report.get("outcome", "broken"))

    @property
    def code(self) -> Optional[str]:
        """The fence's code, if its rules are the reason: ``FENCE-LEASE-HELD``, …"""
        return self.report.get("code")

    @property
    def message(self) -> str:
        """For people, in one line."""
        return str(self)

    @property
    def hint(self) -> Optional[str]:
        """What to do about it."""
        return self.report.get("hint")

    @property
    def retryable(self) -> bool:
        """Whether the same may succeed later."""
        return bool(self.report.get("retryable", False))

    @property
    def holder(self) -> Optional[Dict[str, Any]]:
        """Who holds the lease now: ``owner``, ``token``, ``since``, ``expires_in_ms``, ``progress``, ``mine``."""
        return self.report.get("holder")


class Held(GitFenceError):
    """Another holds the lease, also at the end of the wait. Nothing was taken."""


class Lost(GitFenceError):
    """The lease was lost: another may have continued the work. Stop; another token will not help."""


class Halted(GitFenceError):
    """The operator has halted the fence: nobody gets its lease until it is resumed."""


class Refused(GitFenceError):
    """The push did not land, or only in part, and not because of the lease. ``message`` has the remote's words."""


class Denied(GitFenceError):
    """No right: the remote denies access or writing, or would have to ask for credentials."""


class Unreachable(GitFenceError):
    """The remote cannot be reached or is busy (then nothing has happened), or its answer was lost (``unknown``)."""


_BY_OUTCOME: Dict[str, Type[GitFenceError]] = {
    "held": Held,
    "skipped": Held,
    "timed-out": Held,
    "lost": Lost,
    "not-ours": Lost,
    "stalled": Lost,
    "overran": Lost,
    "halted": Halted,
    "refused": Refused,
    "not-sent": Refused,
    "not-landed": Refused,
    "landed-in-part": Refused,
    "denied": Denied,
    "unreachable": Unreachable,
    "busy": Unreachable,
    "unknown": Unreachable,
}


def _error(report: Mapping[str, Any]) -> GitFenceError:
    """The exception for a report."""
    if report.get("code") == "FENCE-HALTED":
        return Halted(report)
    return _BY_OUTCOME.get(str(report.get("outcome")), GitFenceError)(report)


class Pushed:
    """A push that landed."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        #: The whole report.
        self.report: Dict[str, Any] = dict(report)
        #: The token that it carried.
        self.token: int = report["token"]
        #: The refs that it moved.
        self.moved: List[str] = list(report.get("moved", []))
        #: The refs that were already where they were to go.
        self.up_to_date: List[str] = list(report.get("up_to_date", []))

    def __repr__(self) -> str:
        return f"Pushed(token={self.token}, moved={self.moved!r})"


class Lease:
    """A lease that is held. Made by :func:`lease`; a context manager."""

    def __init__(self, run: "_Run", environment: Dict[str, str], directory: Optional[str], git: str) -> None:
        self._run = run
        self._directory = directory
        self._git = git
        #: The environment under the lease: in it, a plain ``git push`` of any program is fenced.
        self.env: Dict[str, str] = environment
        #: The token at the start. Each push carries a newer one.
        self.token: int = int(environment["GIT_FENCE_TOKEN"])
        #: The id of this ownership.
        self.id: str = environment["GIT_FENCE_LEASE"]
        self.fence: str = environment["GIT_FENCE"]
        self.remote: str = environment["GIT_FENCE_REMOTE"]
        self.owner: str = environment["GIT_FENCE_OWNER"]

    @property
    def is_lost(self) -> bool:
        """Whether the lease is over although it was not released."""
        return self._run.has_ended()

    def check(self) -> None:
        """Raises :class:`Lost` if the lease is over."""
        if self.is_lost:
            raise self._run.failure()

    def push(self, *refspecs: str, force: bool = False, options: Sequence[str] = ()) -> Pushed:
        """Pushes under the lease, all or nothing; without refspecs, the current branch. Raises what came of it."""
        self.check()
        if any(refspec.startswith("-") for refspec in refspecs):
            raise ValueError("a refspec does not start with '-'")
        arguments = ["push", "--json"]
        arguments += ["--force"] if force else []
        arguments += [f"--push-option={option}" for option in options]
        return Pushed(self._command(*arguments, self.remote, *refspecs))

    def progress(self, text: str) -> None:
        """Reports progress. ``git fence status`` shows it, and ``stall_after`` counts from here."""
        self.check()
        self._command("progress", "--json", "--", text)

    def status(self) -> Dict[str, Any]:
        """The report of ``git fence status``: who holds the lease, and how long yet."""
        return self._command("status", "--json")

    def release(self) -> None:
        """Gives the lease back. Raises :class:`Lost` if it was lost before. Done at the end of a ``with`` block."""
        self._run.release()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Any, trace: Any) -> None:
        try:
            self.release()
        except GitFenceError:
            # What the block itself has raised says more.
            if kind is None:
                raise

    def _command(self, *arguments: str) -> Dict[str, Any]:
        command = [self._git, "fence", *arguments]
        try:
            ran = subprocess.run(
                command, cwd=self._directory, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as e:
            raise GitFenceError({"outcome": "broken", "message": f"cannot run '{self._git}': {e}"}) from e
        report = _report_in(ran.stdout) or _without_report(ran.stderr)
        if ran.returncode != 0:
            raise _error(report)
        return report


def lease(
    remote: Optional[str] = None,
    fence: Optional[str] = None,
    *,
    ttl: Optional[Duration] = None,
    owner: Optional[str] = None,
    wait: Optional[Duration] = None,
    reason: Optional[str] = None,
    stall_after: Optional[Duration] = None,
    max_hold: Optional[Duration] = None,
    cwd: Union[str, "os.PathLike[str]", None] = None,
    git: str = "git",
) -> Lease:
    """Takes the lease of ``fence`` in ``remote``, from the clone in ``cwd``, and keeps it until it is released.

    If another holds it, waits up to ``wait`` and then raises :class:`Held`; without ``wait``, raises it at once. What is not
    given is as for ``git fence run``: the remote ``origin``, the fence ``repo``, ``fence.ttl`` and ``fence.owner`` of the
    clone's configuration, or 90 s and user@host.
    """
    arguments = ["run", "--json"]
    arguments += ["--if-held=fail"] if wait is None else ["--if-held=wait", f"--wait={_duration(wait)}", "-E11"]
    values = {"--remote": remote, "--fence": fence, "--owner": owner, "--reason": reason}
    for name, value in {"--ttl": ttl, "--stall-after": stall_after, "--max-hold": max_hold}.items():
        values[name] = None if value is None else _duration(value)
    arguments += [f"{name}={value}" for name, value in values.items() if value is not None]
    directory = None if cwd is None else os.fspath(cwd)
    run = _Run([git, "fence", *arguments, "--", sys.executable or "python3", "-c", _KEEPER], directory)
    return Lease(run, run.environment(), directory, git)


class _Run:
    """The ``git fence run`` that holds the lease, around a keeper that waits for the end."""

    def __init__(self, command: List[str], directory: Optional[str]) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
            )
        except OSError as e:
            self._said.close()
            raise GitFenceError({"outcome": "broken", "message": f"cannot run '{command[0]}': {e}"}) from e
        self._lock = threading.Lock()
        self._is_released = False
        self._report: Optional[Dict[str, Any]] = None

    def environment(self) -> Dict[str, str]:
        """The environment under the lease; waits until there is one."""
        assert self._process.stdout is not None
        try:
            first = self._process.stdout.readline()
        except BaseException:
            # Interrupted while it waits for the lease.
            self._process.terminate()
            self._end()
            raise
        found = _report_in(first)
        if found is None or "GIT_FENCE_TOKEN" not in found:
            self._report = found
            raise self.failure()
        return {str(name): str(value) for name, value in found.items()}

    def has_ended(self) -> bool:
        return not self._is_released and self._process.poll() is not None

    def failure(self) -> GitFenceError:
        """Why the lease is not held."""
        self._end()
        report = self._report or {}
        if report.get("outcome") in ("ran", "interrupted"):
            # The keeper was ended by somebody else; the lease was given back.
            report = {**report, "outcome": "lost", "message": "the process that kept the lease was ended"}
        return _error(report)

    def release(self) -> None:
        """Ends the keeper, and so the run."""
        with self._lock:
            was_lost = self.has_ended()
            if self._is_released:
                return
            self._end()
            self._is_released = True
        outcome = (self._report or {}).get("outcome")
        if was_lost or outcome != "ran":
            raise self.failure()

    def _end(self) -> None:
        """Waits for the end of the run, and takes down what it reported."""
        if self._process.stdout is None or self._process.stdout.closed:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.close()
        except OSError:
            # It has ended.
            pass
        rest = self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait()
        self._said.seek(0)
        self._report = self._report or _report_in(rest) or _without_report(self._said.read())
        self._said.close()


def _report_in(output: bytes) -> Optional[Dict[str, Any]]:
    """The last line that is an object."""
    for line in reversed(output.splitlines()):
        if line.startswith(b"{"):
            try:
                report = json.loads(line)
            except ValueError:
                continue
            return dict(report)
    return None


def _without_report(said: bytes) -> Dict[str, Any]:
    """The report of a program that printed none: git, if it does not know ``git fence``."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return {"outcome": "broken", "message": lines[0] if lines else "git fence printed nothing", "retryable": False}


def _duration(value: Duration) -> str:
    """As on the command line."""
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    if seconds < 0:
        raise ValueError("a duration is not negative")
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"
