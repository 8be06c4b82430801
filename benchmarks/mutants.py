"""Do the tests notice wrong changes of what decides verdicts, addresses, counts and costs?

300 changes of single expressions and statements (`benchmarks/mutation.py`) are drawn by a seed over `AREAS`. Each is made in a copy of the
project, and the tests that execute the changed line (`TESTS` says among which they are looked for) are run until one fails: the mutant is
killed. One with which a test takes ten times as long as without it hangs, and counts as killed too. What survives is judged in a sentence
in `mutants.toml`: either nothing that can be observed differs (`equivalent`), or no test shows it.

The emulator's store of machine code, which is keyed by source files, is the test session's own and is empty at its start. What has been
found is kept in `.mutants`, so a run that was stopped goes on: a killed mutant stays killed while its file says the same, and
survivors are run again when tests have changed. Mutants are drawn by a digest of their file, text and change, so that the sample stays
when something else changes, and the first hundred of a sample are a sample.

`--module` takes all mutants of the named files or folders, or the first `--number` of them; it writes no result file.

Prediction: 90 % killed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness import ROOT, Row, write
from mutation import Mutant, mutants

SOURCES = [
    "src/memlane/sass/scoreboards.py",
    "src/memlane/audit",
    "src/memlane/rewrite",
    "src/memlane/chip",
    "src/memlane/emulate/count",
    "src/memlane/diagnose/cost.py",
    "benchmarks/mutants.py",
    "benchmarks/mutation.py",
    "benchmarks/mutant_server.py",
    "benchmarks/mutants.toml",
]
_PROOFS = (
    "proof",
    "windows",
    "exposure",
    "clock_provenance",
    "warp_aggregation",
    "missing_accesses",
    "assembled_module",
    "site_changes",
)
_EXACTNESS = ("exact_accesses", "grouping", "reconvergence", "lane_groups")
AREAS = {
    "waiting": ("src/memlane/sass/scoreboards.py",),
    "proofs": tuple(f"src/memlane/audit/{name}.py" for name in (*_PROOFS, *_EXACTNESS)),
    "rewrite": ("src/memlane/rewrite",),
    "chip": ("src/memlane/chip",),
    "count": ("src/memlane/emulate/count",),
    "cost": ("src/memlane/diagnose/cost.py",),
}
"""Files and folders that are changed, by area."""
TESTS = {
    "src/memlane/sass": ("tests/sass", "tests/audit", "tests/instrument"),
    "src/memlane/audit": ("tests/audit", "tests/instrument"),
    "src/memlane/rewrite": ("tests/rewrite",),
    "src/memlane/chip": ("tests/chip", "tests/emulate/test_counting.py", "tests/layout/test_wavefronts.py", "tests/emulate/test_floors.py"),
    "src/memlane/emulate/count": ("tests/emulate/test_counting.py", "tests/emulate/test_copies.py"),
    "src/memlane/emulate": ("tests/emulate",),
    "src/memlane/diagnose": ("tests/diagnose",),
}
"""Folder of the tests that may execute a file, by folder or file. The longest match is used, else `tests/<the same folder>`."""
GENERATES = "src/memlane/emulate/"
"""Folder of the code that generates machine code, which a process caches."""
NUMBER, SEED, REACH = 300, 7, 90.0
STATE = ROOT / ".mutants"
TREE = STATE / "tree"
"""The copy of the project: what is mutated and tested is what stood here when the run began."""
JUDGED = ROOT / "benchmarks" / "mutants.toml"


@dataclass(frozen=True)
class Found:
    """The outcome of a mutant."""

    key: str
    file: str
    """The `meaning` of the file that was changed."""
    tests: str
    """A digest of the tests that there were."""
    title: str
    old: str
    new: str
    ended: str
    """`killed`, `hung`, `large`, `broken`: noticed. `passed`: survived. `not executed`: no test comes to the line."""
    by: str
    """The test that noticed."""
    seconds: float
    code: str = ""
    """The line of the source that it changes, as it was."""

    @property
    def is_killed(self) -> bool:
        return self.ended not in ("passed", "not executed")


def main() -> None:
    options = parsed()
    copy_project(TREE)
    areas = [one for area in AREAS.values() for one in area]
    files = files_of(options.module or areas, TREE)
    drawn = draw([one for path in files for one in mutants(path, TREE)], options.seed)
    chosen = drawn[: options.number or (None if options.module else NUMBER)]
    print(f"{len(chosen)} of {len(drawn)} mutants in {len(files)} files", flush=True)
    with Runner(files_of([*areas, *files], TREE), options.seconds) as runner:
        found = runner.run(chosen)
    show(found)
    if not options.module:
        write("mutants", rows(found, len(drawn), options.seed), chip="cpu", directory=options.out)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--module", nargs="+", metavar="PATH", help="mutate these files or folders instead of the sample of all")
    parser.add_argument("--number", type=int, help=f"how many mutants (default {NUMBER}; with --module all)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"which are drawn (default {SEED})")
    parser.add_argument("--seconds", type=float, help="stop after so long, with what was reached; the next run goes on")
    parser.add_argument("--out", type=Path, help="directory of the result instead of benchmarks/results/cpu")
    return parser.parse_args()


def files_of(paths: Iterable[str], root: Path) -> list[str]:
    """Return the Python files of files and folders, from the root of the project."""
    found = []
    for path in paths:
        if not (root / path).exists():
            raise SystemExit(f"{path}: there is no such file or folder in {ROOT}")
        found += sorted((root / path).rglob("*.py")) if (root / path).is_dir() else [root / path]
    return list(dict.fromkeys(str(one.relative_to(root)) for one in found))


def draw(every: Sequence[Mutant], seed: int) -> list[Mutant]:
    """Return the mutants in the order in which they are drawn."""
    return sorted(every, key=dict(zip(every, keys(every, seed), strict=True)).__getitem__)


def keys(every: Sequence[Mutant], seed: int = 0) -> list[str]:
    """Return a digest of each mutant, of its file's name, its text, its change, and how many like it stand before it in the file."""
    alike: Counter[str] = Counter()
    found = []
    for one in every:
        text = "\0".join((str(seed), Path(one.path).name, one.old, one.new))
        alike[text] += 1
        found.append(hashlib.sha256(f"{text}\0{alike[text]}".encode()).hexdigest()[:16])
    return found


