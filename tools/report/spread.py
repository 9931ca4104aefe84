# SPDX-License-Identifier: BSD-3-Clause
"""A median, and how far the repetitions spread around it."""
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    least: float
    most: float
    n: int = 1

    @property
    def varies(self):
        return self.most > self.least

    def over(self, divisor):
        """Each in units of the divisor; None: there is no such thing."""
        if not divisor:
            return None
        return Spread(self.median / divisor, self.least / divisor, self.most / divisor, self.n)

    def under(self, dividend):
        """How often each goes into the dividend: what was least becomes most."""
        if not dividend or not self.least:
            return None
        return Spread(dividend / self.median, dividend / self.most, dividend / self.least, self.n)


def of(values):
    """What is not known (None) does not count; None: nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))
