# SPDX-License-Identifier: BSD-3-Clause
"""Carries out one plan (plan.py), and judges what came of it."""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

import plan as plans
import stage
import wire
from proxy import Proxy
from stage import Wrong

# more than a fault's time-out, which the plan sets
HANG_S = float(os.environ.get('SODA_TORTURE_HANG', '45'))
LOOK_S = 0.02
COPIES_S = 60  # all servers of a pool are there: so long until all copies are
RUN_S = 300


def who_stands_still(progress, threads, moved):
    """Threads of a program that have made no step for HANG_S.  moved: what was seen last, and when."""
    now, state = time.monotonic(), progress.state()
    if state in ('starting', 'done'):
        steps = progress.rows()[stage.THREADS_MAX][1] if progress.map else 0
        if moved.get('state', (None,))[0] != (state, steps):
            moved['state'] = ((state, steps), now)
        return [f'the program is {state}'] if now - moved['state'][1] > HANG_S else []
    hung = []
    for i, row in enumerate(progress.rows()):
        who = f'thread {i}' if i < stage.THREADS_MAX else 'the main thread'
        busy = i < threads and row[2] != stage.ENDED if state == 'running' else i == stage.THREADS_MAX
        if not busy or moved.get(who, (None,))[0] != (row[1], state):
            moved[who] = ((row[1], state), now)
        elif now - moved[who][1] > HANG_S:
            hung.append(f'{who} in operation {row[2]} after {row[0]}' if i < stage.THREADS_MAX
                        else f'{who}, {state}')
    return hung


def failure_of(log, name, status):
    """A verdict: what the program said, or how it ended."""
    with open(log, errors='replace') as f:
        lines = [line for line in f.read().splitlines() if line]
    said = [line for line in lines if line.split(':')[0] in ('wrong bytes', 'wrong code', 'cannot start')]
    if said:
        return said[-1]
    return f'wrong code: {name} ended with {status}: {" | ".join(lines[-3:])}'


class Reader:
    """A program that reads the read-only file, beside others."""

    def __init__(self, run, number, settings):
        self.run, self.number, self.settings = run, number, settings
        self.name = f'reader-{number}'
        self.threads = settings['threads']
        self.lives = 0
        self.start()

    def log(self):
        return self.run.path(f'{self.name}.log')

    def buffer(self):
        chunk = self.run.plan['chunk']
        return 5 * chunk * (self.threads + 2) + (2 << 20) + (32 * chunk if chunk > 65536 else 0)

    def start(self):
        p = self.run.plan
        self.lives += 1
        self.moved = {}
        self.progress = stage.Progress(self.run.path(f'progress-{self.name}-{self.lives}'))
        env = {k: v for k, v in os.environ.items() if not k.startswith('SODA_')}
        env.update(p['env'])
        env.update(SODA_LOG='info', SODA_MODE=self.settings['mode'], SODA_THREADS=str(self.threads),
                   SODA_BUFFER=str(self.buffer()),
                   SODA_DPU=self.run.links['program'].address.replace('shm:', 'unix:'))
        command = [stage.built('tests/torture/torture_program'), 'reader=1', 'ro=ro', 'ops=1',
                   f'mix={plans.READER_MIX}', f'seed={p["seed"] * 1000 + self.number * 100 + self.lives}',
                   f'chunk={p["chunk"]}', f'threads={self.threads}', 'rules=' + ','.join(p['rules']),
                   'progress=' + self.progress.path]
        with open(self.log(), 'ab') as log:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def look(self):
        """It goes on, was killed by us, or has ended as it may."""
        status = self.process.poll()
        if status in (None, -signal.SIGKILL):
            return
        if status or self.progress.state() != 'done':
            raise Wrong(failure_of(self.log(), self.name, status))

    def end(self):
        """The last look at all that it reads; the file may still be to be opened."""
        if self.progress.open():
            self.progress.calm()
        return self.process.poll() is not None


class Mover(Reader):
    """A producer or a consumer of movement."""

    def __init__(self, run, number, settings):
        super().__init__(run, number, {**settings, 'threads': 1})

    def start(self):
        p, s = self.run.plan, self.settings
        self.name = f'mover-{self.number}'
        self.lives += 1
        self.moved = {}
        self.progress = stage.Progress(self.run.path(f'progress-{self.name}-{self.lives}'))
        address = (self.run.links['program'] if s['proxied'] else self.run.agent).address
        env = {k: v for k, v in os.environ.items() if not k.startswith('SODA_')}
        env['SODA_DPU'] = address.replace('shm:', 'unix:')
        command = [stage.built('tests/torture/torture_mover'), s['role'], 'name=' + s['name'],
                   f'seed={p["seed"] * 1000 + 500 + self.number * 50 + self.lives}',
                   'progress=' + self.progress.path]
        with open(self.log(), 'ab') as log:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log)


