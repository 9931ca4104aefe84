# SPDX-License-Identifier: BSD-3-Clause
"""Charts, drawn by matplotlib, as SVG text.  Colours are names of palette.py."""
import io
from dataclasses import dataclass, field

import matplotlib

matplotlib.use("svg")

from matplotlib.figure import Figure  # noqa: E402  pylint: disable=wrong-import-position
from matplotlib.patches import Patch  # noqa: E402  pylint: disable=wrong-import-position

from . import svg  # noqa: E402  pylint: disable=wrong-import-position
from .palette import stand_in  # noqa: E402  pylint: disable=wrong-import-position

WIDTH = 9.6  # inches
_STYLE = {
    "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9.5, "axes.labelsize": 9.5,
    "text.color": stand_in("ink"), "axes.labelcolor": stand_in("muted"), "axes.edgecolor": stand_in("line"),
    "xtick.color": stand_in("ink"), "ytick.color": stand_in("muted"), "xtick.major.size": 0, "ytick.major.size": 0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": stand_in("line"), "grid.linewidth": 0.6,
    "axes.axisbelow": True, "legend.frameon": False, "legend.fontsize": 9, "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass
class Mark:
    """A bar, or a stack of them; parts empty: absent says why there is none."""
    label: str
    parts: list                 # heights
    least: float = None         # whiskers
    most: float = None
    absent: str = "not measured"
    title: str = ""             # what pointing at it says


@dataclass
class Cluster:
    label: str
    marks: list


@dataclass
class Bars:
    """Clusters of bars, a panel for each of several things; colours: of marks, or of parts where there are several."""
    name: str                   # begins all ids of the drawing
    title: str
    axis: str
    panels: list                # of (heading, [Cluster])
    legend: list                # of (text, colour)
    colours: list
    stacked: bool = False
    line_at: float = None
    log: bool = False           # the axis
    _titles: dict = field(default_factory=dict)


def _save(figure, name, title, titles):
    out = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(out, format="svg", bbox_inches="tight", pad_inches=0.06, metadata={"Date": None})
    return svg.finish(out.getvalue(), name, title, titles)


def _put_absent(axes, x, why):
    """In the place of the bar, so that what is missing is seen."""
    axes.annotate("✕" if why == "none valid" else "–", (x, 0), xytext=(0, 2), textcoords="offset points", ha="center",
                  va="bottom", color=stand_in("bad" if why == "none valid" else "muted"), fontsize=8)


def _put_mark(chart, axes, mark, x, width, index):
    """Its bars, from the bottom up."""
    base = 0.0
    if not mark.parts:
        _put_absent(axes, x, mark.absent)
    for part, height in enumerate(mark.parts):
        if not height and chart.stacked:
            continue
        gid = f"{chart.name}-{len(chart._titles)}"  # pylint: disable=protected-access
        bar, = axes.bar(x, height, width, base, color=stand_in(chart.colours[part if chart.stacked else index]),
                        edgecolor=stand_in("paper" if chart.stacked else "ink"), linewidth=0.4)
        bar.set_gid(gid)
        chart._titles[gid] = mark.title  # pylint: disable=protected-access
        base += height
    if mark.parts and mark.most is not None and mark.most > mark.least:
        axes.errorbar(x, base, [[max(base - mark.least, 0)], [max(mark.most - base, 0)]], ecolor=stand_in("ink"),
                      elinewidth=0.9, capsize=2, fmt="none")


def _put_panel(chart, axes, heading, clusters):
    widest = max(len(cluster.marks) for cluster in clusters)
    step = 0.84 / widest
    places, labels = [], []
    for number, cluster in enumerate(clusters):
        for index, mark in enumerate(cluster.marks):
            x = number + (index - (len(cluster.marks) - 1) / 2) * step
            _put_mark(chart, axes, mark, x, step * (0.82 if chart.stacked else 0.94), index)
            places.append(x)
            labels.append(mark.label)
    if chart.stacked:
        axes.set_xticks(places, labels, rotation=90, fontsize=7.5)
        for number, cluster in enumerate(clusters):
            axes.annotate(cluster.label, (number, 1), xycoords=("data", "axes fraction"), xytext=(0, 4),
                          textcoords="offset points", ha="center")
    else:
        axes.set_xticks(range(len(clusters)), [cluster.label for cluster in clusters])
    if chart.line_at is not None:
        axes.axhline(chart.line_at, color=stand_in("ink"), linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)
    axes.set_xlim(-0.55, len(clusters) - 0.45)
    if chart.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(chart.axis)
    if heading:
        axes.set_title(heading, loc="left", fontsize=10, color=stand_in("ink"), pad=18 if chart.stacked else 6)


def bars(chart):
    """SVG of a Bars."""
    with matplotlib.rc_context(_STYLE):
        rows = len(chart.panels)
        height = 3.5 if chart.stacked else 3.1
        figure = Figure(figsize=(WIDTH, height * rows + 0.5), layout="constrained")
        for axes, (heading, clusters) in zip(figure.subplots(rows, squeeze=False)[:, 0], chart.panels):
            _put_panel(chart, axes, heading, clusters)
        handles = [Patch(facecolor=stand_in(colour), edgecolor=stand_in("ink"), linewidth=0.4, label=text)
                   for text, colour in chart.legend]
        figure.legend(handles=handles, loc="upper left", ncols=len(handles), handlelength=1, handleheight=1,
                      bbox_to_anchor=(0.05, 1.0 + 0.28 / figure.get_figheight()), columnspacing=1.4, borderaxespad=0)
    return _save(figure, chart.name, chart.title, chart._titles)  # pylint: disable=protected-access


@dataclass
class Line:
    text: str
    colour: str
    values: list
    steps: bool = False         # a value is that of the time before it
    dashed: bool = False


def lines(name, title, times, panels):
    """SVG of panels, [(axis, [Line])], over the same times, in seconds."""
    with matplotlib.rc_context({**_STYLE, "xtick.color": stand_in("muted")}):
        figure = Figure(figsize=(WIDTH, 1.75 * len(panels) + 0.3), layout="constrained")
        rows = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
        titles = {}
        for axes, (axis, drawn) in zip(rows, panels):
            for line in drawn:
                gid = f"{name}-{len(titles)}"
                titles[gid] = line.text
                axes.plot(times, line.values, color=stand_in(line.colour), linewidth=1.4, label=line.text, gid=gid,
                          drawstyle="steps-pre" if line.steps else "default",
                          linestyle=(0, (4, 2)) if line.dashed else "-")
            axes.set_ylim(bottom=0)
            axes.set_xlim(0, times[-1] or None)
            axes.set_ylabel(axis)
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=1.6)
        rows[-1].set_xlabel("seconds")
    return _save(figure, name, title, titles)
