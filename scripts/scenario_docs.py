"""Write the generated parts of ``docs/scenarios.md``: fields and presets.

python scripts/scenario_docs.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from checker.fields import DRAFTERS, FIELDS, NAME, REQUEST_FIELDS, Field, FieldError
from checker.render import instance_line
from checker.scenario import build, preset_names, read_preset

PAGE = Path(__file__).parent.parent / "docs" / "scenarios.md"
K = 1000  # large enough to tell multiples of k from constants


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def current(page: str) -> str:
    """The page with its generated parts made anew."""
    parts = {"fields": _fields(), "drafters": _drafters(), "presets": _presets()}
    for name, text in parts.items():
        page, count = re.subn(
            rf"(<!-- {name}, generated -->\n).*?(<!-- end -->)",
            lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(f"the page needs one part {name!r}")
    return page


def _fields() -> str:
    sections = dict.fromkeys(field.section for field in FIELDS)
    tables = ["At the top of the file\n\n" + _table([NAME], options=False)]
    for section in sections:
        fields = [field for field in FIELDS if field.section == section]
        tables.append(f"### `[{section}]`\n\n" + _table(fields, options=True))
    tables.append("### `[[requests]]`\n\n" + _table(REQUEST_FIELDS, options=False))
    return "\n\n".join(tables)


def _table(fields: Sequence[Field], *, options: bool) -> str:
    rows = []
    for field in fields:
        cells = [
            f"`{field.name}`",
            *([f"`{field.flag}`"] if options else []),
            field.unit or "-",
            _default(field),
            _allowed(field),
            field.doc,
        ]
        rows.append(cells)
    head = ["field", *(["option"] if options else []), "unit", "default", "allowed", "meaning"]
    return _markdown([head, *rows])


def _default(field: Field) -> str:
    if field.default is not None:
        default = field.default
        return f"`{str(default).lower() if isinstance(default, bool) else default}`"
    try:
        field.parse(None)
    except FieldError:
        return "the file's name" if field is NAME else "required"
    return "by `method`" if field.section == "speculation" else "left out"


def _allowed(field: Field) -> str:
    """What the field says of a value that it cannot allow."""
    try:
        field.parse(object())
    except FieldError as error:
        words = str(error).removeprefix("must be ").removeprefix("one of ")
        return re.sub(r"'([^']*)'", r"`\1`", words)
    raise AssertionError(f"{field.path} allows anything")


def _drafters() -> str:
    rows = [
        [f"`{name}`", *(_in_terms_of_k(value) for value in drafter(K))]
        for name, drafter in DRAFTERS.items()
    ]
    return _markdown([["`method`", "`num_lookahead_tokens`", "`draft_slots`"], *rows])


def _in_terms_of_k(value: int) -> str:
    times, constant = divmod(value, K)
    if not times:
        return str(constant)
    return "k" + (f" + {constant}" if constant else "")


def _presets() -> str:
    entries = []
    for name in preset_names():
        text = (resources.files("checker") / "presets" / f"{name}.toml").read_text("utf-8")
        comment = " ".join(
            line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")
        )
        line = instance_line(build(read_preset(name), name)).replace(", prompt-only", "", 1)
        entries.append(f"- **`{name}`**: {comment}<br>\n  `{line}`")
    return "\n".join(entries)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    main()
