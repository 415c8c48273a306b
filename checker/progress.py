"""Progress of a long search on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from checker.explore import Progress

FIRST_AFTER = 1.0  # seconds before anything is shown
PLAIN_EVERY = 10.0  # seconds between two lines where stderr is not a terminal


@contextmanager
def progress() -> Iterator[Callable[[Progress], None]]:
    """A callback that shows how far the search is; leaves the terminal as it was."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.status import Status

        status = Status("", console=Console(stderr=True))
        started = False

        def live(now: Progress) -> None:
            nonlocal started
            if now.seconds >= FIRST_AFTER:
                status.update(_words(now))
                if not started:
                    status.start()
                    started = True

        try:
            yield live
        finally:
            status.stop()
        return

    last = time.monotonic()

    def plain(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_EVERY:
            last = time.monotonic()
            print(_words(now), file=sys.stderr, flush=True)

    yield plain


def _words(now: Progress) -> str:
    rate = now.transitions / now.seconds if now.seconds else 0
    return (
        f"{now.explored:,} of {now.states:,} states explored, {now.transitions:,} transitions, "
        f"depth {now.depth}, {now.seconds:.0f} s ({rate:,.0f} transitions/s)"
    )
