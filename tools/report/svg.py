# SPDX-License-Identifier: BSD-3-Clause
"""What matplotlib has drawn, made fit for a page: colours that follow light and dark, no size of its own, a title for
each mark, and names that are told apart from those of the page's other figures."""
import html
import re

from . import palette

_FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"


def _title_marks(drawn, titles):
    for mark, title in titles.items():
        drawn = drawn.replace(f'<g id="{mark}">', f'<g id="{mark}" class="mark"><title>{html.escape(title)}</title>', 1)
    return drawn


def finish(drawn, name, title, titles):
    """From matplotlib's file to one <svg>; titles: of marks, by their gid."""
    drawn = drawn[drawn.index("<svg"):]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', drawn)[1]
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" '
            f'role="img" aria-labelledby="{name}-title" font-family="{_FONT}">\n'
            f'<title id="{name}-title">{html.escape(title)}</title>')
    drawn = re.sub(r"<svg[^>]*>", lambda _: head, drawn, count=1)
    # "font: 10px 'DejaVu Sans', ...": the page's own font; only the size is the drawing's
    drawn = re.sub(r"font: (?:(\d+|bold|italic) )?([\d.]+px)[^;\"]*",
                   lambda found: f"font-size: {found[2]}" + (f"; font-weight: {found[1]}" if found[1] else ""), drawn)
    drawn = _title_marks(drawn, titles)
    # matplotlib numbers its groups in each drawing from one
    drawn = re.sub(r'<g id="(?!%s)[^"]*"/>' % re.escape(name), "", drawn)
    drawn = re.sub(r'<g id="(?!%s)[^"]*">' % re.escape(name), "<g>", drawn)
    return palette.resolve(drawn)


def stand_alone(drawn):
    """The same as a file of its own, with the colours that a page would bring."""
    used = [name for name in palette.COLOURS if name == "paper" or f"var({palette.variable(name)})" in drawn]
    style = f"<style>{palette.css(used)}svg{{background:var(--paper)}}</style>"
    return '<?xml version="1.0" encoding="utf-8"?>\n' + re.sub(
        r"(<svg[^>]*>)", lambda found: found[1] + "\n" + style, drawn, count=1) + "\n"
