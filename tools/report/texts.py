# SPDX-License-Identifier: BSD-3-Clause
"""Numbers as people read them."""

THIN = "\N{NARROW NO-BREAK SPACE}"
DASH = "\N{EN DASH}"


def count(value):
    return f"{value:,}".replace(",", THIN)


def size(value):
    """With the largest unit of 1024 that leaves it at one or more, to three digits."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    value, unit = float(value), 0
    while value >= 1024 and unit + 1 < len(units):
        value, unit = value / 1024, unit + 1
    digits = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits}{THIN}{units[unit]}"


def significant(value):
    """Three digits, and no fewer than stand before the point; zero is zero."""
    if not value:
        return "0"
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def fixed(value):
    return f"{value:.2f}"


def between(spread, form=significant):
    return f"{form(spread.least)}{DASH}{form(spread.most)}"


def between_fixed(spread):
    return between(spread, fixed)
