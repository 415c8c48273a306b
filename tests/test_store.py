"""The store of verdicts: nothing done to it makes a verdict wrong."""

from __future__ import annotations

import importlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command import CHECK, Outcome, check
from test_gate import HOLDS, ONE_TOKEN_SHORT, PROVED, SMALL, VIOLATED, write

from checker.store import Keys, Store, StoreError, engine_digest
from checker.tasks import Finding, Task
from properties.verdict import Verdict

FINDING = Finding("p", Verdict.HOLDS, "9 states", "exploration", 0.1)


def gate(path: Path, *arguments: str) -> Outcome:
    return check.__wrapped__("gate", str(path), "--jobs", "1", *arguments)


def stored(outcome: Outcome) -> bool:
    """Whether every verdict came from the store; none, or all of them, do here."""
    line = outcome.out.splitlines()[0]
    assert ("(from the store)" in line) != (" s)" in line)
    return "(from the store)" in line


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, HOLDS + SMALL)


@pytest.fixture
def store(path: Path) -> Path:
    """A store with the verdict of the obligation in it."""
    assert gate(path).code == 0
    return path.parent / ".kvgate_cache" / "verdicts.sqlite"


# --- what comes from it ----------------------------------------------------------------------------


def test_what_did_not_change_is_not_run_again(tmp_path: Path) -> None:
    path = write(tmp_path, HOLDS + SMALL + VIOLATED + PROVED)
    first, second = gate(path), gate(path)
    assert (first.code, second.code) == (0, 0)
    assert not stored(first)
    assert stored(second)
    assert "3 verdicts, 3 from the store" in second.out
    assert (tmp_path / ".kvgate_cache" / ".gitignore").read_text() == "*\n"


def test_a_violation_from_the_store_is_shown_with_its_run(tmp_path: Path) -> None:
    path = write(tmp_path, VIOLATED.replace('"violated"', '"holds"'))
    first, second = gate(path), gate(path)
    assert (first.code, second.code) == (1, 1)
    assert stored(second)
    assert first.out.split("\n\n")[1] == second.out.split("\n\n")[1]
    assert "step 0, " in second.out


def test_without_the_cache_nothing_is_read_or_kept(path: Path, store: Path) -> None:
    assert not stored(gate(path, "--no-cache"))
    shutil.rmtree(store.parent)
    gate(path, "--no-cache")
    assert not store.parent.exists()


def test_a_store_of_ones_own(path: Path, tmp_path: Path) -> None:
    mine = tmp_path / "deep" / "mine.sqlite"
    assert not stored(gate(path, "--store", str(mine)))
    assert stored(gate(path, "--store", str(mine)))
    assert gate(path, "--store", str(mine), "--no-cache").code == 2


def test_inconclusive_is_never_kept(tmp_path: Path) -> None:
    path = write(tmp_path, HOLDS + "max_states = 10\n")
    for _ in range(2):
        outcome = gate(path)
        assert outcome.code == 3
        assert not stored(outcome)


def test_another_field_another_limit_another_verdict(path: Path, store: Path) -> None:
    write(path.parent, HOLDS + SMALL.replace("= 3", "= 4"))
    assert not stored(gate(path))
    write(path.parent, HOLDS + "max_states = 100000\n" + SMALL)
    assert not stored(gate(path))
    write(path.parent, HOLDS.replace("corrected", "renamed") + SMALL)
    assert stored(gate(path))


def test_the_source_of_ones_own_policy_counts(tmp_path: Path) -> None:
    good = ONE_TOKEN_SHORT.replace("margin = ", "margin = 1 + ")
    (tmp_path / "gates.py").write_text(good)
    path = write(tmp_path, HOLDS.replace("first-decode-step", "gates.py:Gate"))
    assert gate(path).code == 0
    assert stored(gate(path))
    (tmp_path / "gates.py").write_text(ONE_TOKEN_SHORT)
    outcome = gate(path)
    assert outcome.code == 1
    assert not stored(outcome)


