# SPDX-License-Identifier: BSD-3-Clause
"""soda eval: what each figure shows.  They have the paper's numbers; what is not known of the paper's values with
certainty is not claimed."""
from dataclasses import dataclass, field

from .evaluation import DISK_MODES
from .spread import Spread


def speed_up(cell, reference):
    return cell.seconds.under(reference.seconds.median) if reference else None


def time(cell, reference):
    return cell.seconds.over(reference.seconds.median) if reference else None


def traffic(cell, reference):
    return cell.traffic.over(reference.traffic.median) if reference and reference.traffic and cell.traffic else None


def hit_per_cent(cell, _):
    rate = cell.hit_rate
    return rate and Spread(100 * rate.median, 100 * rate.least, 100 * rate.most, rate.n)


@dataclass(frozen=True)
class Figure:
    id: str
    title: str
    axis: str
    text: str
    quantity: object            # of a cell and the reference's: a Spread, or None
    reference: tuple            # modes, of which the fastest counts
    series: tuple               # modes
    processes: int = 1
    by_kind: bool = False       # of traffic, stacked
    line_at: float = 1.0        # None: no value is special
    paper: dict = field(default_factory=dict)   # mode: the paper's words


ON_NODE = (*DISK_MODES, "memserver", "base", "store", "all")

FIGURES = (
    Figure("slow-down", "Slow-down against local memory", "time / time in local memory",
           "What it costs that two thirds of the data are not on this node. No figure of the paper.",
           time, ("dram",), ON_NODE),
    Figure("figure-6", "Figure 6: speed-up over the local disk", "time on the disk / time",
           "The same limit of memory; graphs on files of the local disk, mapped, their pages not in memory when a run "
           "begins, or in a memory server, directly or through an agent. 1 is the fastest of the ways to read the "
           "disk that were run, for each application; the others are beside it.",
           speed_up, DISK_MODES, ON_NODE, paper={"all": "up to 7.9"}),
    Figure("figure-7", "Figure 7: what the agent costs, and what aggregation and asynchrony give",
           "time / time of base", "Below 1 is faster than the plain proxy, base.",
           time, ("base",), ("memserver", "agg", "async", "agg+async", "store", "all")),
    Figure("figure-8", "Figure 8: beside a background BFS", "time / time of memserver",
           "Each application beside a second process that searches the same graph breadth-first, over and over; both "
           "under the cap, which is that of two.",
           time, ("memserver",), ("ssd", "base", "static", "store", "all"), processes=2),
    Figure("figure-9", "Figure 9: network traffic of two processes that share an agent",
           "bytes on the network / those of memserver",
           "The same runs. Both processes read the same files, so that what one had fetched into the agent serves the "
           "other. 1: what two processes without an agent fetch. The background process searches for as long as the "
           "other one takes: background_runs in results.csv says how often.",
           traffic, ("memserver",), ("memserver", "base", "static", "store", "all"), processes=2,
           paper={"all": "0.75 to 0.91: 9 to 25 % less traffic"}),
    Figure("figure-10", "Figure 10: hits of the dynamic cache", "% of requests",
           "Of the requests that arrived while the cache was asked; late hits, which wait for a fetch that is under "
           "way, are counted as hits. The switch may turn the cache off where it does not pay; then there are few "
           "requests, or none.",
           hit_per_cent, ("base",), ("dynamic", "all"), line_at=None, paper={"dynamic": "PageRank 93"}),
    Figure("figure-11", "Figure 11: network traffic with each optimisation", "bytes on the network / bytes of base",
           "Between node or agent and memory server, by kind. Preload is the static cache's, counted although it is "
           "loaded before the application begins.",
           traffic, ("base",), ("memserver", "base", "agg", "async", "static", "dynamic", "store", "all"), by_kind=True,
           paper={"static": "down to 0.58: up to 42 % less",
                  "dynamic": "up to 2.17: up to 117 % more; PageRank 1.05"}),
)
