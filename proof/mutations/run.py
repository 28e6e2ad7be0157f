#!/usr/bin/env python3
"""Removes the safety steps of git-fence, one at a time, and shows that a test fails without each.

    ./proof/mutations/run.py                   all of table.toml
    ./proof/mutations/run.py nonce atomic      only these
    ./proof/mutations/run.py --check           only check that the table matches the code and the page; fast
    ./proof/mutations/run.py --markdown        the table of docs/proof.md, from table.toml

Builds and tests a copy of the tracked files, as they are in the work tree; your files are not touched.
First all tests must pass without a mutation. Then each mutation is applied alone, and every test of its row
must fail or hang. The exit code is 0 if all do, 1 if one still passes or does not compile, 2 if the table
does not match the code or a test fails without a mutation.

Progress goes to standard error, the result to standard output: a table, or a JSON document with --json.
"""

import argparse
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit("run.py needs Python 3.11 or newer")

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
TABLE = HERE / "table.toml"
PAGE = REPOSITORY / "docs/proof.md"

# The targets of the tests: 'hook mutex::tests::…' is a unit test of hook/, 'it window::…' a journey.
TARGETS = {
    "core": ["-p", "git-fence-core", "--lib"],
    "system": ["-p", "git-fence-system", "--lib"],
    "hook": ["-p", "git-fence-hook", "--lib"],
    "client": ["-p", "git-fence-client", "--lib"],
    "stores": ["-p", "git-fence-stores", "--lib"],
    "engines": ["-p", "git-fence-stores", "--test", "it"],
    "it": ["-p", "git-fence", "--test", "it"],
}
# How long the tests of one mutation may take before they count as hanging.
LIMIT = 150
PR_SET_CHILD_SUBREAPER = 36


class Unfit(Exception):
    """The table does not match the code, or the code fails its tests without a mutation."""


class Mutation:
    def __init__(self, row):
        known = {"name", "step", "removed", "file", "find", "put", "tests", "limit"}
        if not {"name", "step", "removed", "file", "find", "put", "tests"} <= row.keys() <= known:
            raise Unfit(f"row {row.get('name', '?')!r} lacks a key or has an unknown one")
        self.name, self.step, self.removed = row["name"], row["step"], row["removed"]
        self.file, self.find, self.put = row["file"], row["find"], row["put"]
        self.tests = [Test(name) for name in row["tests"]]
        self.limit = row.get("limit", LIMIT)
        if not self.tests:
            raise Unfit(f"{self.name}: names no test")

    def made_in(self, text):
        """The file without the step. The snippet must occur exactly once, or the table is out of date."""
        times = text.count(self.find)
        if times != 1:
            raise Unfit(f"{self.name}: the snippet occurs {times} times in {self.file}, not once:\n{self.find}")
        return text.replace(self.find, self.put)


class Test:
    def __init__(self, text):
        target, _, self.name = text.partition(" ")
        if target not in TARGETS or not self.name:
            raise Unfit(f"{text!r} is not a test: it must begin with one of {', '.join(TARGETS)}")
        self.target = target

    def __str__(self):
        return f"{self.target} {self.name}"

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


def read_table(names):
    rows = [Mutation(row) for row in tomllib.loads(TABLE.read_text())["mutation"]]
    all_names = [row.name for row in rows]
    for name in all_names:
        if all_names.count(name) > 1:
            raise Unfit(f"{name} is in the table twice")
    for name in names:
        if name not in all_names:
            raise Unfit(f"no mutation {name!r}; the table has: {', '.join(all_names)}")
    return [row for row in rows if not names or row.name in names]


