# SPDX-License-Identifier: BSD-3-Clause
"""The pages, from templates/: what each template is given."""
import os
import shlex
from dataclasses import dataclass

import jinja2

from . import charts, evaluation, palette, svg, texts
from .figures import FIGURES
from .program import Program

_TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")


def _environment():
    env = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True,
                             lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    env.filters.update(count=texts.count, size=texts.size, significant=texts.significant, fixed=texts.fixed,
                       between=texts.between, between_fixed=texts.between_fixed, variable=palette.variable)
    env.globals["colours"] = palette.css()
    return env


@dataclass(frozen=True)
class Drawn:
    """A figure, and the numbers behind it."""
    figure: object
    svg: str        # None: there is nothing to be seen
    rows: list      # of (mode, [Value])

    @property
    def tried(self):
        return any(value.state == evaluation.INVALID for _, values in self.rows for value in values)


def _pointed_at(app, mode, value):
    if not value.spread:
        return f"{app}, {mode}: {value.state}"
    told = f"{app}, {mode}: {texts.fixed(value.spread.median)}"
    return told + (f" ({texts.between_fixed(value.spread)})" if value.spread.varies else "")


def _mark(found, figure, kind, mode):
    value = found.value(figure, *kind, mode)
    spread = value.spread
    parts = found.parts(figure, *kind, mode) if figure.by_kind else [spread.median] if spread else []
    return charts.Mark(mode, parts, spread and spread.least, spread and spread.most, value.state,
                       _pointed_at(kind[1], mode, value))


def _draw(found, figure):
    modes = found.series(figure)
    kinds = evaluation.KINDS
    panels = [(graph if len(found.graphs) > 1 else "",
               [charts.Cluster(app, [_mark(found, figure, (graph, app), mode) for mode in modes])
                for app in found.apps]) for graph in found.graphs]
    return charts.bars(charts.Bars(
        name=figure.id, title=figure.title, axis=figure.axis, panels=panels, stacked=figure.by_kind,
        legend=[(text, key) for key, text in kinds.items()] if figure.by_kind else [(mode, mode) for mode in modes],
        colours=list(kinds) if figure.by_kind else modes, line_at=figure.line_at))


def _drawn(found, figure):
    rows = [(mode, [found.value(figure, *kind, mode) for kind in found.kinds()]) for mode in found.series(figure)]
    return Drawn(figure, _draw(found, figure) if found.has_values(figure) else None, rows)


def _summary(found):
    """(figure, [(mode, extent, the paper's words)]) where there is anything; of modes that the paper has a word on,
    else of all."""
    for figure in FIGURES:
        modes = [mode for mode in found.modes if mode in (figure.paper or figure.series)]
        rows = [(mode, found.extent(figure, mode), figure.paper.get(mode, "")) for mode in modes]
        rows = [row for row in rows if row[1]]
        if rows:
            yield figure, rows


@dataclass(frozen=True)
class Times:
    """Cells of all modes that were run with so many processes."""
    processes: int
    modes: list
    rows: list      # of (graph, app, [Cell])

    def runs(self, column):
        """How many runs the medians of a mode are of, from the fewest to the most."""
        counts = [row[2][column].n for row in self.rows]
        return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}{texts.DASH}{max(counts)}"


def _times(found, processes):
    modes = found.tried(processes)
    return Times(processes, modes, [(*kind, [found.cell(*kind, mode, processes) for mode in modes])
                                    for kind in found.kinds()])


def evaluation_page(document):
    """(HTML, {name: SVG file}) of results of soda eval."""
    found = evaluation.Evaluation(document)
    drawn = [_drawn(found, figure) for figure in FIGURES]
    page = _environment().get_template("evaluation.html").render(
        found=found, plan=found.plan, machine=document["machine"], drawn=drawn, summary=list(_summary(found)),
        times=[times for times in (_times(found, 1), _times(found, 2)) if times.modes], modes=evaluation.MODES,
        disk_modes=[mode for mode in found.modes if mode in evaluation.DISK_MODES],
        invalid=[run for run in found.runs if not run["valid"]])
    return page, {one.figure.id: svg.stand_alone(one.svg) for one in drawn if one.svg}


def _curves(program):
    steps = program.steps()

    def line(text, colour, member, **how):
        return charts.Line(text, colour, [getattr(step, member) for step in steps], **how)

    return charts.lines("run", "What the program did with fabric memory, over time", [step.seconds for step in steps], [
        ("MiB", [line("reserved", "reserved", "reserved_mib"), line("page buffer", "buffer", "buffer_mib", dashed=True),
                 line("resident", "resident", "resident_mib")]),
        ("faults/s", [line("faults", "faults", "faults_per_s", steps=True)]),
        ("threads", [line("stalled", "stalled", "stalled_threads", steps=True)]),
        ("MiB/s", [line("fetched", "fetched", "fetched_mib_per_s", steps=True),
                   line("written", "written", "written_mib_per_s", steps=True)]),
    ])


def program_page(document):
    """HTML of what soda run has written."""
    program = Program(document)
    return _environment().get_template("program.html").render(
        program=program, machine=document["machine"], command=shlex.join(document["command"]),
        status=document["status"], settings=document["settings"], curves=_curves(program) if program.n else None)
