# SPDX-License-Identifier: BSD-3-Clause
"""What a seed decides: everything.  plan(seed) is a dictionary that is printed and carried out.

A plan has one of the characters below.  It says which faults may come, and so what the program may
see of them: nothing at all, where only connections and patience are at stake.
"""

import random

import wire

# character: (weight, what the program is told that may go wrong)
CHARACTERS = {
    'connections': (6, ''),            # cut, slow, silent, refused; processes that stand still
    'full': (1, 'full'),               # and no room at the server
    'agent dies': (4, ''),             # with what it has acknowledged, if it does that early
    'server dies': (5, 'lose'),        # and comes back empty
    'expired': (1, 'lose'),            # a client stays away for longer than the grace time
    'file changes': (1, 'lose changed'),
    'refused': (2, 'error'),           # well-formed headers that ask for what there is not
}

WAYS = {'tcp': 4, 'shm': 2, 'agent-tcp': 4, 'agent-shm': 5}

MIXES = {
    'mixed': 'check:40,store:40,scan:3,fill:3,sync:1,syncall:1,discard:2,cold:1,pin:2,prefetch:2,'
             'churn:1,heap:10',
    'reads': 'check:60,store:5,scan:12,prefetch:4,sync:1',
    'writes': 'store:50,fill:10,check:10,sync:2,syncall:1,discard:1',
    'syncs': 'store:30,check:10,sync:10,syncall:4,cold:4',
    'discards': 'store:20,fill:4,check:20,discard:10,pin:4,cold:2,prefetch:2',
    'heap': 'heap:40,check:5,store:5,churn:1',
    'churn': 'churn:6,store:20,check:20,syncall:1',
}
READER_MIX = 'check:50,scan:6,prefetch:3,again:1,rest:10'
PLAIN_MIX = 'check:40,store:40,scan:3,fill:3,discard:2,churn:2,heap:20'


FILE_BYTES = 6 << 20


def pick(dice, weights):
    return dice.choices(list(weights), weights=list(weights.values()))[0]


def settings(dice, p):
    """Environment of the program and options of the daemons."""
    env = {'SODA_FAULT_TIMEOUT': '25s', 'SODA_THREADS': str(p['threads'])}
    env['SODA_MODE'] = p['mode']
    if dice.random() < 0.25:
        env['SODA_PREFETCH'] = dice.choice(['off', '8', '64'])
    if dice.random() < 0.2:
        env['SODA_POLL'] = 'off'
    if dice.random() < 0.2:
        env['SODA_EVICT'] = 'fifo'
    if dice.random() < 0.3:
        env['SODA_MECHANISMS'] = dice.choice(['own', 'copy'])
    server = ['--workers', str(dice.choice([1, 2, 3]))]
    agent = ['--timeout', '60s', '--grace', '60s']
    if p['way'].startswith('agent'):
        p['early'] = dice.random() < 0.75
        if not p['early']:
            agent += dice.choice([['--async=no'], ['--base']])
        elif dice.random() < 0.3:
            agent += ['--write-budget', dice.choice(['4M', '6M'])]
        if dice.random() < 0.3 and '--base' not in agent:
            agent += ['--dynamic=no']
        elif dice.random() < 0.3 and '--base' not in agent:
            agent += ['--cache-bytes', '8M', '--adaptive=no']
    p['env'], p['server'], p['agent'] = env, server, agent


def outage(dice):
    return dice.choice([0, 5, 20, 50, 150, 400, 1000])


def harmless(dice, p, link):
    """A fault of a connection or a process's patience."""
    ms = outage(dice)
    kinds = ['cut', 'cut one', 'delay', 'hold', 'refuse', 'trickle', 'spoil', 'spoil', 'stop server',
             'stop program', 'hold and cut', 'descriptors']
    if p['way'].startswith('agent'):
        kinds += ['stop agent', 'stop agent']
    kind = dice.choice(kinds)
    f = {'do': kind, 'ms': ms}
    if kind in ('cut', 'cut one', 'delay', 'hold', 'refuse', 'trickle', 'spoil', 'hold and cut'):
        f['link'] = link
    if kind == 'delay':
        f['delay_ms'] = dice.choice([1, 3, 10, 40])
    if kind == 'trickle':
        f['bytes'] = dice.choice([1, 7, 63, 1000])
        f['ms'] = min(ms, 150)
    if kind == 'spoil':
        f['how'] = dice.choice(sorted(wire.SPOILERS))
        f['skip'] = dice.choice([0, 1, 5, 40])
        f['ms'] = max(ms, 50)
        # what there is only in a new connection
        if f['how'].startswith(('hello', 'welcome')):
            f['skip'] = dice.randrange(4)
            f['cut'] = True
    if kind == 'descriptors':
        f['of'] = dice.choice(['server', 'program'] + (['agent'] if p['way'].startswith('agent') else []))
        f['more'] = dice.randrange(3)
        f['cut'] = dice.random() < 0.7
    return f


