# SPDX-License-Identifier: BSD-3-Clause
"""Servers, domains and clients of a pool that is simulated, and what a run of it is asked."""
from dataclasses import dataclass

import numpy

SLAB_MIB = 64


@dataclass(frozen=True)
class Shape:
    """A pool. Slots: pieces of slabs that a server has room for; lag: slabs that are placed between two looks at the
    servers' free capacity, because clients know what they were told, not what is."""
    servers: int = 1000
    domains: int = 25
    slots: int = 256
    clients: int = 10_000
    fill: float = 0.8
    lag: int = 1000


@dataclass(frozen=True)
class Redundancy:
    """members: pieces of a slab, each on another server; lost: how many of them may be gone."""
    name: str
    members: int
    lost: int
    share: float  # of a slab, in a piece


MIRROR = Redundancy("mirror:2", 2, 1, 1.0)
EC = Redundancy("ec:4+2", 6, 2, 0.25)


class Cluster:
    """Who has how many pieces. Servers stand in domains in turns: server s in domain s % domains."""

    def __init__(self, shape):
        self.shape = shape
        self.domain = numpy.arange(shape.servers) % shape.domains
        self.used = numpy.zeros(shape.servers, dtype=numpy.int64)
        self.seen = self.used.copy()
        self.placed = 0

    def take(self, members):
        """A slab's pieces lie on these servers."""
        for server in members:
            self.used[server] += 1
        self.placed += 1
        if self.shape.lag == 0 or self.placed % self.shape.lag == 0:
            self.seen = self.used.copy()

    def release(self, members):
        for server in members:
            self.used[server] -= 1

    def has_room(self, server):
        """As the server says when it is asked for the piece: never stale."""
        return self.used[server] < self.shape.slots

    def join(self, servers):
        """So many more, all empty, in the domains that there are."""
        n = len(self.used) + servers
        self.domain = numpy.arange(n) % self.shape.domains
        self.used = numpy.concatenate([self.used, numpy.zeros(servers, dtype=numpy.int64)])
        self.seen = self.used.copy()


def objects(shape, slabs, rng):
    """The client of each slab: clients come one after the other, each for an object of a few large and many small
    ones (log-normal, sigma 1.5), until there are so many slabs."""
    sizes = rng.lognormal(0, 1.5, shape.clients)
    ends = numpy.ceil(numpy.cumsum(sizes) / sizes.sum() * slabs)
    return numpy.searchsorted(ends, numpy.arange(slabs), side="right")
