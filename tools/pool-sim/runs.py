# SPDX-License-Identifier: BSD-3-Clause
"""What is asked of each way to place slabs: balance, movement at joins, loss when servers fail together."""
import collections
import dataclasses

import numpy

import cluster as pool
import placement


def filled(shape, name, redundancy, rng):
    """A pool, filled as its shape says: (cluster, members of each slab as rows, client of each slab, the way)."""
    cluster = pool.Cluster(shape)
    way = placement.way(name, cluster, redundancy.members, rng)
    dice = placement.Dice(rng, shape.servers)
    wanted = int(shape.servers * shape.slots * shape.fill / redundancy.members)
    rows = []
    while len(rows) < wanted:
        members = way.place(cluster, dice)
        if members is None:
            break
        cluster.take(members)
        rows.append(members)
    clients = pool.objects(shape, wanted, rng)[:len(rows)]
    return cluster, numpy.array(rows), clients, way


def imbalance(used):
    return {"max_by_mean": float(used.max() / used.mean()), "min_by_mean": float(used.min() / used.mean())}


def balance(shape, name, redundancy, rng):
    """How evenly servers are used, and how full the pool is when a slab first finds no place."""
    used = filled(shape, name, redundancy, rng)[0].used
    full = filled(dataclasses.replace(shape, fill=1.0), name, redundancy, rng)[0].used
    return {**imbalance(used), "fill_at_refusal": float(full.mean() / shape.slots)}


# Joins

def rebalance(cluster, rows, way, spare):
    """Move pieces from servers over the mean to the emptiest, until nobody is over it by more than `spare`: how many
    have moved. rows are changed."""
    mean = cluster.used.mean()
    held = [[] for _ in cluster.used]
    for slab, members in enumerate(rows.tolist()):
        for server in members:
            held[server].append(slab)
    takers = collections.deque(int(s) for s in numpy.argsort(cluster.used) if cluster.used[s] < mean)
    moved = 0
    for server in numpy.argsort(-cluster.used).tolist():
        for slab in held[server]:
            if cluster.used[server] <= mean * (1 + spare):
                break
            while takers and cluster.used[takers[0]] >= mean:
                takers.popleft()
            before = rows[slab].tolist()
            after = server in before and way.move(cluster, before, server, takers)
            if not after:
                continue
            cluster.release(before)
            cluster.take(after)
            rows[slab] = after
            moved += len(set(after) - set(before))
            takers.rotate(-1)
    return moved


def joins(shape, name, redundancy, rng, more, turnovers=(0.5, 1.0)):
    """So many more servers: what `rebalance` moves, as a share of all that is stored; and the imbalance without it, once
    this share of the slabs was freed and placed anew."""
    cluster, rows, _, way = filled(shape, name, redundancy, rng)
    cluster.join(more)
    way.joined(cluster, shape.servers, rng)
    before = cluster.used.copy()
    answer = {"moved_share": float(rebalance(cluster, rows.copy(), way, 0.05) / before.sum()),
              "least_share": more / len(before), "max_by_mean_rebalanced": imbalance(cluster.used)["max_by_mean"]}

    cluster.used, cluster.seen = before.copy(), before.copy()
    dice = placement.Dice(rng, len(before))
    order = rng.permutation(len(rows))
    done = 0
    for turnover in turnovers:
        while done < int(turnover * len(rows)):
            cluster.release(rows[order[done]])
            cluster.take(way.place(cluster, dice))
            done += 1
        answer[f"max_by_mean_after_{turnover:g}"] = imbalance(cluster.used)["max_by_mean"]
    return answer


# Failures

def scattered(n):
    """n servers at once, anywhere: what does not come back after the power did."""
    def fail(domain, rng):
        failed = numpy.zeros(len(domain), dtype=bool)
        failed[rng.choice(len(domain), n, replace=False)] = True
        return failed
    return fail


def racks(n, more=0):
    """All servers of n domains, and so many others."""
    def fail(domain, rng):
        gone = rng.choice(domain.max() + 1, n, replace=False)
        failed = numpy.isin(domain, gone)
        failed[rng.choice(numpy.flatnonzero(~failed), more, replace=False)] = True
        return failed
    return fail


EVENTS = {"2 servers": scattered(2), "1 % of the servers": scattered(10), "a domain": racks(1),
          "a domain and 3 servers": racks(1, 3), "2 domains": racks(2)}


def loss(domain, rows, clients, redundancy, fail, trials, rng):
    """After such a failure: how probable is it that anything is lost, what share of all slabs is then, and how probable
    is it for one client that it loses something."""
    any_lost, slabs, hit = 0, 0.0, 0.0
    n_clients = clients.max() + 1
    for _ in range(trials):
        failed = fail(domain, rng)
        gone = failed[rows].sum(axis=1) > redundancy.lost
        if gone.any():
            any_lost += 1
            slabs += gone.mean()
            hit += len(numpy.unique(clients[gone])) / n_clients
    return {"any": any_lost / trials, "slabs_then": slabs / any_lost if any_lost else 0.0, "client": hit / trials}


def sources(rows, servers):
    """On how many others lie pieces of the slabs of a server: that many take part in its rebuild. The mean."""
    beside = [set() for _ in range(servers)]
    for members in rows.tolist():
        for server in members:
            beside[server].update(members)
    return float(numpy.mean([max(len(b) - 1, 0) for b in beside]))


def all_of(shape, trials, seed):
    """Every way with each redundancy: what `pool-sim --json` prints."""
    answer = {"format": "soda-pool-sim", "version": 1, "seed": seed, "trials": trials,
              "shape": dataclasses.asdict(shape), "runs": []}
    for redundancy in (pool.MIRROR, pool.EC):
        for name in placement.WAYS:
            rng = numpy.random.default_rng(seed)
            cluster, rows, clients, _ = filled(shape, name, redundancy, rng)
            answer["runs"].append({
                "placement": name, "redundancy": redundancy.name, "slabs": len(rows),
                "balance": balance(shape, name, redundancy, rng),
                "joins": joins(shape, name, redundancy, rng, shape.servers // 10),
                "rebuild_sources": sources(rows, shape.servers),
                "loss": {event: loss(cluster.domain, rows, clients, redundancy, fail, trials, rng)
                         for event, fail in EVENTS.items()}})
    return answer
