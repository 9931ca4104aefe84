# SPDX-License-Identifier: BSD-3-Clause
"""From arguments to files."""
import argparse
import os
import sys

from . import movement, pages, shapes, svg, tables
from .reading import Unreadable

_EPILOG = """results: results.json of soda eval (its page is report.html beside it, with figures/), the JSON of
soda run --report (its page has the same name and .html), or that of soda bench fault, dpu, messages, node or move with
--json (tables in Markdown, on standard output; several files have one table). Of bench move --out FILE.md writes
the tables into a file, and figures beside it."""


def _write(path, text):
    """All of it or nothing: a page that is there stays until the new one is whole."""
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def _evaluation(document, path, page):
    folder = os.path.dirname(os.path.abspath(page or path))
    html, figures = pages.evaluation_page(document)
    os.makedirs(os.path.join(folder, "figures"), exist_ok=True)
    for name, drawn in figures.items():
        _write(os.path.join(folder, "figures", f"{name}.svg"), drawn)
    page = page or os.path.join(os.path.dirname(path), "report.html")
    _write(page, html)
    return page


def _program(document, path, page):
    page = page or os.path.splitext(path)[0] + ".html"
    _write(page, pages.program_page(document))
    return page


def _movement(document, path, page):
    """Tables, and figures beside them."""
    folder = os.path.dirname(os.path.abspath(page))
    drawn = movement.figures(document)
    for name, figure in drawn.items():
        _write(os.path.join(folder, f"{name}.svg"), svg.stand_alone(figure))
    shown = "".join(f"![{name}]({name}.svg)\n\n" for name in drawn)
    _write(page, shown + tables.markdown([(path, "soda-bench-move", document)]))
    return page


_PAGES = {"soda-eval": _evaluation, "soda-run": _program, "soda-bench-move": _movement}


def _arguments(words):
    parser = argparse.ArgumentParser(prog="soda report", epilog=_EPILOG,
                                     description="Pages, figures and tables from results of soda.")
    parser.add_argument("results", nargs="+", metavar="RESULTS.json")
    parser.add_argument("--out", "-o", metavar="PAGE.html", help="the page, if it is to have another name")
    return parser.parse_args(words)


def _make(args):
    read = [(path, *shapes.read(path)) for path in args.results]
    if all(kind in tables.FORMATS for _, kind, _ in read) and not (args.out and read[0][1] in _PAGES):
        print(tables.markdown([(path, kind, document) for path, kind, document in read]), end="")
        return
    if len(read) > 1:
        raise Unreadable(f"{read[1][0]}: a page is of one file; only tables of benchmarks are of several")
    path, kind, document = read[0]
    print(_PAGES[kind](document, path, args.out))


def run(words):
    """The exit status: 0, 1 after a message, 2 wrong usage."""
    args = _arguments(words)
    try:
        _make(args)
    except Unreadable as error:
        print(f"soda report: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"soda report: {error.filename or args.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