class Run:
    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder
        self.proxy = Proxy()
        self.links = {}
        self.keys = None  # the directory of an agent that seals
        self.program = None
        self.readers = []
        self.movers = []
        self.progress = stage.Progress(self.path('progress'))
        self.moved = {}  # thread: its last step, and when
        self.undo = []  # (when, function), of the faults that last
        self.notes = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def note(self, text):
        self.notes.append(f'{self.progress.ops():8d} {text}')

    # The stage

    def open(self):
        way = self.plan['way']
        host = f'tcp://127.{1 + (os.getpid() >> 16) % 200}.{(os.getpid() >> 8) % 256}.' \
               f'{1 + os.getpid() % 250}:0'
        os.mkdir(self.path('export'))
        files = (('ro', self.plan['file_bytes'], 1), ('rw', plans.FILE_BYTES, 2))
        sealed = self.plan['sealed'] and self.plan['files']
        for name, bytes_, id_ in files if not sealed else ():
            self.make_file(name, bytes_, id_)
        if sealed:
            self.make_key()
        # some go without a word, or their last one is lost: the first agent does not look at a connection that is idle
        gone = self.plan['end'] == 'kill' or self.plan['readers'] or self.plan['below'] is not None
        grace = {'expired': '1s'}.get(self.plan['character'], '8s' if gone else '60s')
        for i in range(self.plan['members']):
            self.servers.append(stage.Daemon(f'server {i}' if i else 'server', 'src/mem_server/soda-mem-server',
                                             ['--capacity', '320M', '--export', self.path('export'),
                                              '--grace', grace, *self.plan['server']],
                                             'shm://' + self.path('s.sock') if way == 'shm' else host, self.folder))
            self.servers[i].start()
        self.server = self.servers[0]
        self.agent = None
        first = self.server
        if way.startswith('agent'):
            link = self.proxy.link(host, self.server.address)
            self.links['server'] = link
            if self.plan['below'] is not None:
                self.below = stage.Daemon('below', 'src/dpu_agent/soda-dpu-agent',
                                          ['--server', link.address, *self.plan['below']], host, self.folder)
                self.below.start()
                link = self.proxy.link(host, self.below.address)
                self.links['below'] = link
            keys = []
            if self.plan['sealed'] == 'agent':  # on a tmpfs, and this user's alone
                self.keys = tempfile.mkdtemp(prefix='soda-torture-', dir='/dev/shm')
                keys = ['--seal-state', self.keys]
                keys += ['--seal-key-file', self.path('key')] if sealed else []
            self.agent = stage.Daemon('agent', 'src/dpu_agent/soda-dpu-agent',
                                      ['--server', link.address, *self.plan['agent'], *keys],
                                      'shm://' + self.path('a.sock') if way == 'agent-shm' else host,
                                      self.folder)
            self.agent.start()
            first = self.agent
        for name, bytes_, id_ in files if sealed else ():
            self.seal_file(name, bytes_, id_, first.address)
        listen = host if first.address.startswith('tcp') else 'shm://' + self.path('p.sock')
        self.links['program'] = self.proxy.link(listen, first.address)
        for i, member in list(enumerate(self.servers))[1:]:
            self.links[f'program {i}'] = self.proxy.link(listen, member.address)
        self.start_program(','.join(link.address for name, link in self.links.items() if name.startswith('program')))
        for number, settings in enumerate(self.plan['readers']):
            self.readers.append(Reader(self, number, settings))
        for number, settings in enumerate(self.plan['movers']):
            self.movers.append(Mover(self, number, settings))

    def make_file(self, name, bytes_, id_):
        subprocess.run([stage.built('tests/torture/torture_program'), 'make',
                        self.path('export/' + name), str(bytes_), str(id_)], check=True, timeout=60)

    def make_key(self):
        """For sealed files."""
        subprocess.run([stage.built('tools/soda/soda'), 'seal', 'key', self.path('key')], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        if self.plan['sealed'] == 'program':
            self.plan['env']['SODA_SEAL_KEY_FILE'] = self.path('key')

    def seal_file(self, name, bytes_, id_, address):
        """In the export directory, by whoever seals in this plan, before anything goes wrong."""
        env = {k: v for k, v in os.environ.items() if not k.startswith('SODA_')}
        env.update({k: v for k, v in self.plan['env'].items() if k.startswith('SODA_SEAL')})
        env['SODA_SERVER'] = address
        subprocess.run([stage.built('tests/torture/torture_program'), 'seal', name, str(bytes_), str(id_)],
                       check=True, timeout=60, env=env)

    def start_program(self, address):
        p = self.plan
        args = [f'{key}={p[key]}' for key in ('seed', 'ops', 'chunks', 'chunk', 'threads', 'shared', 'freeze',
                                           'mix')]
        args += ['rules=' + ','.join(p['rules']), 'progress=' + self.progress.path]
        env = {k: v for k, v in os.environ.items() if not k.startswith('SODA_')}
        env.update(p['env'])
        agent = bool(self.agent)
        if agent:
            address = address.replace('shm:', 'unix:')
        if p.get('plant') in ('bytes', 'hang', 'code'):
            args.append('plant=' + p['plant'])
        if p['program'] == 'run':
            command = [stage.built('tools/soda/soda'), 'run', '--mem', str(p['buffer']), '--threshold',
                       '64K', '--dpu' if agent else '--server', address, '--',
                       stage.built('tests/torture/torture_plain')]
        else:
            env['SODA_BUFFER'] = str(p['buffer'])
            if p['readers']:
                env['SODA_LOG'] = 'info'  # put_bytes()
            env['SODA_DPU' if agent else 'SODA_SERVER'] = address
            command = [stage.built('tests/torture/torture_program')]
            if p['files']:
                args += ['ro=ro', 'rw=rw', 'promises=' + self.path('promises')]
        with open(self.path('program.log'), 'wb') as log, open(self.path('program.out'), 'wb') as out:
            self.program = subprocess.Popen(command + args, env=env, stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=log)
        while self.progress.state() == 'starting':
            self.look()
            time.sleep(LOOK_S)

    def close(self):
        """Nothing is left, whatever happened."""
        for process in [self.program, self.left] + [d.process for d in self.daemons() + self.beside()]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        if self.keys:
            shutil.rmtree(self.keys, ignore_errors=True)

    # Faults

    def daemon(self, name):
        named = {'agent': self.agent, 'below': self.below, **{d.name: d for d in self.servers}}
        return named[name]

    def daemons(self):
        return [d for d in (self.agent, self.below, *self.servers) if d]

    def beside(self):
        """Processes beside the program."""
        return self.readers + self.movers

    def process(self, name):
        if name.startswith('mover '):
            return self.movers[int(name[6:])].process
        if name.startswith('reader '):
            return self.readers[int(name[7:])].process
        return self.program if name == 'program' else self.daemon(name).process

    def later(self, ms, function):
        self.undo.append((time.monotonic() + ms / 1000, function))

    def kill(self, names, ms, between=None):
        for name in names:
            self.daemon(name).kill()

        def restart():
            if between:
                between()
            for name in names:
                self.daemon(name).start()
        self.later(ms, restart)

    def kill_reader(self, reader, after_ms, ms):
        """Then another one comes, unless one is about to."""
        def strike():
            if reader.process.poll() is None:
                reader.kill()
                self.later(ms, reader.start)
        self.later(after_ms, strike)

    def change_file(self):
        time.sleep(0.02)  # another modification time
        self.make_file('ro', self.plan['file_bytes'], 9)

    def set_link(self, link, name, value, default, ms):
        self.proxy.do(lambda: setattr(link, name, value))
        self.later(ms, lambda: self.proxy.do(lambda: setattr(link, name, default)))

    def spoil(self, link, f):
        how = {**wire.SPOILERS, **wire.REFUSERS}[f['how']]
        spoiler = {'how': how, 'skip': f['skip'], 'done': False}

        def begin():
            link.spoilers.append(spoiler)
            if f.get('cut'):
                link.cut()

        def end():
            link.spoilers.remove(spoiler)
            if spoiler['done']:
                self.note(f'  has spoilt a {f["how"]}')
        self.proxy.do(begin)
        self.later(f['ms'], lambda: self.proxy.do(end))

    def take_descriptors(self, f):
        pid = self.process(f['of']).pid
        if self.process(f['of']).returncode is not None:
            return  # it has just been killed
        if 'reader' in f and self.readers[f['reader']].progress.state() == 'starting':
            return  # a program without descriptors cannot even begin
        was = stage.limit_descriptors(pid, max(stage.descriptors(pid)) + 1 + f['more'])
        if f['cut']:
            link = self.links['server' if f['of'] == 'server' and self.agent else f.get('link') or 'program']
            self.proxy.do(link.cut)

        def end():
            if self.process(f['of']).pid == pid and self.process(f['of']).poll() is None:
                stage.limit_descriptors(pid, was[0])
        self.later(f['ms'], end)

    def damage(self, d, f):
        """Pages of a server's memory, by the dice of the plan."""
        dice = random.Random(f['dice'])
        if d.process.returncode is not None:
            return  # it has just been killed
        pages = d.region_pages()
        before = {at: d.read_page(at) for at in dice.sample(pages, min(f['pages'], len(pages)))}
        before = {at: text for at, text in before.items() if text}
        if f['how'] == 'back':  # what is written meanwhile is taken away again
            pid = d.process.pid
            self.later(max(f['ms'], 50),
                       lambda: pid == d.process.pid and d.process.returncode is None and self.write_pages(d, before))
            return
        texts = list(before.values())
        if f['how'] == 'swap':
            texts = texts[1:] + texts[:1]
        elif f['how'] == 'zero':
            texts = [bytes(stage.PAGE)] * len(texts)
        else:
            texts = [bytes([text[0] ^ 1 << dice.randrange(8)]) + text[1:] for text in texts]
        self.write_pages(d, dict(zip(before, texts)))

    def write_pages(self, d, pages):
        n = sum(d.write_page(at, text) for at, text in pages.items())
        self.note(f'  {n} pages of the {d.name} are not what they were')

    def aim(self, f):
        """At the member of the pool that the event strikes: what is said of the server and its link is said of that."""
        member = f.get('member')
        if member:
            f = {**f, 'do': f['do'].replace('server', f'server {member}'), 'link': f'program {member}'}
            if f.get('of') == 'server':
                f['of'] = f'server {member}'
        return f

    def strike(self, f):
        f = self.aim(f)
        self.note(' '.join(f'{k}={v}' for k, v in f.items()))
        do, ms, link = f['do'], f['ms'], self.links.get(f.get('link', ''))
        if do == 'cut':
            self.proxy.do(link.cut)
        elif do == 'cut one':
            self.proxy.do(lambda: link.cut(link.pairs[self.plan['seed'] % 7:][:1] or link.pairs[:1]))
        elif do == 'delay':
            self.set_link(link, 'delay_s', f['delay_ms'] / 1000, 0.0, ms)
        elif do == 'hold':
            self.set_link(link, 'held', True, False, ms)
        elif do == 'hold and cut':
            self.set_link(link, 'held', True, False, ms)
            self.later(ms, lambda: self.proxy.do(link.cut))
        elif do in ('refuse', 'stay away'):
            self.set_link(link, 'refusing', True, False, ms)
            self.proxy.do(link.cut)
        elif do == 'trickle':
            self.set_link(link, 'trickle', f['bytes'], 0, ms)
        elif do == 'spoil':
            self.spoil(link, f)
        elif do == 'damage':
            self.damage(self.servers[f['member']], f)
        elif do == 'descriptors':
            self.take_descriptors(f)
        elif do == 'kill reader':
            self.kill_reader(self.readers[f['reader']], f.get('after_ms', 0), ms)
        elif do == 'kill mover':
            self.kill_reader(self.movers[f['mover']], 0, ms)
        elif do.startswith('stop '):
            who = [f'{kind} {f[kind]}' for kind in ('reader', 'mover') if kind in f]
            process = self.process(who[0] if who else do[5:])
            process.send_signal(signal.SIGSTOP)
            self.later(ms, lambda: process.send_signal(signal.SIGCONT))
        elif do == 'change file':
            self.kill(['server'], ms, self.change_file)
        elif do == 'kill both':
            self.kill(['server', 'agent'], ms)
        elif do.startswith('kill '):
            self.kill([do[5:]], ms)
        else:
            raise ValueError(do)

    # Watching

    def look(self):
        """The program goes on, or has ended as it may; the daemons live."""
        status = self.program.poll()
        if status is not None and (status or self.progress.state() != 'done'):
            raise Wrong(self.program_failure(status))
        for reader in self.beside():
            reader.look()
        hung = self.who_hangs()
        if hung:
            raise Wrong(f'hang: {", ".join(hung)}')
        for d in self.daemons():
            if d.process.returncode is None and d.process.poll() is not None:
                raise Wrong(f'wrong code: the {d.name} has ended by itself with {d.process.returncode}')

    def who_hangs(self):
        """Who should have made a step for longer than HANG_S."""
        hung = who_stands_still(self.progress, self.plan['threads'], self.moved)
        for reader in self.beside():
            if reader.process.returncode is None:
                hung += [f'{reader.name}: {who}' for who in
                         who_stands_still(reader.progress, reader.threads, reader.moved)]
        if time.monotonic() - self.started > RUN_S:
            hung.append(f'the run is over its {RUN_S} s')
        return hung

    def program_failure(self, status):
        return failure_of(self.path('program.log'), 'the program', status)

    def pause(self, until):
        """Watch until it is true; what has lasted long enough ends meanwhile."""
        while True:
            for entry in sorted(self.undo, key=lambda e: e[0]):
                if entry[0] <= time.monotonic():
                    self.undo.remove(entry)
                    entry[1]()
            if until():
                return
            self.look()
            time.sleep(LOOK_S)

    def play(self):
        for event in self.plan['events']:
            self.pause(lambda: self.progress.ops() >= event['at'] and not self.undo)
            self.await_copies()
            for f in event['faults']:
                self.strike(f)
        self.pause(lambda: not self.undo)
        self.note('calm')

    def await_copies(self):
        """Of a pool: all servers know the program, and say that no copy is missing; twice, because it may not have
        noticed a server's end yet."""
        good, end = 0, time.monotonic() + COPIES_S
        while len(self.servers) > 1 and good < 2:
            self.pause(lambda until=time.monotonic() + 0.4: time.monotonic() >= until)
            missing = [max([c.get('pool_copies_missing', 0) for c in d.statistics()['client_list'] if c.get('pool_program')],
                           default='?') for d in self.servers]
            good = good + 1 if not any(missing) else 0
            if time.monotonic() > end:
                raise Wrong(f'hang: copies are missing for {COPIES_S} s: {missing}')

    # Verdicts

    def end_program(self):
        if self.plan['end'] == 'kill':
            self.program.kill()
            self.program.wait()
            return
        self.progress.calm()
        self.pause(lambda: self.program.poll() is not None)
        self.look()
        if self.progress.state() != 'done':
            raise Wrong(self.program_failure(self.program.returncode))

    def end_readers(self):
        """All of them end, if they were not killed; the first one without a word, where the program does."""
        for reader in self.readers[:1] if self.plan['end'] == 'kill' else []:
            reader.kill()
        self.pause(lambda: all([reader.end() for reader in self.readers]))
        # a consumer's last steps are those of a producer that goes on
        for role in ('consume', 'produce'):
            movers = [m for m in self.movers if m.settings['role'] == role]
            self.pause(lambda: all([m.end() for m in movers]))
        for reader in self.beside():
            reader.look()

    def judge_logs(self):
        # one that begins in the middle of faults may say what it could not have at once
        quiet = ['program', *(reader.name for reader in self.readers if reader.lives == 1)]
        for name in ('program', *(d.name for d in self.servers), 'agent', 'below', *(reader.name for reader in self.beside())):
            if not os.path.exists(self.path(name + '.log')):
                continue
            with open(self.path(name + '.log'), errors='replace') as f:
                lines = f.read().splitlines()
            for line in lines:
                if 'ERROR: ' in line or 'ThreadSanitizer' in line or 'runtime error' in line:
                    raise Wrong(f'sanitizer: {name}: {line}')
                if name in quiet and ': error: ' in line and not set(self.plan['rules']) - {'full', 'store'}:
                    raise Wrong(f'wrong code: an error is logged where none may be: {line}')

    def put_bytes(self):
        """What programs may have put into the agent's store that it does not count.  They do that where it sends
        data, after they had lost their places in the store, at most as much each time that they had opened the
        file as src/host_agent/pages/shared.c keeps of it; and then they say so."""
        p, most = self.plan, 0
        programs = [('program', p['buffer'], p['threads'])] + [(r.name, r.buffer(), r.threads) for r in self.readers]
        for name, buffer, threads in programs:
            with open(self.path(name + '.log'), errors='replace') as f:
                said = sum('does not keep all of it in its store' in line for line in f)
            most += said * max(buffer, (64 + 16 * threads) * p['chunk'])
        return most

    def waited_bytes(self, statistics):
        """A chunk that is evicted although a thread waits for it is put there by that thread's program: one for
        each eviction that was forced, and for each thread that lost its place while it waited."""
        threads = self.plan['threads'] + sum(r.threads * r.lives for r in self.readers)
        return (statistics.get('store_forced', 0) + threads) * self.plan['chunk']

    def judge_daemon(self, d):
        """Its accounting is back at nothing, and so is what it holds."""
        end = time.monotonic() + stage.STAT_S
        while True:
            held = d.holdings()  # before a connection of our own
            s = d.statistics()
            wrong = [f'{k} {s[k]}' for k in ('used_bytes', 'regions', 'static_used_bytes',
                                             'server_bytes_under_way', 'move_buffers', 'move_reserved_bytes',
                                             'move_list_bytes') if s.get(k)]
            if s['clients'] > 1:
                wrong.append(f'clients {s["clients"] - 1}')
            kept = d.kept_by_store(s)
            wrong += stage.wrong_in_store(s, d.store_memory(), self.put_bytes(), self.waited_bytes(s))
            wrong += [f'{held[k]} of {k}, at first {d.before[k]}' for k in held
                      if held[k] > d.before[k] + kept.get(k, 0)]
            if not wrong:
                return
            if time.monotonic() > end:
                raise Wrong(f'leak: the {d.name} has {", ".join(wrong)}')
            time.sleep(0.1)

    def plant(self):
        """Whether what is left is found is tested, too."""
        if self.plan.get('plant') == 'process':
            subprocess.Popen(['sleep', '1000'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        if self.plan.get('plant') == 'memory':
            env = {**os.environ, 'SODA_SERVER': self.server.address, 'SODA_BUFFER': '4M'}
            self.left = subprocess.Popen([stage.built('tests/torture/torture_program'),
                                          'progress=' + self.path('progress-of-another')], env=env)
        if self.plan.get('plant') == 'store':
            self.agent.fill_store()

    def judge_left(self):
        for d in self.daemons():
            self.judge_daemon(d)
        for d in self.daemons():
            # an agent that could not write what it had acknowledged says so, at last by its exit status
            d.stop((0, 1) if d is self.agent and self.plan.get('early') and 'lose' in self.plan['rules'] else (0,))
        for name in ('s.sock', 'a.sock'):
            if os.path.exists(self.path(name)):
                raise Wrong(f'leak: {name} is left')

    def opened_file(self, sealed):
        """Its content, which has to be readable whatever has happened, and is not to be found there in clear."""
        at = self.path('rw')
        with open(at, 'wb') as out:
            done = subprocess.run([stage.built('tools/soda/soda'), 'seal', 'cat', '--key-file', self.path('key'), sealed],
                                  stdout=out, stderr=subprocess.PIPE, timeout=60, check=False)
        if done.returncode:
            raise Wrong(f'wrong bytes: a sealed file cannot be read: {done.stderr.decode(errors="replace").strip()}')
        with open(sealed, 'rb') as file, open(at, 'rb') as out:
            if out.read(4096) in file.read():
                raise Wrong('wrong bytes: a sealed file has its content in clear')
        return at

    def judge_file(self):
        if not os.path.exists(self.path('promises')):
            return
        at = self.path('export/rw')
        if self.plan['sealed']:
            at = self.opened_file(at)
        done = subprocess.run([stage.built('tests/torture/torture_program'), 'verify',
                               at, self.path('promises'), str(plans.FILE_BYTES),
                               str(self.plan['chunk'])], capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise Wrong(done.stderr.decode(errors='replace').strip())

    def carry_out(self):
        """None, or what was wrong."""
        self.started = time.monotonic()
        self.agent = self.below = self.server = self.left = None
        self.servers = []
        try:
            self.open()
            self.play()
            self.end_readers()
            self.end_program()
            self.plant()
            self.judge_logs()
            self.judge_left()
            self.judge_file()
        except Wrong as wrong:
            if str(wrong).startswith('hang'):
                with open(self.path('where'), 'w') as f:
                    f.write(stage.where())
            return str(wrong)
        finally:
            self.close()
            self.proxy.stop()
        return None