def fault(dice, p):
    """One event: faults that begin together, each with how long it lasts."""
    links = ['program']
    if p['way'].startswith('agent'):
        links.append('server')
    character, together = p['character'], []
    fatal = {
        'agent dies': ['kill agent'],
        'server dies': ['kill server'] + (['kill agent', 'kill both'] if 'server' in links else []),
        'expired': ['stay away'],
        'file changes': ['change file'],
        'refused': ['spoil'],
    }.get(character)
    if fatal and dice.random() < 0.5:
        f = {'do': dice.choice(fatal), 'ms': outage(dice)}
        if f['do'] == 'stay away':
            f['ms'] = 2500
            f['link'] = dice.choice(links)
        if f['do'] == 'spoil':
            f.update(how=dice.choice(sorted(wire.REFUSERS)), skip=dice.choice([0, 3, 30]),
                     link=dice.choice(links), ms=max(50, f['ms']))
        together.append(f)
    if not together or dice.random() < 0.3:
        together.append(harmless(dice, p, dice.choice(links)))
    return together


# What the conductor has to find where it is planted, and what it says then.
PLANTS = {'bytes': 'wrong bytes: ', 'code': 'wrong code: the program ended with 3',
          'hang': 'hang: thread ', 'memory': 'leak: the server has ', 'process': 'leak: processes left',
          'store': 'leak: the agent has '}


def reader_fault(dice, p):
    """One of a program that reads what others read, too."""
    who = dice.randrange(len(p['readers']))
    do = dice.choice(['kill reader', 'kill reader', 'stop reader', 'descriptors'])
    f = {'do': do, 'reader': who, 'ms': outage(dice)}
    if do == 'descriptors':
        f.update(of=f'reader {who}', more=dice.randrange(3), cut=dice.random() < 0.7)
    return f


def give_store(dice, p):
    """To the agent; and the file, and who reads it."""
    p['agent'] += ['--store', '16M']
    p['file_bytes'] = dice.choice([20, 24, 32]) << 20
    p['rules'].append('store')
    p['freeze'] = 0  # there is no static cache of what is in the store
    for _ in range(dice.choice([2, 2, 3])):
        p['readers'].append({'mode': dice.choice(['inline', 'handler']), 'threads': dice.choice([1, 2, 3])})


def share(p):
    """A part of the seeds has a store for the node that is smaller than a file which several programs
    read.  Drawn from a stream of its own, so that the plans of the other seeds stay what they are."""
    dice = random.Random(f'{p["seed"]}, the store')
    if p['way'] != 'agent-shm' or '--async=no' in p['agent'] or '--base' in p['agent'] \
            or dice.random() < 0.25:
        return
    give_store(dice, p)
    for event in p['events']:
        if dice.random() < 0.6:
            event['faults'].append(reader_fault(dice, p))
        # a program is killed inside a fill, which the server cannot answer
        if dice.random() < 0.2:
            who = dice.randrange(len(p['readers']))
            event['faults'] += [{'do': 'hold', 'ms': 50, 'link': 'server'},
                                {'do': 'kill reader', 'reader': who, 'ms': outage(dice), 'after_ms': 20}]


def agent_fault(dice):
    """One of the second agent, or of what is between the two: nothing may be lost by it, nor be seen."""
    do = dice.choice(['kill below', 'kill below', 'stop below', 'cut', 'cut one', 'hold and cut', 'refuse'])
    f = {'do': do, 'ms': outage(dice)}
    if not do.endswith('below'):
        f['link'] = 'below'
    return f


