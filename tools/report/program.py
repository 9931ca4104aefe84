# SPDX-License-Identifier: BSD-3-Clause
"""soda run: what a program did with fabric memory, over time."""
from dataclasses import dataclass

MIB = 1 << 20
_POINTS = 400   # of a curve: more than can be told apart
_ROWS = 20      # of the table


@dataclass(frozen=True)
class Step:
    """From one look at the counters to another; rates are those between them."""
    seconds: float
    reserved_mib: float
    resident_mib: float
    buffer_mib: float
    faults_per_s: float
    stalled_threads: float
    fetched_mib_per_s: float
    written_mib_per_s: float


def _picked(n, most):
    """Indices of so many samples, evenly spread, the last one among them."""
    if n <= most:
        return list(range(n))
    return sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


class Program:
    def __init__(self, document):
        self.document = document
        self.samples = document["samples"]

    @property
    def n(self):
        return len(self.samples["at_ns"])

    def total(self, name):
        return self.samples[name][-1]

    def peak(self, name):
        return max(self.samples[name])

    def _step(self, a, b):
        seconds = (self.samples["at_ns"][b] - (self.samples["at_ns"][a] if b > a else 0)) / 1e9

        def rate(name, unit):
            values = self.samples[name]
            return (values[b] - (values[a] if b > a else 0)) / unit / seconds if seconds else 0.0

        def mib(name):
            return self.samples[name][b] / MIB

        return Step(self.samples["at_ns"][b] / 1e9, mib("reserved"), mib("resident"), mib("buffer"),
                    rate("faults", 1), rate("stalled_ns", 1e9), rate("fetched", MIB), rate("written", MIB))

    def steps(self, most=_POINTS):
        picked = _picked(self.n, most)
        return [self._step(a, b) for a, b in zip([picked[0], *picked], picked)] if picked else []

    def table(self):
        return self.steps(_ROWS)