@pytest.mark.parametrize(
    "statement",
    [
        "from kvgate_margins import MARGIN",
        "import kvgate_margins; MARGIN = kvgate_margins.MARGIN",
        "from kvgate_between import MARGIN",
        "from kvgate_package.inner import MARGIN",
        "from kvgate_package.outer import MARGIN",
        "import importlib; MARGIN = importlib.import_module('kvgate_package').MARGIN",
    ],
)
def test_the_modules_that_a_policy_imports_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "kvgate_package"
    package.mkdir()
    sources = {
        tmp_path / "kvgate_between.py": "from kvgate_margins import MARGIN\n",
        package / "__init__.py": "from .inner import MARGIN\n",
        package
        / "outer.py": "def f():\n    from . import inner\n\nfrom kvgate_package import MARGIN\n",
    }
    for file, source in sources.items():
        file.write_text(source)
    constants = tmp_path / "kvgate_margins.py", package / "inner.py"
    for file in constants:
        file.write_text("MARGIN = 1\n")
    gates = ONE_TOKEN_SHORT.replace("margin = ", "margin = MARGIN + ")
    (tmp_path / "gates.py").write_text(f"{statement}\n{gates}")
    task = Task("explore", f"{tmp_path}/gates.py:Gate", "{}")
    for name in [name for name in sys.modules if name.startswith("kvgate_")]:
        del sys.modules[name]  # of the test before
    importlib.invalidate_caches()
    keys = Keys()
    before = keys.of(task, "engine")
    assert Keys().of(task, "engine") == keys.of(task, "engine") == before
    for file in constants:
        file.write_text("MARGIN = 0\n")
    if "import_module" in statement:  # a name that is made up as it runs is not seen
        assert "--no-cache" in (Path(__file__).parent.parent / "docs" / "ci.md").read_text()
    else:
        assert keys.of(task, "engine") != before


