# SPDX-License-Identifier: BSD-3-Clause
"""Colours by name, each as (light, dark).  Marks stay apart for colour-blind readers, in most pairs by lightness, too
(after Paul Tol's muted scheme); what is next to each other in a figure has an outline.  In the dark bars are less
light, so that whiskers stand out against them."""

COLOURS = {
    "paper": ("#ffffff", "#14181f"),
    "panel": ("#f6f7f9", "#1d232c"),
    "ink": ("#1b222c", "#e4e8ee"),
    "muted": ("#5c6673", "#9aa5b3"),
    "line": ("#d9dee5", "#333c48"),
    "accent": ("#2f6db3", "#7fb2ea"),
    "bad": ("#b3261e", "#ff8a80"),
    # modes of soda eval
    "dram": ("#8a8f98", "#8a8f98"),
    "ssd": ("#ddcc77", "#b5a552"),
    "ssd+readahead": ("#b39b3d", "#8f7f38"),
    "ssd+advice": ("#7d681c", "#6b5c2c"),
    "memserver": ("#4477aa", "#4a6f9e"),
    "base": ("#88ccee", "#5c9fc0"),
    "agg": ("#117733", "#2b7a48"),
    "async": ("#44aa99", "#3c9586"),
    "static": ("#aa4499", "#a5509a"),
    "dynamic": ("#ee9955", "#c17f46"),
    "dynamic-paper": ("#f4c08a", "#d9a56f"),
    "static+dynamic": ("#cc99bb", "#b07fa5"),
    "agg+async": ("#999933", "#85853a"),
    "store": ("#332288", "#6a5acd"),
    "all": ("#cc3355", "#c4476a"),
    # kinds of traffic
    "on_demand": ("#4477aa", "#4a6f9e"),
    "prefetch": ("#88ccee", "#5c9fc0"),
    "write_back": ("#117733", "#2b7a48"),
    "preload": ("#ddcc77", "#b5a552"),
    # ways of soda bench move
    "stream": ("#4477aa", "#4a6f9e"),
    "file": ("#88ccee", "#5c9fc0"),
    "structs": ("#117733", "#2b7a48"),
    "host": ("#cc3355", "#c4476a"),
    "agent": ("#ddcc77", "#b5a552"),
    # counters of soda run
    "reserved": ("#8a8f98", "#8a8f98"),
    "resident": ("#4477aa", "#6ea3d8"),
    "buffer": ("#1b222c", "#e4e8ee"),
    "faults": ("#aa4499", "#c465b4"),
    "stalled": ("#cc3355", "#e5587a"),
    "fetched": ("#117733", "#3fae68"),
    "written": ("#b3722a", "#e0a060"),
}


def variable(name):
    """Its name in CSS."""
    return "--" + name.replace("+", "-").replace("_", "-")


def css(names=tuple(COLOURS)):
    """Declares them; on paper it is light."""
    light, dark = ("".join(f"{variable(name)}:{COLOURS[name][which]};" for name in names) for which in (0, 1))
    return (f":root{{color-scheme:light dark;{light}}}\n"
            f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n")


# matplotlib knows no variables: while it draws, each has a colour that stands for it.
_STANDS_FOR = {name: f"#0{index + 0x10:02x}fa5" for index, name in enumerate(COLOURS)}


def stand_in(name):
    return _STANDS_FOR[name]


def resolve(drawn):
    """A drawing with the variables in place of what stood for them."""
    for name, colour in _STANDS_FOR.items():
        drawn = drawn.replace(colour, f"var({variable(name)})")
    return drawn
