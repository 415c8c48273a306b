"""The few SVG elements that the pictures are made of: escaped, self-contained, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

# Requests keep their colour wherever they are drawn; chosen to be told apart on white and on black,
# and by people who do not see red and green apart (after Okabe and Ito).
PALETTE = ("#0b72b5", "#b86a00", "#00805d", "#b0508a", "#6a65c4", "#86690f", "#2b7d84", "#bf4f37")
STYLE = """
svg { --ink: #1c2128; --soft: #59636e; --line: #c4ccd5; --paper: #ffffff; --box: #f3f5f8;
 --bad: #c4162a; --warn: #8f5a00; --warnfill: #ffefcf; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --soft: #9ca7b3; --line: #424a53;
 --paper: #0d1117; --box: #171d25; --bad: #ff7b72; --warn: #f0b429; --warnfill: #3a2c0a;
 --good: #3fb950; } }
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); } .title { font-weight: 600; font-size: 15px; } .bold { font-weight: 600; }
.bad { fill: var(--bad); } .warn { fill: var(--warn); } .good { fill: var(--good); }
.mid { text-anchor: middle; } .end { text-anchor: end; } .small { font-size: 11px; }
.onfill { fill: #ffffff; font-weight: 600; text-anchor: middle; }
"""
# What XML 1.0 has no way to write.
UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text_of(words: object) -> str:
    """Words as character data or as an attribute; what XML cannot write becomes U+FFFD."""
    return escape(UNWRITABLE.sub("\ufffd", str(words)), quote=True)


def element(name: str, *content: str, **attributes: object) -> str:
    """An element; ``class_`` is ``class``, other underscores are hyphens, content is not escaped."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text_of(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{words}>{''.join(content)}</{name}>" if content else f"<{name}{words}/>"


def text(x: float, y: float, words: object, class_: str | None = None) -> str:
    """A line of text with its baseline at ``y``."""
    return element("text", text_of(words), x=x, y=y, class_=class_)


def title(words: object) -> str:
    """What is shown when the pointer rests on the element, and read aloud."""
    return element("title", text_of(words))


def picture(width: float, height: float, name: str, content: Iterable[str], style: str = "") -> str:
    """A whole SVG document, ``name`` being what it shows in words."""
    body = "\n".join(content)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_short(width)}" '
        f'height="{_short(height)}" viewBox="0 0 {_short(width)} {_short(height)}" role="img">\n'
        f"{title(name)}\n<style>{STYLE}{style}</style>\n"
        '<rect width="100%" height="100%" style="fill: var(--paper)"/>\n'
        f"{body}\n</svg>\n"
    )


def colour(index: int) -> str:
    """The colour of a request."""
    return PALETTE[index % len(PALETTE)]


def wide(words: str, size: float = 12) -> float:
    """About how many pixels a text takes."""
    return sum(1.0 if ord(letter) > 0x2E7F else 0.58 for letter in words) * size


def cut(words: str, pixels: float, size: float = 12) -> str:
    """Words, ended with an ellipsis where there is no room for all."""
    while len(words) > 1 and wide(words, size) > pixels:
        words = words[:-2].rstrip() + "…" if words.endswith("…") else words[:-1].rstrip() + "…"
    return words


def _short(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
