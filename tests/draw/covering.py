# SPDX-License-Identifier: BSD-3-Clause
"""Covering arrays: few configurations in which every legal combination of two (or three) values occurs.

Greedy, a configuration at a time, as AETG does it (Cohen, Dalal, Fredman, Patton, "The AETG system", 1997): of several
candidates, each built around a combination that is still missing, the one with most missing combinations is taken.
A seed decides all choices, so a number means the same configuration on every machine.
"""

import itertools
import random

import table

CANDIDATES = 6


class Space:
    """The legal configurations of a table."""

    def __init__(self, parameters=None, excluded=None):
        self.parameters = parameters or table.PARAMETERS
        self.names = list(self.parameters)
        rules = table.EXCLUDED if excluded is None else excluded
        # those with rules first: the others can have any value
        self.ruled = sorted(self.names, key=lambda name: -sum(name in rule[0] for rule in rules))
        self.rules = {name: [rule for rule in rules if name in rule[0]] for name in self.names}
        # the parameters that a value of NAME can leave without any
        self.beside = {name: {n for rule in self.rules[name] for n in rule[0]} for name in self.names}

    def allows(self, values, name):
        """Whether no rule that looks at NAME, and whose parameters all have values, forbids these."""
        return not any(all(n in values for n in names) and forbids(*(values[n] for n in names))
                       for names, forbids, _ in self.rules[name])

    def open(self, values, name):
        """The values that NAME can still have beside these."""
        return [v for v in self.parameters[name] if self.allows({**values, name: v}, name)]

    def complete(self, values, order, choose):
        """VALUES with one for each parameter of ORDER, or None. CHOOSE sorts the values to be tried. A value that leaves
        another parameter without any is not followed further."""
        if not order:
            return values
        name, rest = order[0], order[1:]
        for value in choose(name, values):
            more = {**values, name: value}
            if self.allows(more, name) and all(self.open(more, n) for n in rest if n in self.beside[name]):
                done = self.complete(more, rest, choose)
                if done:
                    return done
        return None

    def completion(self, values, choose=None, order=None):
        """A legal configuration with these values, or None."""
        if not all(self.allows(values, name) for name in values):
            return None
        order = [n for n in order or self.ruled if n not in values]
        return self.complete(dict(values), order, choose or (lambda name, _: self.parameters[name]))

    def combinations(self, strength):
        """All combinations of so many values that a legal configuration has."""
        found = []
        for names in itertools.combinations(self.names, strength):
            for values in itertools.product(*(self.parameters[n] for n in names)):
                if self.completion(dict(zip(names, values))):
                    found.append(tuple(zip(names, values)))
        return found


def of_configuration(configuration, strength):
    """The combinations that it has."""
    return itertools.combinations(configuration.items(), strength)


class Missing:
    """Combinations that no configuration has had yet."""

    def __init__(self, combinations, strength):
        self.strength = strength
        self.left = dict.fromkeys(combinations)

    def gain(self, name, value, values, names):
        """How many missing ones NAME=VALUE adds to VALUES."""
        others = [(n, values[n]) for n in names if n in values and n != name]
        at = names.index(name)
        count = 0
        for some in itertools.combinations(others, self.strength - 1):
            key = list(some)
            key.insert(sum(names.index(n) < at for n, _ in some), (name, value))
            count += tuple(key) in self.left
        return count

    def gained(self, configuration):
        return sum(c in self.left for c in of_configuration(configuration, self.strength))

    def remove(self, configuration):
        for c in of_configuration(configuration, self.strength):
            self.left.pop(c, None)


def candidate(space, missing, dice):
    """A legal configuration around a combination that is missing."""
    start = dict(dice.choice(list(itertools.islice(missing.left, 64))))
    order = [n for n in space.names if n not in start]
    dice.shuffle(order)

    def choose(name, values):
        scored = [(-missing.gain(name, v, values, space.names), dice.random(), v) for v in space.parameters[name]]
        return [v for _, _, v in sorted(scored)]

    found = space.completion(start, choose, order)
    return {name: found[name] for name in space.names}


def array(space, strength=2, seed=1):
    """Configurations, and how many combinations they cover."""
    dice = random.Random(seed)
    all_of_them = space.combinations(strength)
    missing, rows = Missing(all_of_them, strength), []
    while missing.left:
        tried = [candidate(space, missing, dice) for _ in range(CANDIDATES if strength == 2 else 1)]
        best = max(tried, key=missing.gained)
        missing.remove(best)
        rows.append(best)
    return rows, len(all_of_them)


def uncovered(space, rows, strength):
    """Combinations that exist, and are in none of these rows: counted anew, without what made them."""
    seen = set()
    for row in rows:
        seen.update(of_configuration(row, strength))
    return [c for c in space.combinations(strength) if c not in seen]
