"""The build beyond ``pyproject.toml``: the pages that ``check explain`` reads go along."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

from setuptools import setup
from setuptools.command.build_py import build_py

PAGES = ("rules.md", "policies.md", "theorems.md", "terms.md")  # as in checker/explain.py


class BuildWithPages(build_py):
    """Copies the pages into the package; an editable install reads them in ``docs``."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "checker", "docs")
        target.mkdir(parents=True, exist_ok=True)
        for page in PAGES:
            copy(Path(__file__).parent / "docs" / page, target / page)


setup(cmdclass={"build_py": BuildWithPages})