def stack(p):
    """A part of the seeds with an agent has a second one between that and the server.  A stream of its own,
    as above."""
    dice = random.Random(f'{p["seed"]}, two agents')
    if not p['way'].startswith('agent') or dice.random() < 0.7:
        return
    p['below'] = ['--timeout', '60s', '--grace', '60s']
    p['below'] += dice.choice([[], [], ['--base'], ['--async=no'], ['--dynamic=no'], ['--write-budget', '4M']])
    for event in p['events']:
        if dice.random() < 0.6:
            event['faults'].append(agent_fault(dice))


def mover_fault(dice, movers):
    return {'do': dice.choice(['kill mover', 'kill mover', 'stop mover']), 'mover': dice.randrange(len(movers)),
            'ms': outage(dice)}


def move(p):
    """A part of the seeds with an agent moves data, too: producers, and consumers of what they hand over.  Whoever
    does not go through the proxy has its memory read by an agent on the same machine; else it streams.  Of what is
    lost with an agent nothing is shown, so these are told of no rules.  A stream of its own, as above."""
    dice = random.Random(f'{p["seed"]}, movement')
    if not p['way'].startswith('agent') or dice.random() < 0.6:
        return
    p['agent'] += ['--move-memory', '128M']
    for name in ['heat', 'wind'][:dice.choice([1, 1, 2])]:
        p['movers'] += [{'role': 'produce', 'name': name, 'proxied': dice.random() < 0.6}]
        p['movers'] += [{'role': 'consume', 'name': name, 'proxied': dice.random() < 0.6}
                        for _ in range(dice.choice([1, 1, 2]))]
    for event in p['events']:
        if dice.random() < 0.7:
            event['faults'].append(mover_fault(dice, p['movers']))


def member_fault(dice):
    """One of a member of the pool: its copies are given up, and made anew there or on another one."""
    do = dice.choice(['kill server', 'kill server', 'stop server', 'stop server', 'cut', 'hold', 'refuse', 'hold and cut'])
    f = {'do': do, 'ms': dice.choice([0, 5, 50, 400, 1000, 1500, 4000])}
    if do == 'hold and cut' or do == 'hold':
        f['ms'] = min(f['ms'], 1500)
    if not do.endswith('server'):
        f['link'] = 'program'
    return f


def pool(p):
    """A part of the seeds without an agent has a pool of servers with mirror:2. Each event strikes one of them, and
    the next one comes when all copies are there again: so nothing may be lost, and no error be seen. A stream of its
    own, as above."""
    dice = random.Random(f'{p["seed"]}, several servers')
    if p['way'] not in ('tcp', 'shm') or p['character'] not in ('connections', 'server dies') or dice.random() < 0.25:
        return
    p['members'] = dice.choice([2, 3, 3, 4])
    # mirror:2 needs both of two servers: an allocation is refused while one of them is away
    p.update(way='tcp', mode='inline', files=False, rules=['full'] if p['members'] == 2 or 'full' in p['rules'] else [])
    p['env'].update(SODA_MODE='inline', SODA_REDUNDANCY='mirror:2', SODA_SLAB=dice.choice(['2M', '4M', '64M']),
                    SODA_REBUILD_RATE=dice.choice(['4M', '128M']))
    p['buffer'] += p['members'] * p['chunk'] * (p['threads'] + 2)
    for event in p['events']:
        more = member_fault(dice)
        if dice.random() < 0.7 and not any(f['do'] == 'kill server' for f in event['faults']):
            event['faults'].append(more)
        member = dice.randrange(p['members'])
        for f in event['faults']:
            f['member'] = member


def damage(dice, p):
    """What a server that lies does to ciphertext: pages of its memory are changed, or brought back from earlier."""
    return {'do': 'damage', 'how': dice.choice(['flip', 'flip', 'zero', 'swap', 'back', 'back']),
            'pages': dice.choice([1, 8, 200]), 'dice': dice.randrange(1 << 30), 'ms': outage(dice),
            'member': dice.randrange(p['members'])}


