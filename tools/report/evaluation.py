# SPDX-License-Identifier: BSD-3-Clause
"""soda eval: from its runs to medians, and to the values of figures."""
from dataclasses import dataclass
from functools import cached_property

from . import spread

MODES = {
    "dram": "all in local memory, not capped",
    "ssd": "graph files of the local disk, mapped (mmap)",
    "ssd+readahead": "the same, with the readahead that the disk has here",
    "ssd+advice": "ssd, and the program does there what it does on fabric memory: passes back and forth, "
                  "MADV_SEQUENTIAL, and MADV_WILLNEED for what it reads next",
    "memserver": "fabric memory: the memory server directly, without an agent",
    "base": "through the DPU agent, a plain proxy",
    "agg": "base, and task aggregation",
    "async": "base, and asynchronous forwarding",
    "static": "base, and the static cache, which holds vertex data; over shm programs read it where it lies, in the "
              "agent's memory, which no cap counts",
    "dynamic": "base, and the dynamic cache, which holds edge data",
    "dynamic-paper": "base, and the dynamic cache as the paper has it: it evicts at random, and fetches ahead by the "
                     "paper's model (policy random, prefetch-limit model)",
    "static+dynamic": "base, and both caches",
    "agg+async": "base, and aggregation and asynchronous forwarding",
    "store": "agg+async, and the node's store, in which the processes share the graph; it has what their page buffers "
             "leave of what they have in the other modes",
    "all": "the agent with everything on but the store; the static cache as in static",
}
DISK_MODES = ("ssd", "ssd+readahead", "ssd+advice")
KINDS = {"on_demand": "on demand", "prefetch": "prefetch", "write_back": "write-back", "preload": "preload"}

OK, INVALID, NOT_RUN = "ok", "none valid", "not measured"


def _per_run(runs, *path, scale=1):
    values = []
    for run in runs:
        value = run
        for key in path:
            value = value.get(key) if value else None
        values.append(None if value is None else value * scale)
    return spread.of(values)


def _hit_rate(run):
    hits = run.get("hits", 0) + run.get("late_hits", 0)
    asked = hits + run.get("misses", 0)
    return hits / asked if asked else None


@dataclass(frozen=True)
class Cell:
    """The repetitions of one kind of run: of each the last try counts, and only if it is valid."""
    runs: tuple     # valid ones
    invalid: int    # repetitions that have none

    @property
    def n(self):
        return len(self.runs)

    @property
    def state(self):
        return OK if self.runs else INVALID if self.invalid else NOT_RUN

    @cached_property
    def seconds(self):
        return _per_run(self.runs, "seconds")

    @cached_property
    def traffic(self):
        return _per_run(self.runs, "traffic", "total")

    @cached_property
    def hit_rate(self):
        return spread.of(map(_hit_rate, self.runs))

    def kind(self, name):
        return _per_run(self.runs, "traffic", name)

    def cpu_seconds(self, who):
        return _per_run(self.runs, f"{who}_cpu_ns", scale=1e-9)


@dataclass(frozen=True)
class Value:
    """A point of a figure: its spread, or why there is none."""
    spread: object
    state: str


class Evaluation:
    """The document of soda eval, to be asked for cells and values."""

    def __init__(self, document):
        self.document = document
        self.plan = document["plan"]
        self.graphs = [graph["name"] for graph in document["graphs"]]
        self.apps = self.plan["apps"]
        self.modes = [mode for mode in MODES if mode in self.plan["modes"]]
        self._last = {}
        for run in document["runs"]:
            kind = (run["graph"], run["app"], run["mode"], run["processes"])
            self._last.setdefault(kind, {})[run["repetition"]] = run

    @property
    def runs(self):
        return self.document["runs"]

    def cell(self, graph, app, mode, processes=1):
        tries = self._last.get((graph, app, mode, processes), {}).values()
        valid = tuple(run for run in tries if run["valid"])
        return Cell(valid, len(tries) - len(valid))

    def kinds(self):
        """(graph, application), in the plan's order."""
        return [(graph, app) for graph in self.graphs for app in self.apps]

    def tried(self, processes):
        """The modes that were run at all, so often beside each other."""
        return [mode for mode in self.modes
                if any(self.cell(*kind, mode, processes).state != NOT_RUN for kind in self.kinds())]

    def reference(self, figure, graph, app):
        """What a figure's values are relative to: where there are several, the fastest."""
        cells = [self.cell(graph, app, mode, figure.processes) for mode in figure.reference]
        return min((cell for cell in cells if cell.n), key=lambda cell: cell.seconds.median, default=None)

    def value(self, figure, graph, app, mode):
        cell = self.cell(graph, app, mode, figure.processes)
        if not cell.n:
            return Value(None, cell.state)
        found = figure.quantity(cell, self.reference(figure, graph, app))
        return Value(found, OK if found else NOT_RUN)

    def parts(self, figure, graph, app, mode):
        """The kinds of traffic, in units of the reference's total; empty: not known."""
        cell, reference = self.cell(graph, app, mode, figure.processes), self.reference(figure, graph, app)
        if not cell.n or not reference or not reference.traffic or not reference.traffic.median:
            return []
        medians = [cell.kind(name) for name in KINDS]
        return [part.median / reference.traffic.median for part in medians] if all(medians) else []

    def series(self, figure):
        return [mode for mode in self.modes if mode in figure.series]

    def has_values(self, figure):
        return any(self.value(figure, *kind, mode).spread for kind in self.kinds() for mode in self.series(figure))

    def extent(self, figure, mode):
        """The least and the most median of a mode over graphs and applications; None: it has none."""
        values = [self.value(figure, *kind, mode).spread for kind in self.kinds()]
        return spread.of(value.median if value else None for value in values)

    def interface(self):
        """What the interface carried over what was counted, over all valid runs that say both."""
        ratios = []
        for run in self.runs:
            counted, carried = run.get("traffic", {}).get("total"), run.get("interface_bytes")
            ratios.append(carried / counted if run["valid"] and counted and carried else None)
        return spread.of(ratios)

    def readahead_kib(self, mode):
        """That of a mode's last run; None: not known."""
        found = [run.get("readahead_kib") for run in self.runs if run["mode"] == mode]
        return next((kib for kib in reversed(found) if kib), None)
