# SPDX-License-Identifier: BSD-3-Clause
"""soda bench move: figures of what a table costs in each of five ways, and how fast it comes."""
from . import charts
from .texts import size

WAYS = {"stream": "placed: stream", "file": "placed: file", "structs": "placed: structs",
        "host": "serialised by the program", "agent": "serialised by the agent"}


def _cell(row):
    columns = row["columns"]
    return row["transport"], row["bytes"], columns, f"{size(row['bytes'])}\n{columns} column{'s' * (columns > 1)}"


def _clusters(rows, name, say):
    """A cluster for each size and number of columns, in the order in which they were measured."""
    cells = {}
    for row in rows:
        cells.setdefault(_cell(row), {})[row["strategy"]] = row
    clusters = []
    for (_, _, _, label), of in cells.items():
        marks = []
        for way in WAYS:
            value = of[way][name] if way in of else None
            marks.append(charts.Mark("", [] if value is None else [value],
                                     title=f"{WAYS[way]}: {'not measured' if value is None else say(value)}"))
        clusters.append(charts.Cluster(label, marks))
    return clusters


def _figure(document, name, title, axis, member, say, log):
    transports = list(dict.fromkeys(row["transport"] for row in document["arrow"]))
    panels = [(transport, _clusters([row for row in document["arrow"] if row["transport"] == transport], member, say))
              for transport in transports]
    return charts.bars(charts.Bars(name, title, axis, panels, [(text, way) for way, text in WAYS.items()],
                                   list(WAYS), log=log))


def figures(document):
    """SVG by name; none where no tables were measured."""
    if not document["arrow"]:
        return {}
    return {
        "movement-rate": _figure(document, "movement-rate", "How fast a table comes, in each of five ways", "GB/s",
                                 "gb_per_s", lambda value: f"{value:.2f} GB/s", False),
        "movement-host": _figure(document, "movement-host", "What a table costs the program, in each of five ways",
                                 "CPU us of the program, a table", "host_us", lambda value: f"{value:.0f} us", True),
    }
