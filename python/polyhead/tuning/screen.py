"""The output while the tuner works: the best tiling so far, the time left, candidates that were skipped."""
from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .session import Progress as Silent

SKIPPED_SHOWN = 5


class Screen(Silent):
    """Shows a progress bar on a terminal, otherwise a line per problem and phase. Quiet: only results and what went wrong."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.results = Console(file=sys.stderr, highlight=False)
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[best]}"), TimeRemainingColumn(),
                            console=self.console, transient=True, disable=quiet or not self.console.is_terminal)
        self.row: Any = None
        self.start, self.seconds, self.name, self.skips = 0.0, 1.0, "", 0

    def begin(self, name: str, seconds: float) -> None:
        self.end()
        self.start, self.seconds, self.name, self.skips = time.monotonic(), max(seconds, 1e-9), name, 0
        self.row = self.bar.add_task(name, total=seconds, best="")
        self.bar.start()

    def end(self) -> None:
        if self.row is not None:
            self.bar.remove_task(self.row)
            self.row = None
            self.bar.stop()
        if self.skips > SKIPPED_SHOWN:
            self.console.print("  %d candidates were skipped; the log lists all of them" % self.skips, markup=False)
            self.skips = 0

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def result(self, text: str) -> None:
        self.results.print(text, markup=False, soft_wrap=True)

    def phase(self, text: str) -> None:
        if self.console.is_terminal:
            self.bar.update(self.row, description="%s: %s" % (self.name, text))
        else:
            self.say("%s: %s" % (self.name, text))

    def best(self, ratio: float, text: str, measured: int) -> None:
        self.tick()
        self.bar.update(self.row, best="%d measured, best %.3f of the default's time: %s" % (measured, ratio, text))

    def skipped(self, text: str, why: str) -> None:
        self.skips += 1
        if self.skips <= SKIPPED_SHOWN:
            self.say("  skipped %s: %s" % (text, why))

    def tick(self) -> None:
        self.bar.update(self.row, completed=min(time.monotonic() - self.start, self.seconds))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Prints a table on standard output."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(table, markup=False)
