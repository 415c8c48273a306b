"""Verdicts kept between runs, keyed by the content of everything that they depend on.

The key of a verdict is a hash of its task (the whole resolved scenario, the limits), the source of
the model, the properties and the checker, the source of the person's own policy and of what it
imports, and the versions of Python and of the solvers. Only final verdicts are kept. Every row has
a checksum; a row that does not match its own is as good as absent. A store that cannot be used is
said to be so, and nothing is read from it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from checker.policy import load_gate
from checker.tasks import Finding, Task
from models.gates import GATES
from properties.verdict import Verdict

APPLICATION_ID = 0x6B766761  # marks the file as ours
LAYOUT = 1  # of the rows; another layout is another file
BUSY_SECONDS = 5.0  # how long another run may hold the lock
FINAL = (Verdict.PROVED, Verdict.HOLDS, Verdict.VIOLATED)
OWN = ("models", "properties", "checker")
SOLVERS = ("z3-solver", "cvc5", "networkx")
CREATE = """
CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT NOT NULL, name TEXT NOT NULL, payload TEXT NOT NULL, checksum TEXT NOT NULL,
    PRIMARY KEY (key, name)
) WITHOUT ROWID
"""


class StoreError(Exception):
    """A store that cannot be used; the message says why, and what to do."""


class Store:
    """The verdicts in one SQLite file.

    Raises
    ------
    StoreError
        If the file is not a store, is damaged, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is not a file")
            _folder(path.parent)
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._db.text_factory = _text
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be opened ({error})") from error
        try:
            self._prepare()
        except StoreError:
            self._db.close()
            raise
        except sqlite3.Error as error:
            self._db.close()
            raise self._fault(error) from error

    def _prepare(self) -> None:
        """Mark a new file as a store; refuse one that is something else."""
        mark = self._pragma("application_id"), self._pragma("user_version")
        if mark == (APPLICATION_ID, LAYOUT):
            return
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if mark != (0, 0) or tables:
            raise StoreError(
                f"{self.path} is not a store of this version; delete it or name another"
            )
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(CREATE)
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {LAYOUT}")
        self._db.execute("COMMIT")

    def _pragma(self, name: str) -> int:
        (value,) = self._db.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    def get(self, key: str, names: Sequence[str]) -> list[Finding] | None:
        """The findings of a task by name; ``None`` unless every one is there and whole."""
        found = []
        for name in names:
            try:
                row = self._db.execute(
                    "SELECT payload, checksum FROM verdicts WHERE key = ? AND name = ?", (key, name)
                ).fetchone()
            except sqlite3.Error as error:
                raise self._fault(error) from error
            finding = None if row is None else _read(key, name, *row)
            if finding is None:
                return None
            found.append(finding)
        return found

    def put(self, key: str, findings: Sequence[Finding]) -> None:
        """Keep the final ones of a task's findings, all or none."""
        rows = []
        for finding in findings:
            if finding.verdict in FINAL:
                payload = json.dumps(asdict(finding) | {"verdict": finding.verdict.value})
                rows.append((key, finding.name, payload, _checksum(key, finding.name, payload)))
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?)", rows)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _fault(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.OperationalError):
            return StoreError(f"{self.path} cannot be used now ({error})")
        return StoreError(f"{self.path} is damaged or not a store ({error}); delete it")


def _text(stored: bytes) -> str:
    """Text as it was stored; what is no text has no checksum that fits."""
    return stored.decode("utf-8", "replace")


def _folder(folder: Path) -> None:
    """Make the folder of a store, which version control is to leave alone."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def _checksum(key: str, name: str, payload: str) -> str:
    return hashlib.sha256("\0".join((key, name, payload)).encode()).hexdigest()


def _read(key: str, name: str, payload: object, checksum: object) -> Finding | None:
    """The finding of a row; ``None`` if the row is not what was written."""
    if not isinstance(payload, str) or checksum != _checksum(key, name, payload):
        return None
    fields = json.loads(payload)
    finding = Finding(**fields | {"verdict": Verdict(fields["verdict"])})
    return finding if finding.name == name and finding.verdict in FINAL else None


# --- keys --------------------------------------------------------------------------------------


class Keys:
    """Keys of tasks. Which files a policy consists of is found out once, its gate being loaded."""

    def __init__(self) -> None:
        self._files: dict[str, list[tuple[str, Path]]] = {}

    def of(self, task: Task, engine: str) -> str:
        """A hash of all that a task's verdicts depend on, the policy as it is on the disk now."""
        if task.policy not in self._files:
            self._files[task.policy] = _policy_files(task.policy)
        policy = [(name, _content(path)) for name, path in self._files[task.policy]]
        parts: list[Any] = [LAYOUT, asdict(task), engine, policy]
        return _hash(json.dumps(parts, sort_keys=True).encode())


def engine_digest() -> str:
    """A hash of the model, the properties, the checker as they are now, and of what they run on."""
    root = Path(__file__).parent.parent
    sources = sorted(path for name in OWN for path in (root / name).rglob("*.py"))
    parts = [(path.relative_to(root).as_posix(), _content(path)) for path in sources]
    versions = [(name, _version(name)) for name in ("kvgate", *SOLVERS)]
    return _hash(json.dumps([parts, versions, sys.version]).encode())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _policy_files(policy: str) -> list[tuple[str, Path]]:
    """The modules behind a policy, each with its file: its own, and all that they import."""
    if policy in GATES:
        return []
    load_gate(policy)
    name = policy.rpartition(":")[0]
    pending = [f"kvgate_policy_{Path(name).stem}" if name.endswith(".py") else name]
    found: dict[str, Path] = {}
    while pending:
        module = pending.pop()
        if module in found or _is_known(module):
            continue
        file = _locate(module)
        if file is not None:
            found[module] = file
            pending += [*_named_imports(module, file), *_origins(module)]
            pending.append(module.rpartition(".")[0])
    return sorted(found.items())


def _is_known(module: str) -> bool:
    """Whether a module is Python's or kvgate's, whose versions and sources are in every key."""
    top = module.partition(".")[0]
    return not top or top in sys.stdlib_module_names or top in OWN


def _locate(module: str) -> Path | None:
    """The file of a module, which is not imported for it."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None:
        return Path(file)
    path: Sequence[str] | None = None
    origin = None
    for end, _ in enumerate(parts := module.split("."), 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return None
        path, origin = spec.submodule_search_locations or [], spec.origin
    return None if origin is None else Path(origin)


def _named_imports(module: str, file: Path) -> Iterator[str]:
    """What the import statements of a module name, wherever in it they stand."""
    if file.suffix != ".py":
        return
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _origins(module: str) -> Iterator[str]:
    """The modules that the names in a module come from, however they came there."""
    for value in list(vars(sys.modules[module]).values()) if module in sys.modules else ():
        name = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
        if name in sys.modules:
            yield name


def _module_of(value: object) -> str:
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


def _content(path: Path) -> str | None:
    """A hash of a file; ``None`` if it is gone."""
    try:
        return _hash(path.read_bytes())
    except OSError:
        return None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
