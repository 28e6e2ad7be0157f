"""Tests of git_fence.py against the programs. They must be in the PATH, with git."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import git_fence

#: How long a test waits for a condition before it fails. Nothing is measured.
GIVE_UP = 120


def run(*command: object, cwd: object = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


def wait_until(condition) -> None:
    end = time.monotonic() + GIVE_UP
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


class LeaseTest(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="git-fence-python-")
        self.addCleanup(self._directory.cleanup)
        self.root = pathlib.Path(self._directory.name)
        self.server = self.root / "server.git"
        run("git", "init", "-q", "--bare", "-b", "main", self.server)
        self.one, self.two = self.clone("one"), self.clone("two")
        run("git-fence-hook", "install", self.server)

    def clone(self, name: str) -> pathlib.Path:
        run("git", "clone", "-q", self.server, name, cwd=self.root)
        self.commit(self.root / name, f"work of {name}")
        return self.root / name

    def commit(self, clone: pathlib.Path, message: str) -> None:
        run("git", "commit", "-q", "--allow-empty", "-m", message, cwd=clone)

    def subject(self, branch: str) -> str:
        return run("git", "log", "-1", "--format=%s", branch, cwd=self.server)

    def status(self) -> dict:
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                ["git", "fence", "status", "--json"], cwd=self.two, stdout=subprocess.PIPE, stderr=said, check=True
            )
        return git_fence._report_in(done.stdout) or {}

    def test_push_lands_under_the_lease_which_is_given_back(self) -> None:
        run("git", "config", "fence.owner", "nightly", cwd=self.one)
        with git_fence.lease("origin", ttl=600, cwd=self.one) as lease:
            self.assertEqual((lease.fence, lease.remote, lease.owner, lease.token), ("repo", "origin", "nightly", 1))
            self.assertEqual(self.status()["holder"]["owner"], "nightly")
            lease.progress("page 3 of 9")
            pushed = lease.push("HEAD:main")
            self.assertEqual((pushed.token, pushed.moved), (1, ["refs/heads/main"]))
            self.commit(self.one, "more")
            self.assertEqual(lease.push("HEAD:main", "HEAD:refs/heads/copy").token, 2)
            self.assertTrue(lease.status()["holder"]["mine"])
            self.assertFalse(lease.is_lost)
        self.assertEqual((self.subject("main"), self.subject("copy")), ("more", "more"))
        self.assertEqual(self.status()["outcome"], "free")
        lease.release()

    def test_plain_push_in_the_environment_of_the_lease_is_fenced(self) -> None:
        with git_fence.lease(cwd=self.one, ttl="10m") as lease:
            subprocess.run(["git", "push", "-q", "origin", "HEAD:main"], cwd=self.one, env=lease.env, check=True)
        self.assertEqual(self.subject("main"), "work of one")

    def test_held_names_the_holder(self) -> None:
        with git_fence.lease(owner="first", cwd=self.one, ttl="10m"):
            with self.assertRaises(git_fence.Held) as caught:
                git_fence.lease(owner="second", cwd=self.two)
            held = caught.exception
            self.assertEqual((held.outcome, held.code, held.retryable), ("held", "FENCE-LEASE-HELD", True))
            self.assertEqual((held.holder["owner"], held.holder["token"]), ("first", 1))
            self.assertIn("first", held.message)
            self.assertIsInstance(held, git_fence.GitFenceError)
            with self.assertRaises(git_fence.Held) as caught:
                git_fence.lease(owner="second", cwd=self.two, wait=0.2)
            self.assertEqual((caught.exception.outcome, caught.exception.holder["owner"]), ("timed-out", "first"))

    def test_waits_for_the_lease(self) -> None:
        first = git_fence.lease(owner="first", cwd=self.one, ttl="10m")
        code = (
            "import git_fence\n"
            f"with git_fence.lease(owner='second', cwd={str(self.two)!r}, wait={GIVE_UP}) as lease:\n"
            "    lease.push('HEAD:main')\n"
        )
        second = subprocess.Popen([sys.executable, "-c", code], cwd=os.path.dirname(git_fence.__file__))
        first.progress("nearly done")
        first.release()
        self.assertEqual(second.wait(GIVE_UP), 0)
        self.assertEqual(self.subject("main"), "work of two")

    def test_revoked_lease_is_lost_and_nothing_lands(self) -> None:
        with self.assertRaises(git_fence.Lost) as at_exit:
            with git_fence.lease(owner="first", cwd=self.one, ttl="10m") as lease:
                run("git-fence-hook", "revoke", "--reason", "it hangs", self.server)
                with self.assertRaises(git_fence.Lost) as at_push:
                    lease.push("HEAD:main")
                self.assertEqual(at_push.exception.code, "FENCE-LEASE-LOST")
                self.assertFalse(at_push.exception.retryable)
        self.assertEqual(at_exit.exception.outcome, "lost")
        self.assertEqual(run("git", "branch", cwd=self.server), "")

    def test_paused_program_does_not_land_after_its_successor(self) -> None:
        lease = git_fence.lease(owner="zombie", cwd=self.one, ttl=3)
        tree = descendants(lease._run._process.pid)
        try:
            signal_all(tree, signal.SIGSTOP)
            with git_fence.lease(owner="successor", cwd=self.two, ttl="10m", wait=GIVE_UP) as successor:
                successor.push("HEAD:main")
                with self.assertRaises(git_fence.Lost) as caught:
                    lease.push("HEAD:other")
                self.assertEqual(caught.exception.holder["owner"], "successor")
        finally:
            signal_all(tree, signal.SIGCONT)
        wait_until(lambda: lease.is_lost)
        self.assertRaises(git_fence.Lost, lease.check)
        self.assertRaises(git_fence.Lost, lease.push, "HEAD:other")
        self.assertRaises(git_fence.Lost, lease.release)
        self.assertEqual(run("git", "branch", "--format=%(refname:short)", cwd=self.server), "main")

    def test_refused_push_has_the_words_of_the_remote_and_keeps_the_lease(self) -> None:
        hook = self.server / "hooks" / "update"
        hook.write_text("#!/bin/sh\ncase $1 in refs/heads/*) echo 'no pushes on Sundays'; exit 1;; esac\n")
        hook.chmod(0o755)
        with git_fence.lease(cwd=self.one, ttl="10m") as lease:
            with self.assertRaises(git_fence.Refused) as caught:
                lease.push("HEAD:main")
            self.assertEqual(caught.exception.outcome, "refused")
            self.assertIn("no pushes on Sundays", caught.exception.message)
            hook.unlink()
            self.assertEqual(lease.push("HEAD:main").moved, ["refs/heads/main"])

    def test_remote_that_is_gone_is_unreachable(self) -> None:
        self.server.rename(self.root / "moved.git")
        with self.assertRaises(git_fence.Unreachable) as caught:
            git_fence.lease(cwd=self.one)
        self.assertEqual((caught.exception.outcome, caught.exception.retryable), ("unreachable", True))

    def test_host_that_declines_leases_is_denied_in_its_own_words(self) -> None:
        hook = self.server / "hooks" / "update"
        hook.write_text("#!/bin/sh\ncase $1 in refs/fence/*) echo 'no such refs here'; exit 1;; esac\n")
        hook.chmod(0o755)
        with self.assertRaises(git_fence.Denied) as caught:
            git_fence.lease(cwd=self.one)
        self.assertEqual((caught.exception.outcome, caught.exception.retryable), ("denied", False))
        self.assertIn("no such refs here", caught.exception.message)

    def test_wrong_usage_is_told(self) -> None:
        with self.assertRaises(git_fence.GitFenceError) as caught:
            git_fence.lease(cwd=self.one, ttl="a while")
        self.assertEqual(type(caught.exception), git_fence.GitFenceError)
        self.assertEqual(caught.exception.outcome, "usage")
        with git_fence.lease(cwd=self.one, ttl="10m") as lease:
            self.assertRaises(ValueError, lease.push, "--mirror")

    def test_missing_program_is_told(self) -> None:
        with self.assertRaises(git_fence.GitFenceError) as caught:
            git_fence.lease(cwd=self.one, git="no-such-git")
        self.assertIn("no-such-git", caught.exception.message)
        without = self.root / "without"
        without.write_text("#!/bin/sh\necho \"git: 'fence' is not a git command.\" >&2; exit 1\n")
        without.chmod(0o755)
        with self.assertRaises(git_fence.GitFenceError) as caught:
            git_fence.lease(cwd=self.one, git=str(without))
        self.assertEqual(caught.exception.message, "git: 'fence' is not a git command.")

    def test_error_of_the_block_is_not_hidden_and_the_lease_is_given_back(self) -> None:
        with self.assertRaises(KeyError):
            with git_fence.lease(cwd=self.one, ttl="10m"):
                raise KeyError("mine")
        self.assertEqual(self.status()["outcome"], "free")
        with self.assertRaises(KeyError):
            with git_fence.lease(cwd=self.one, ttl="10m"):
                run("git-fence-hook", "revoke", "--reason", "it hangs", self.server)
                raise KeyError("mine")

    def test_killed_program_gives_the_lease_back(self) -> None:
        code = (
            "import git_fence, time\n"
            f"lease = git_fence.lease(owner='killed', cwd={str(self.one)!r}, ttl='1h')\n"
            "print('held', flush=True)\ntime.sleep(600)\n"
        )
        program = subprocess.Popen(
            [sys.executable, "-c", code], cwd=os.path.dirname(git_fence.__file__), stdout=subprocess.PIPE
        )
        self.assertEqual(program.stdout.readline(), b"held\n")
        self.assertEqual(self.status()["holder"]["owner"], "killed")
        program.kill()
        program.wait()
        program.stdout.close()
        wait_until(lambda: self.status()["outcome"] == "free")


class ErrorTest(unittest.TestCase):
    def test_each_outcome_has_its_exception(self) -> None:
        for outcome, kind in {
            "timed-out": git_fence.Held,
            "stalled": git_fence.Lost,
            "denied": git_fence.Denied,
            "busy": git_fence.Unreachable,
            "unknown": git_fence.Unreachable,
            "landed-in-part": git_fence.Refused,
            "usage": git_fence.GitFenceError,
        }.items():
            error = git_fence._error({"outcome": outcome, "message": "words", "hint": "do this"})
            self.assertIs(type(error), kind)
            self.assertEqual((error.outcome, error.message, error.hint), (outcome, "words", "do this"))
        self.assertIs(type(git_fence._error({"outcome": "lost", "code": "FENCE-HALTED"})), git_fence.Halted)

    def test_durations_are_written_as_on_the_command_line(self) -> None:
        self.assertEqual(git_fence._duration("1h30m"), "1h30m")
        self.assertEqual(git_fence._duration(90), "90s")
        self.assertEqual(git_fence._duration(0.2), "200ms")
        self.assertEqual(git_fence._duration(datetime.timedelta(minutes=2)), "120s")
        self.assertRaises(ValueError, git_fence._duration, -1)


def descendants(pid: int) -> list:
    """The process and everything below it."""
    found = [pid]
    for parent in found:
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
        found += [int(child) for child in children.read_text().split()]
    return found


def signal_all(pids: list, what: int) -> None:
    """Sends a signal to those that still exist: a git that had ended is reaped when its parent goes on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)


if __name__ == "__main__":
    unittest.main()