def seal(p):
    """A part of the seeds is sealed: by the program (SODA_SEAL=1), or by the agent, whose keys the next one finds. In
    half of them the server's memory is damaged, too: of that no byte may be served, and content may be lost; of the
    others some have files, which are sealed where they lie (a server that lies would have its say in those for good).
    A stream of its own, as above."""
    dice = random.Random(f'{p["seed"]}, sealing')
    if p['readers'] or p['movers'] or dice.random() < 0.6:
        return
    able = p['way'].startswith('agent') and '--async=no' not in p['agent'] and '--base' not in p['agent']
    p['sealed'] = 'agent' if able and dice.random() < 0.5 else 'program'
    p.update(files=False, freeze=0)
    if p['sealed'] == 'agent':
        # longer than any outage, and shorter than what is left may be: a program may end without a goodbye
        p['agent'] += ['--seal', '--seal-keep', '15s']
    else:
        p['env']['SODA_SEAL'] = '1'
    if dice.random() < 0.5:
        p['files'] = p['program'] == 'soda' and p['members'] == 1 and p['character'] != 'file changes' and \
            random.Random(f'{p["seed"]}, sealed files').random() < 0.9
        return
    p['rules'] += [rule for rule in ('lose', 'fills') if rule not in p['rules'] and
                   (rule == 'lose' or p['program'] == 'run')]
    for event in p['events']:
        if dice.random() < 0.7:
            event['faults'].append(damage(dice, p))


def plan(seed, planted=None):
    p = make(seed)
    p.update(readers=[], file_bytes=FILE_BYTES, below=None, movers=[], members=1, sealed=None)
    if not planted:
        pool(p)
        share(p)
        stack(p)
        move(p)
        seal(p)
        return p
    p.update(plant=planted, character='connections', program='soda', rules=[], end='exit')
    p['events'] = p['events'][:1]
    p['ops'] = max(2000, p['events'][0]['at'])
    if planted == 'store':
        p.update(way='agent-shm', agent=['--timeout', '60s', '--grace', '60s'], events=[])
        p['env'].pop('SODA_MECHANISMS', None)  # one of them is without a store
        give_store(random.Random(seed), p)
    return p


def make(seed):
    dice = random.Random(seed)
    character = pick(dice, {k: w for k, (w, _) in CHARACTERS.items()})
    p = {'seed': seed, 'character': character, 'way': pick(dice, WAYS)}
    if character == 'agent dies' and not p['way'].startswith('agent'):
        p['way'] = dice.choice(['agent-tcp', 'agent-shm'])
    p['program'] = 'run' if character in ('connections', 'server dies') and dice.random() < 0.25 \
        else 'soda'
    p['threads'] = dice.choice([1, 1, 2, 3, 4, 8])
    p['mode'] = 'handler' if dice.random() < 0.3 else 'inline'
    settings(dice, p)
    p['rules'] = CHARACTERS[character][1].split()
    chunk = 65536
    if p['program'] == 'soda' and dice.random() < 0.4:
        chunk = dice.choice([4096, 16384, 262144])
        p['env']['SODA_CHUNK'] = str(chunk)
    elif p['program'] == 'run':
        p['env']['SODA_CHUNK'] = str(chunk)
    p['chunk'] = chunk
    p['chunks'] = max(64, (dice.choice([8, 12, 24]) << 20) // chunk)
    while p['chunks'] > 3000:
        p['chunks'] //= 2
    # as the harness does it: what the threads need, and some room beside
    p['buffer'] = 5 * chunk * (p['threads'] + 2) + dice.choice([1, 4, 16]) * (1 << 20)
    if chunk > 65536:
        p['buffer'] += 32 * chunk
    p['mix'] = PLAIN_MIX if p['program'] == 'run' else MIXES[pick(dice, {
        'mixed': 6, 'reads': 2, 'writes': 3, 'syncs': 2, 'discards': 2, 'heap': 2, 'churn': 1})]
    if character == 'full':
        p['mix'] += ',greedy:1'
    p['shared'] = int(p['threads'] > 1 and dice.random() < 0.25)
    p['files'] = p['program'] == 'soda' and (dice.random() < 0.4 or character == 'file changes')
    p['events'] = []
    at = 0
    for _ in range(dice.randint(4, 9)):
        at += dice.randint(200, 3000)
        p['events'].append({'at': at, 'faults': fault(dice, p)})
    # a region is a descriptor of the server's
    if any(f['do'] == 'descriptors' and f['of'] != 'program' for e in p['events'] for f in e['faults']):
        p['rules'].append('full')
    if p['program'] == 'run' and p['rules']:
        p['rules'].append('fills')
    p['ops'] = at + 1000
    p['end'] = 'kill' if dice.random() < 0.1 else 'exit'
    p['freeze'] = int(p['files'] and p['way'].startswith('agent') and '--base' not in p['agent'] and
                      character != 'file changes' and dice.random() < 0.5)
    return p