class Runner:
    """Runs mutants in a copy of the project, and remembers what became of them."""

    def __init__(self, files: Sequence[str], seconds: float | None) -> None:
        """Prepare a run. `files`: files to mutate; `seconds`: time after which no further mutant is started."""
        self._until = float("inf") if seconds is None else time.monotonic() + seconds
        self._files = files
        self._kept = STATE / "found.jsonl"
        self._written = 0
        self._lines: dict[str, dict[str, Any]] = {}
        """Lines that each test executes and its time, by file of tests."""
        command = [sys.executable, str(ROOT / "benchmarks" / "mutant_server.py")]
        self._server = subprocess.Popen(command, cwd=TREE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        """End the server."""
        with self._server:  # waits for it, and closes its pipes
            self._server.kill()

    def run(self, chosen: Sequence[Mutant]) -> list[Found]:
        """Return the outcome of each mutant that was run before the time was over."""
        every = {path: mutants(path, TREE) for path in {one.path for one in chosen}}
        named = {one: key for of_file in every.values() for one, key in zip(of_file, keys(of_file), strict=True)}
        known = self._known()
        found: list[Found] = []
        for number, one in enumerate(chosen):
            source, tests = (TREE / one.path).read_bytes(), test_files(one.path, TREE)
            state = meaning(source), digest(*((TREE / path).read_bytes() for path in tests))
            before = known.get((named[one], state[0]))
            if before is None or not (before.is_killed or before.tests == state[1]):
                if time.monotonic() > self._until:
                    print(f"stopped after {number} of {len(chosen)} mutants; the next run goes on", flush=True)
                    break
                before = Found(named[one], *state, one.title, one.old, one.new, *self._try(one, source, tests))
                with self._kept.open("a") as kept:
                    kept.write(json.dumps(asdict(before)) + "\n")
                print(f"{number + 1:4} {before.ended:12} {before.seconds:6.1f} s {before.title} {before.by}", flush=True)
            code = source.decode().splitlines()[one.line - 1].strip()
            found.append(replace(before, title=one.title, code=code))
        return found

    def _known(self) -> dict[tuple[str, str], Found]:
        lines = self._kept.read_text().splitlines() if self._kept.exists() else []
        return {(one.key, one.file): one for one in (Found(**json.loads(line)) for line in lines)}

    def _try(self, one: Mutant, source: bytes, tests: Sequence[str]) -> tuple[str, str, float]:
        """Run the tests on a mutant; return the outcome, the tests that failed and the seconds."""
        executing = self._executing(one, tests)
        if not executing:
            return "not executed", "", 0.0
        self._write(one.path, one.applied(source))
        answer = self._ask({"tests": ordered(executing)})
        self._write(one.path, source)
        return answer["ended"], answer["by"], answer["seconds"]

    def _write(self, path: str, text: bytes) -> None:
        """Write a file with a time that no other text of it had: compiled modules are told apart by time and size."""
        file = TREE / path
        file.write_bytes(text)
        self._written += 1
        began = int(time.time()) - 1_000_000
        os.utime(file, (began + self._written, began + self._written))

    def _executing(self, one: Mutant, tests: Sequence[str]) -> dict[str, float]:
        """Return the tests that execute the statement of a mutant, with the time of each.

        For a statement that is executed when its module is imported, these are the tests that execute any line of the module. For one that
        generates code, which later tests reuse, these are all tests of each file with such a test.
        """
        covered = self._covered(one.path, tests)
        found, files = {}, set()
        for node, test in covered.items():
            executed = test["lines"].get(one.path, ())
            if executed and (one.is_global or not test["is_new"] or any(line in one.statement for line in executed)):
                found[node] = test["seconds"]
                files.add(node.partition("::")[0])
        if one.path.startswith(GENERATES):
            found = {node: test["seconds"] for node, test in covered.items() if node.partition("::")[0] in files}
        return found

    def _covered(self, mutated: str, tests: Sequence[str]) -> dict[str, Any]:
        """Return by test the lines that it executes in each mutated file. They are remembered while the test is
        the same. Where the mutated file has changed since, the lines are not those of today, and only which files it executes is known."""
        known = {path: self._known_lines(path) for path in tests}
        if missing := [path for path, found in known.items() if found is None]:
            print(f"which lines are executed by {', '.join(missing)}", flush=True)
            answer = self._ask({"cover": missing, "modules": list(self._files)})
            if answer["status"] not in (0, 5):
                raise SystemExit(f"tests fail without a mutant: {answer['failed'] or (TREE / 'output.txt').read_text()}")
            for path in missing:
                of_file = {node: test for node, test in answer["tests"].items() if node.partition("::")[0] == path}
                known[path] = self._lines[path] = {"state": self._state(path, *self._files), "tests": of_file}
                self._lines_kept(path).write_text(json.dumps(self._lines[path]))
        state = self._state(mutated)
        return {
            node: {**test, "is_new": state.items() <= stored["state"].items()}
            for stored in known.values()
            if stored is not None
            for node, test in stored["tests"].items()
        }

    def _known_lines(self, path: str) -> dict[str, Any] | None:
        if path not in self._lines and self._lines_kept(path).exists():
            self._lines[path] = json.loads(self._lines_kept(path).read_text())
        stored = self._lines.get(path, {"state": {}})
        return stored if self._state(path).items() <= stored["state"].items() else None

    def _lines_kept(self, path: str) -> Path:
        return STATE / f"covered-{digest(path.encode())}.json"

    def _state(self, *paths: str) -> dict[str, str]:
        return {one: digest((TREE / one).read_bytes()) for one in paths}

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            raise SystemExit("the process that runs the tests has ended")
        return json.loads(line)  # type: ignore[no-any-return]


def ordered(tests: Mapping[str, float]) -> dict[str, float]:
    """Return the tests in the order to run them: files with the most tests per time first, and in each file the fastest tests first."""
    by_file: dict[str, dict[str, float]] = defaultdict(dict)
    for node, seconds in tests.items():
        by_file[node.partition("::")[0]][node] = seconds
    files = sorted(by_file.values(), key=lambda of_file: (5 + sum(of_file.values())) / len(of_file))
    return {node: seconds for of_file in files for node, seconds in sorted(of_file.items(), key=lambda test: test[1])}


def copy_project(folder: Path) -> None:
    """Bring a copy of the files that git has, or would take, up to date."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]
    for path in paths:
        source, target = ROOT / path, folder / path
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for target in [*(folder / "src").rglob("*.py"), *(folder / "tests").rglob("*.py")]:
        if not (ROOT / target.relative_to(folder)).exists():
            target.unlink()


def test_files(path: str, root: Path) -> list[str]:
    """Return the files of tests among which those are looked for that execute a file of the source."""
    fitting = max((one for one in TESTS if path.startswith(one)), key=len, default="")
    folders = TESTS.get(fitting) or (str(Path("tests", *Path(path).parts[2:3])),)
    found = []
    for folder in folders:
        found += sorted((root / folder).rglob("test_*.py")) if (root / folder).is_dir() else [root / folder]
    return [str(one.relative_to(root)) for one in found]


def digest(*texts: bytes) -> str:
    """Return a digest of some texts."""
    result = hashlib.sha256()
    for text in texts:
        result.update(len(text).to_bytes(8, "little") + text)
    return result.hexdigest()[:16]


def meaning(source: bytes) -> str:
    """Return a digest of a file's code without its comments and the modules that it imports from."""
    tree = ast.parse(source)
    tree.body = [one for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    return digest(ast.dump(tree).encode())


@dataclass(frozen=True)
class Judgement:
    """The recorded judgement of a mutant that survives."""

    equivalent: bool
    why: str


def judgements() -> dict[tuple[str, str, str], Judgement]:
    """Return the judgements by file, source line and replacement. A `[[survivor]]` has `file`, `code`, `new`, `equivalent` and `why`."""
    listed = tomllib.loads(JUDGED.read_text()).get("survivor", [])
    return {(one["file"], one["code"], one["new"]): Judgement(one["equivalent"], one["why"]) for one in listed}


def judgement(one: Found, judged: dict[tuple[str, str, str], Judgement]) -> Judgement | None:
    return judged.get((Path(one.title.partition(":")[0]).name, one.code, one.new))


def show(found: Sequence[Found]) -> None:
    """Print the mutants that survived, each with its judgement."""
    judged = judgements()
    for one in found:
        if not one.is_killed:
            said = judgement(one, judged)
            print(f"SURVIVED {one.title}\n         {'not judged yet' if said is None else said.why}")
    killed = sum(one.is_killed for one in found)
    print(f"{killed} of {len(found)} killed ({100 * killed / max(1, len(found)):.1f} %)")


def rows(found: Sequence[Found], of: int, seed: int) -> list[Row]:
    """Return a row for each area and one for all; one for each survivor, whose value says whether it is equivalent."""
    judged = judgements()
    killed = sum(one.is_killed for one in found)
    ended = Counter(one.ended for one in found if one.is_killed)
    note = f"{len(found)} of {of:,} mutants, seed {seed}; " + ", ".join(f"{count} {name}" for name, count in sorted(ended.items()))
    equivalent = sum(said.equivalent for one in found if not one.is_killed and (said := judgement(one, judged)) is not None)
    result = [
        Row("all", "mutants killed", round(100 * killed / len(found), 1), "%", REACH, "higher", note=note),
        Row("all", "mutants killed of those not equivalent", round(100 * killed / (len(found) - equivalent), 1), "%"),
    ]
    by_area: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        by_area[next(name for name, paths in AREAS.items() if any(one.title.startswith(path) for path in paths))].append(one)
    for name in AREAS:
        those = by_area.get(name, [])
        result.append(Row(name, "mutants killed", sum(one.is_killed for one in those), f"of {len(those)}"))
    for one in found:
        if not one.is_killed:
            said = judgement(one, judged)
            why = "not judged" if said is None else said.why
            result.append(Row(one.title, "equivalent", float(said is not None and said.equivalent), "", note=why))
    return result


if __name__ == "__main__":
    main()