class Workshop:
    """A copy of the tracked files, with its own build directory beside it. Both are kept, so that the next run
    builds only what has changed."""

    def __init__(self, directory):
        self.tree, self.target = directory / "tree", directory / "target"
        directory.mkdir(parents=True, exist_ok=True)
        self.lock = open(directory / "in-use", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unfit(f"another run uses {directory}: wait for it, or choose another with --dir") from None

    def fetch(self):
        """Updates the copy from the work tree. Unchanged files are not written, so that cargo sees by the
        modification times what has changed."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True).stdout
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        names = {name for name in names if (REPOSITORY / name).is_file()}
        for path in [path for path in self.tree.rglob("*") if path.is_file() or path.is_symlink()]:
            if str(path.relative_to(self.tree)) not in names:
                path.unlink()
        for name in names:
            here, there = REPOSITORY / name, self.tree / name
            there.parent.mkdir(parents=True, exist_ok=True)
            if not there.exists() or there.read_bytes() != here.read_bytes():
                there.write_bytes(here.read_bytes())
            there.chmod(here.stat().st_mode & 0o777)

    def environment(self):
        # Debug information would double the link time.
        slim = {f"CARGO_PROFILE_{profile}_DEBUG": "0" for profile in ["DEV", "TEST"]}
        # A test that is skipped misses nothing: it must fail before anything is taken out.
        tests = {"GIT_FENCE_TESTS_NEED": "all", "INSTA_UPDATE": "no", "RUST_BACKTRACE": "0"}
        return {**os.environ, **slim, **tests, "CARGO_TARGET_DIR": str(self.target)}

    def build(self, tests):
        """Builds the targets of these tests. Returns the output of the compiler if that fails."""
        # The gate's journeys with a store start this program, which belongs to another package.
        store = ["cargo", "build", "--quiet", "--locked", "-p", "git-fence-stores", "--bin", "git-fence-store"]
        commands = [store] if any(test.target == "it" for test in tests) else []
        commands += [["cargo", "test", "--quiet", "--locked", "--no-run", *TARGETS[target]] for target in targets_of(tests)]
        for command in commands:
            built = run_to_its_end(command, self.tree, self.environment(), 1800)
            if built.code != 0:
                return built.text
        return None

    def test(self, tests, limit):
        """The verdict of each test (green, red or timed out) and its output."""
        verdicts = {}
        for target in targets_of(tests):
            names = [test.name for test in tests if test.target == target]
            command = ["cargo", "test", "--locked", *TARGETS[target], "--", "--exact", *names]
            ran = run_to_its_end(command, self.tree, self.environment(), limit)
            for name in names:
                verdicts[Test(f"{target} {name}")] = verdict_of(name, ran)
        return verdicts


def targets_of(tests):
    return [target for target in TARGETS if any(test.target == target for test in tests)]


def verdict_of(name, ran):
    told = re.search(rf"^test {re.escape(name)} \.\.\. (ok|FAILED)$", ran.text, re.MULTILINE)
    # With one thread, the output of a test may appear between its name and its result.
    told = told or re.search(rf"^test {re.escape(name)} \.\.\. (?:.*\n)*?(ok|FAILED)$", ran.text, re.MULTILINE)
    if told:
        return {"ok": ("green", ""), "FAILED": ("red", panic_of(name, ran.text))}[told[1]]
    if ran.timed_out:
        return ("timed out", "")
    return ("not run", ran.text[-2000:])


def panic_of(name, text):
    """The first lines of the test's panic message."""
    section = rf"^---- {re.escape(name)} stdout ----\n(.*?)(?=^---- |^failures:|\Z)"
    said = re.search(section, text, re.MULTILINE | re.DOTALL)
    lines = said[1].splitlines() if said else []
    at = next((n for n, line in enumerate(lines) if "panicked at" in line), None)
    said = [line.strip() for line in lines[at + 1 : at + 4] if not line.startswith("note: ")] if at is not None else []
    return " ".join(said)[:200]


class Ran:
    def __init__(self, code, text, timed_out):
        self.code, self.text, self.timed_out = code, text, timed_out


def run_to_its_end(command, directory, environment, limit):
    """Runs a command in its own session. Kills all processes that it leaves behind, in any session."""
    # Output goes to a file: a leftover process would keep a pipe open, and reading it would never end.
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = False
        try:
            child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end_all_below(os.getpid(), child)
            child.wait()
        said.seek(0)
        return Ran(child.returncode, said.read().decode(errors="replace"), timed_out)


def adopt_orphans():
    """Makes daemons and the leftovers of killed tests children of this process, so that it can find them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all_below(pid, child=None):
    """Kills all descendants and reaps them, except for `child`, which the caller reaps."""
    while below := descendants(pid):
        for one in below:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if child is None or int(one) != child.pid:
            os.waitpid(int(one), 0)


def descendants(pid):
    found, parents = [], {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry))
    waiting = list(parents.get(pid, []))
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += parents.get(one, [])
    return found


def tell(words):
    print(words, file=sys.stderr, flush=True)


def check_that_all_is_green(workshop, mutations):
    tests = list(dict.fromkeys(test for mutation in mutations for test in mutation.tests))
    tell(f"without a mutation: {len(tests)} tests must pass")
    errors = workshop.build(tests)
    if errors is not None:
        raise Unfit(f"the code does not compile without a mutation:\n{errors[-3000:]}")
    for test, (verdict, said) in workshop.test(tests, 900).items():
        if verdict != "green":
            raise Unfit(f"{test} is {verdict} without a mutation: {said}")


def try_out(workshop, mutation):
    path = workshop.tree / mutation.file
    text, began = path.read_text(), time.monotonic()
    try:
        path.write_text(mutation.made_in(text))
        errors = workshop.build(mutation.tests)
        verdicts = workshop.test(mutation.tests, mutation.limit) if errors is None else {}
    finally:
        path.write_text(text)
    tests = [{"test": str(test), "verdict": verdict, "said": said} for test, (verdict, said) in verdicts.items()]
    if errors is not None:
        verdict = "not built"
    elif all(test["verdict"] in ("red", "timed out") for test in tests):
        verdict = "red"
    else:
        verdict = "green"
    return {
        "name": mutation.name,
        "step": mutation.step,
        "removed": mutation.removed,
        "file": mutation.file,
        "verdict": verdict,
        "seconds": round(time.monotonic() - began),
        "tests": tests,
        "errors": (errors or "")[-3000:],
    }


def print_table(results):
    width = max(len(result["name"]) for result in results)
    for result in results:
        tests = [f"{test['verdict']:<9}  {test['test']}" for test in result["tests"]] or [""]
        print(f"{result['name']:<{width}}  {result['verdict']:<9}  {tests[0]}")
        for test in tests[1:]:
            print(f"{'':<{width}}  {'':<9}  {test}")
    red = sum(result["verdict"] == "red" for result in results)
    print(f"\n{red} of {len(results)} mutations fail every test of their row")


def markdown(mutations):
    lines = ["| step | what is removed | tests that turn red |", "|---|---|---|"]
    for mutation in mutations:
        tests = "<br>".join(f"{test.target} `{test.name}`" for test in mutation.tests)
        lines.append(f"| **{mutation.name}**: {mutation.step} | {mutation.removed} | {tests} |")
    return "\n".join(lines) + "\n"


def check_the_code(mutations):
    """Reports all mismatches at once."""
    wrong = []
    for mutation in mutations:
        try:
            mutation.made_in((REPOSITORY / mutation.file).read_text())
        except (Unfit, OSError) as unfit:
            wrong.append(str(unfit))
    sources = "\n".join(path.read_text() for path in tracked_sources())
    for test in dict.fromkeys(test for mutation in mutations for test in mutation.tests):
        if f"fn {test.name.rpartition('::')[2]}(" not in sources:
            wrong.append(f"there is no test {test}")
    if wrong:
        raise Unfit("\n".join(wrong))


def tracked_sources():
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [REPOSITORY / name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()]


def check_the_page(mutations):
    if markdown(mutations) not in PAGE.read_text():
        raise Unfit("the table in docs/proof.md differs from table.toml: replace it by the output of --markdown")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a mutation of the table; default: all")
    parser.add_argument("--dir", type=Path, default=REPOSITORY / "target/mutations", help="the working directory")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    parser.add_argument("--check", action="store_true", help="only check that the table matches the code and the page")
    parser.add_argument("--markdown", action="store_true", help="only print the table for docs/proof.md")
    arguments = parser.parse_args()
    try:
        mutations = read_table(arguments.names)
        if arguments.markdown:
            print(markdown(mutations), end="")
            return 0
        check_the_code(mutations)
        if arguments.check:
            check_the_page(read_table([]))
            tell(f"{len(mutations)} mutations: each snippet occurs once, and docs/proof.md has the table")
            return 0
        adopt_orphans()
        # On a signal, revert the mutation and kill all child processes.
        for asked in [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]:
            signal.signal(asked, lambda number, _: sys.exit(128 + number))
        workshop = Workshop(arguments.dir.resolve())
        workshop.fetch()
        check_that_all_is_green(workshop, mutations)
        results = []
        # Grouped by file: less to build.
        for mutation in sorted(mutations, key=lambda mutation: mutation.file):
            result = try_out(workshop, mutation)
            tell(f"{result['name']}: {result['verdict']} ({result['seconds']} s)")
            if result["verdict"] == "not built":
                tell(result["errors"])
            results.append(result)
    except Unfit as unfit:
        tell(f"error: {unfit}")
        return 2
    finally:
        end_all_below(os.getpid())
    results.sort(key=lambda result: [mutation.name for mutation in mutations].index(result["name"]))
    all_red = all(result["verdict"] == "red" for result in results)
    if arguments.json:
        print(json.dumps({"all_red": all_red, "mutations": results}, indent=2))
    else:
        print_table(results)
    return 0 if all_red else 1


if __name__ == "__main__":
    sys.exit(main())
