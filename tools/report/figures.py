# SPDX-License-Identifier: BSD-3-Clause
"""soda eval: what each figure shows.  A figure of the paper has the paper's number, baseline and series; series that only
SODA has stand beside them.  What the paper's text does not say of its values is not claimed."""
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
           "disk that were run, for each application; the others are beside it. The paper compares MemServer with "
           "one way to read the disk.",
           speed_up, DISK_MODES, ON_NODE, paper={"memserver": "up to 7.9"}),
    Figure("figure-7", "Figure 7: MemServer, and the agent without and with its optimisations",
           "time / time of memserver",
           "Below 1 is faster than without an agent. base is the paper's DPU base, all its DPU opt.",
           time, ("memserver",), ("memserver", "base", "all", "store"),
           paper={"base": "1.01 to 1.14", "all": "2 to 15 % less than base"}),
    Figure("figure-8", "Figure 8: beside a background BFS, time", "time / time of memserver",
           "Each application beside a second process that searches the same graph breadth-first, over and over; both "
           "under the cap, which is that of two. The paper runs five applications so, with static caching.",
           time, ("memserver",), ("ssd", "memserver", "base", "static", "store", "all"), processes=2),
    Figure("figure-8-traffic", "Figure 8: beside a background BFS, network traffic",
           "bytes on the network / those of memserver",
           "The same runs. Both processes read the same files, so that what one had fetched into the agent serves the "
           "other. 1: what two processes without an agent fetch. The background process searches for as long as the "
           "other one takes: background_runs in results.csv says how often.",
           traffic, ("memserver",), ("memserver", "base", "static", "store", "all"), processes=2,
           paper={"static": "0.75 to 0.91: 9 to 25 % less traffic"}),
    Figure("figure-9", "Figure 9: network traffic without an agent, with the static and with the dynamic cache",
           "bytes on the network / bytes of memserver",
           "Between node or agent and memory server, by kind: what a program waits for is on demand, what the agent "
           "fetches ahead and loads before the application begins is background. The paper's baseline is the server "
           "alone, memserver. dynamic-paper is the paper's cache, dynamic SODA's own.",
           traffic, ("memserver",),
           ("memserver", "static", "dynamic", "dynamic-paper", "static+dynamic", "all"), by_kind=True,
           paper={"static": "down to 0.58: up to 42 % less",
                  "dynamic-paper": "up to 2.17: up to 117 % more; PageRank 1.05"}),
    Figure("figure-10", "Figure 10: hits of the dynamic cache", "% of requests",
           "Of the requests that arrived while the cache was asked; late hits, which wait for a fetch that is under "
           "way, are counted as hits. The switch may turn the cache off where it does not pay; then there are few "
           "requests, or none.",
           hit_per_cent, ("base",), ("dynamic", "dynamic-paper", "all"), line_at=None,
           paper={"dynamic-paper": "56 to 93; PageRank 93"}),
    Figure("figure-11", "Figure 11: time with each optimisation", "time / time of base",
           "Each optimisation alone, on top of the plain proxy, base. Below 1 is faster than base.",
           time, ("base",),
           ("base", "agg", "async", "static", "dynamic", "dynamic-paper", "static+dynamic", "agg+async")),
)
