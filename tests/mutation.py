"""A private copy of the model, with one rule left out or as it is.

A copy is imported from edited source beside the real modules, so a test can hold the two against
the recorded runs in one process.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"
KINDS = ("vllm", "rbln")
KINDS_OF: dict[str, tuple[str, ...]] = {
    "models/vllm.py": ("vllm",),
    "models/rbln.py": ("rbln",),
    "checker/fields.py": (),
}
PACKAGES = ("models", "checker", "properties")
MODULES = (
    "config",
    "environment",
    "gates",
    "kv_cache",
    "rbln",
    "scheduler",
    "script",
    "state",
    "vllm",
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """``rule`` left out: what is done instead, and the edit of one file that does it."""

    rule: str
    instead: str
    file: str
    old: str
    new: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of recorded runs that the edited file has a part in."""
        return KINDS_OF.get(self.file, KINDS)

    @property
    def source(self) -> str:
        """The edited source.

        Raises
        ------
        ValueError
            If the old text is not there exactly once: the model has changed, adapt the mutant.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        found = text.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.rule}: {found} places in {self.file} have the text {self.old!r}"
            )
        return text.replace(self.old, self.new)


class Model:
    """The modules of one copy, by their short names."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        return self._modules[name]


def load(mutants: Sequence[Mutant] = (), also: Sequence[str] = ()) -> Model:
    """Import a copy of the model with the edits of ``mutants`` made.

    ``also`` has further modules to be imported over it, by their full names.
    """
    finder = _EditedSource({mutant.file: mutant.source for mutant in mutants})
    real = _take_out_modules()
    sys.meta_path.insert(0, finder)
    try:
        modules = {name: importlib.import_module(f"models.{name}") for name in MODULES}
        for name in ("checker.conform", "checker.fields", *also):
            modules[name.rpartition(".")[2]] = importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        _take_out_modules()
        sys.modules.update(real)
    modules["conform"].read_run = _read_run  # type: ignore[attr-defined]
    return Model(modules)


def disagreeing(model: Model, kind: str) -> Iterator[str]:
    """The recorded runs of a kind that a model does not reproduce, or breaks down on."""
    for path in recorded_runs(kind):
        try:
            agrees = model.conform.compare(path).mismatch is None
        except Exception:
            agrees = False
        if not agrees:
            yield f"{kind}-{path.stem}"


def recorded_runs(kind: str) -> list[Path]:
    """The files of the recorded runs of a kind, in order."""
    return sorted((GOLDEN / kind).glob("*.json"))


@cache
def _read_run(path: Path) -> dict[str, Any]:
    """A recorded run, parsed once for all the models that it is compared with."""
    from checker import conform

    return conform.read_run(path)


def _take_out_modules() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    return {name: sys.modules.pop(name) for name in names}


class _EditedSource(MetaPathFinder):
    """Finds the files to be edited, and loads them from the edited source."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = {str(ROOT / file): source for file, source in sources.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin in self._sources:
            spec.loader = _EditedLoader(fullname, spec.origin, self._sources[spec.origin])
        return spec


class _EditedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec")
