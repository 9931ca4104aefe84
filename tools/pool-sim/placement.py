# SPDX-License-Identifier: BSD-3-Clause
"""Where a slab's pieces go. place(cluster, dice) is the slab's servers, or None: there is no room.

Two choices: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (2001). Copysets: Cidon et al.,
"Copysets: Reducing the Frequency of Data Loss in Cloud Storage" (2013); groups that are larger than what a slab needs,
of which the emptiest servers are taken: CodingSets of Lee et al., "Hydra: Resilient and Highly Available Remote
Memory" (2022)."""

TRIES = 64


class Dice:
    """Numbers under a limit, drawn many at once: one at a time they are slow."""

    def __init__(self, rng, n):
        self.rng, self.n, self.drawn, self.at = rng, n, [], 0

    def roll(self):
        if self.at == len(self.drawn):
            self.drawn, self.at = self.rng.integers(0, self.n, 1 << 16).tolist(), 0
        self.at += 1
        return self.drawn[self.at - 1]


def one(cluster, dice, members, apart):
    """A server with room that is none of the members and, where apart, in none of their domains."""
    domain = cluster.domain
    for _ in range(TRIES):
        server = dice.roll()
        if server in members or not cluster.has_room(server):
            continue
        if apart and any(domain[server] == domain[m] for m in members):
            continue
        return server
    return None


class Spread:
    """The members one after the other: of so many choices for each the one with most room, as clients last heard."""

    def __init__(self, n, apart, choices):
        self.n, self.apart, self.choices = n, apart, choices

    def place(self, cluster, dice):
        members = []
        for _ in range(self.n):
            drawn = (one(cluster, dice, members, self.apart) for _ in range(self.choices))
            offers = [server for server in drawn if server is not None]
            if not offers:
                return None
            members.append(min(offers, key=lambda server: cluster.seen[server]))
        return members

    def joined(self, cluster, first, rng):
        """Servers from `first` on are new: they are drawn as the others are."""

    def move(self, cluster, members, server, takers):
        """Members of a slab whose piece leaves `server` for the first of the takers that may have it; None: nobody."""
        others = {int(cluster.domain[m]) for m in members if m != server}
        for taker in takers:
            if taker not in members and not (self.apart and int(cluster.domain[taker]) in others):
                return [taker if m == server else m for m in members]
        return None


def groups_of(domain, first, size, rng):
    """Servers from `first` on, cut into groups of this size, no domain twice in a group. Who does not fit is in none."""
    queues = {}
    for server in (first + rng.permutation(len(domain) - first)).tolist():
        queues.setdefault(int(domain[server]), []).append(server)
    groups = []
    while True:
        fullest = sorted((d for d in queues if queues[d]), key=lambda d: -len(queues[d]))[:size]
        if len(fullest) < size:
            return groups
        groups.append([queues[d].pop() for d in fullest])


EXTRA = 2  # servers of a group beyond what a slab needs


class Coded:
    """Of two groups the one with most room, and in it the servers with most."""

    def __init__(self, cluster, n, rng):
        self.n, self.groups = n, groups_of(cluster.domain, 0, n + EXTRA, rng)

    def emptiest(self, cluster, dice, group):
        able = [s for s in group if cluster.has_room(s)]
        able = sorted(able, key=lambda s: (cluster.seen[s], dice.roll()))[:self.n]
        return able if len(able) == self.n else None

    def place(self, cluster, dice):
        for _ in range(TRIES):
            offers = [self.emptiest(cluster, dice, self.groups[dice.roll() % len(self.groups)]) for _ in range(2)]
            offers = [offer for offer in offers if offer]
            if offers:
                return min(offers, key=lambda offer: sum(cluster.seen[s] for s in offer))
        return None

    def joined(self, cluster, first, rng):
        """New servers make groups of their own: no slab that is there comes into another copyset."""
        self.groups += groups_of(cluster.domain, first, self.n + EXTRA, rng)

    def move(self, cluster, members, server, takers):
        """A slab stays in one group: all of it moves, into the group of the first taker."""
        for taker in takers:
            for group in self.groups:
                if taker in group:
                    others = sorted((s for s in group if s != taker), key=lambda s: cluster.used[s])
                    return [taker] + others[:self.n - 1]
        return None


WAYS = ("random", "random, domains", "two choices, domains", "copysets, domains")


def way(name, cluster, n, rng):
    """A way, for slabs of n pieces."""
    if name == "copysets, domains":
        return Coded(cluster, n, rng)
    return Spread(n, name != "random", 2 if name.startswith("two") else 1)