def test_files_of_the_same_name_are_two(tmp_path: Path) -> None:
    keys = Keys()
    found = set()
    for folder, source in (("a", ONE_TOKEN_SHORT), ("b", ONE_TOKEN_SHORT + "\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "gates.py").write_text(source)
        task = Task("explore", f"{tmp_path}/{folder}/gates.py:Gate", "{}")
        keys.of(task, "engine")
        (file,) = keys._files[task.policy]
        found.add(file[1])
    assert len(found) == 2


def test_every_part_of_a_task_and_the_engine_are_in_the_key() -> None:
    task = Task("explore", "none", "{}")
    others = [
        replace(task, kind="theorems"),
        replace(task, policy="prompt-only"),
        replace(task, document="{ }"),
        replace(task, theorem="1"),
        replace(task, max_states=1),
        replace(task, max_seconds=1.0),
    ]
    keys = {Keys().of(one, "engine") for one in [task, *others]} | {Keys().of(task, "other")}
    assert len(keys) == len(others) + 2


def test_the_source_of_the_engine_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = engine_digest()
    assert engine_digest() == before
    for package in ("models", "properties", "checker"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("x = 1\n")
    monkeypatch.setattr("checker.store.__file__", str(tmp_path / "checker" / "store.py"))
    digests = {before, engine_digest()}
    for package in ("models", "properties", "checker"):
        (tmp_path / package / "one.py").write_text("x = 2\n")
        digests.add(engine_digest())
    monkeypatch.setattr("checker.store.sys.version", "4.0")
    assert len(digests | {engine_digest()}) == 6


# --- what is done to it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE verdicts SET payload = replace(payload, 'HOLDS', 'VIOLATED')",
        "UPDATE verdicts SET payload = replace(payload, 'states', 'State')",
        "UPDATE verdicts SET payload = substr(payload, 2)",
        "UPDATE verdicts SET payload = CAST(payload AS BLOB)",
        "UPDATE verdicts SET payload = x'ff'",
        "UPDATE verdicts SET payload = CAST(x'ff' AS TEXT)",
        "UPDATE verdicts SET checksum = ''",
        "UPDATE verdicts SET key = substr(key, 2)",
        "UPDATE verdicts SET name = name || '!'",
        "DELETE FROM verdicts",
    ],
)
def test_a_row_that_was_changed_is_run_again(path: Path, store: Path, statement: str) -> None:
    with sqlite3.connect(store) as db:
        db.execute(statement)
    db.close()
    outcome = gate(path)
    assert (outcome.code, stored(outcome)) == (0, False)
    assert stored(gate(path))


def test_a_verdict_of_another_key_is_not_taken(store: Path) -> None:
    """Two rows whose contents were swapped: each checksum is over its own key."""
    one = Store(store)
    one.put("a", [FINDING])
    one.put("b", [replace(FINDING, verdict=Verdict.VIOLATED)])
    assert one.get("a", ["p"]) == [FINDING]
    one._db.execute("UPDATE verdicts SET key = 'c' WHERE key = 'a'")
    one._db.execute("UPDATE verdicts SET key = 'a' WHERE key = 'b'")
    assert one.get("a", ["p"]) is None
    assert one.get("absent", ["p"]) is None
    one.close()


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough" * 40])
def test_a_file_that_is_no_store(path: Path, store: Path, content: bytes) -> None:
    store.write_bytes(content)
    outcome = gate(path)
    assert (outcome.code, stored(outcome)) == (0, False)
    if content:
        assert "check gate: store: " in outcome.err
        assert "going on without it" in outcome.err
        assert store.read_bytes() == content


def test_bytes_of_the_store_overwritten(path: Path, store: Path) -> None:
    whole = store.read_bytes()
    for start in range(0, len(whole), 512):
        store.write_bytes(whole[:start] + b"\xa5" * 256 + whole[start + 256 :])
        outcome = gate(path)
        assert outcome.code == 0
        assert "HOLDS by exploration" in outcome.out
        assert "Traceback" not in outcome.err
        store.unlink()
    store.write_bytes(whole[: len(whole) // 2])
    assert gate(path).code == 0


def test_somebody_elses_database_is_left_alone(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.sqlite"
    with sqlite3.connect(theirs) as db:
        db.execute("CREATE TABLE verdicts (key, name, payload, checksum)")
    db.close()
    before = theirs.read_bytes()
    outcome = gate(path, "--store", str(theirs))
    assert (outcome.code, stored(outcome)) == (0, False)
    assert "is not a store of this version" in outcome.err
    assert theirs.read_bytes() == before


def test_a_folder_in_its_place(path: Path, tmp_path: Path) -> None:
    outcome = gate(path, "--store", str(tmp_path))
    assert outcome.code == 0
    assert "is not a file" in outcome.err


def test_a_store_that_somebody_holds(
    path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checker.store.BUSY_SECONDS", 0.1)
    holder = sqlite3.connect(store, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    outcome = gate(path)
    assert (outcome.code, stored(outcome)) == (0, False)
    assert "locked" in outcome.err
    holder.execute("ROLLBACK")
    holder.close()
    assert stored(gate(path))


def test_a_store_that_may_only_be_read(
    path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def read_only(file: Path, **options: object) -> sqlite3.Connection:
        return connect(f"file:{file}?mode=ro", uri=True, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("checker.store.sqlite3.connect", read_only)
    assert stored(gate(path))
    write(path.parent, HOLDS + SMALL.replace("= 3", "= 4"))
    outcome = gate(path)
    assert (outcome.code, stored(outcome)) == (0, False)
    assert "readonly" in outcome.err


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(path: Path) -> None:
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        outcome = gate(path)
    finally:
        path.parent.chmod(stat.S_IRWXU)
    assert outcome.code == 0
    assert "cannot be opened" in outcome.err


def test_a_write_that_fails_leaves_all_or_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "v.sqlite")
    store._db.execute(
        "CREATE TRIGGER no BEFORE INSERT ON verdicts WHEN NEW.name = 'q' "
        "BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    with pytest.raises(StoreError, match="full"):
        store.put("k", [FINDING, replace(FINDING, name="q")])
    assert store.get("k", ["p"]) is None
    store.close()


def test_two_runs_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, HOLDS + SMALL + VIOLATED)
    command = [*CHECK, "gate", str(path), "--jobs", "1"]
    runs = [subprocess.Popen(command, stdout=-1, stderr=-1, encoding="utf-8") for _ in range(2)]
    for process in runs:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert "2 of 2 obligations met" in out
    assert "2 from the store" in gate(path).out


def test_code_that_changes_during_the_run_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, HOLDS + SMALL)
    digests = iter(["before", "after"])
    monkeypatch.setattr("checker.store.engine_digest", lambda: next(digests))
    assert gate(path).code == 0
    monkeypatch.setattr("checker.store.engine_digest", lambda: "before")
    assert not stored(gate(path))


def test_only_final_findings_become_rows(tmp_path: Path) -> None:
    store = Store(tmp_path / "v.sqlite")
    findings = [replace(FINDING, name=verdict.value, verdict=verdict) for verdict in Verdict]
    store.put("k", findings)
    rows = store._db.execute("SELECT name FROM verdicts ORDER BY name").fetchall()
    assert rows == [("HOLDS",), ("PROVED",), ("VIOLATED",)]
    store.close()
