# SPDX-License-Identifier: BSD-3-Clause
"""Plays a drawn configuration: two programs work, what the configuration says happens, and all is judged."""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

import scene
from scene import Wrong, built, torture

import conductor  # of tests/torture

LOOK_S = 0.02
RUN_S = 240
TIMES = 3  # that it happens
HARMLESS_LEFT_S = 60


class Play:
    def __init__(self, drawn, number):
        self.drawn, self.number = drawn, number
        self.dice = random.Random(f'draw {number}')
        self.folder = tempfile.mkdtemp(prefix=f'soda-draw-{number}-')
        self.stage = scene.Stage(drawn, number, self.folder)
        self.undo = []  # (when, function)
        self.begin = time.monotonic()

    def later(self, ms, function):
        self.undo.append((time.monotonic() + ms / 1000, function))

    # Events

    def happen(self):
        ms = self.dice.choice([5, 50, 300, 1000])
        {'nothing': lambda ms: None, 'cut': self.cut, 'server stops': self.stop_server, 'server ends': self.end_server,
         'agent stops': self.stop_agent, 'agent ends': self.end_agent, 'program stops': self.stop_program,
         'etcd ends': self.end_etcd, 'key rotates': self.rotate_key}[self.drawn['happens']](ms)

    def cut(self, ms):
        if not self.stage.links:  # members of etcd have no proxy: a moment of silence
            self.stop_server(ms)
            return
        link = self.dice.choice(self.stage.links)
        self.stage.proxy.do(link.cut)

    def pause_process(self, process, ms):
        process.send_signal(signal.SIGSTOP)
        self.later(ms, lambda: process.send_signal(signal.SIGCONT))

    def stop_server(self, ms):
        self.pause_process(self.dice.choice(self.stage.servers).process, ms)

    def stop_agent(self, ms):
        self.pause_process(self.dice.choice(self.stage.agents).process, ms)

    def stop_program(self, ms):
        running = [p for p in self.stage.programs if p.process.poll() is None]
        if running:
            self.pause_process(self.dice.choice(running).process, ms)

    def end_and_start(self, what, ms):
        what.kill()
        self.later(ms, what.start)

    def end_server(self, ms):
        """One at a time: where there are copies, all of them are there before."""
        if self.drawn['redundancy'] not in ('none', 'stripe:2'):
            self.await_copies()
        self.end_and_start(self.dice.choice(self.stage.servers), ms)

    def end_agent(self, ms):
        self.end_and_start(self.dice.choice(self.stage.agents), ms)

    def end_etcd(self, ms):
        self.end_and_start(self.stage.etcd, ms)

    def rotate_key(self, ms):
        """A new key for the first program's tenant, at all daemons; the old one is still good; then connections break."""
        for name, daemons in (('server.ini', self.stage.servers), ('agent.ini', self.stage.agents[:1])):
            if not daemons:
                continue
            scene.soda('tenant', 'rotate', 'alice', '--file', self.stage.path(name), '--key-file',
                        self.stage.key('alice'))
            for d in daemons:
                d.process.send_signal(signal.SIGHUP)
        for program in self.stage.programs:
            program.own(self.stage.key('alice'))
        if self.stage.links:
            self.cut(ms)

    # Watching

    def look(self):
        for p in self.stage.programs:
            status = p.process.poll()
            if status is not None and (status or any(x.state() != 'done' for x in p.progress)):
                raise Wrong(conductor.failure_of(p.log(), p.name, status))
            if status is None:
                for progress, moved in zip(p.progress, p.moved):
                    hung = conductor.who_stands_still(progress, p.threads(), moved)
                    if hung:
                        raise Wrong(f'hang: {p.name}: {", ".join(hung)}')
        for d in [*self.stage.servers, *self.stage.agents]:
            if d.process.returncode is None and d.process.poll() is not None:
                raise Wrong(f'wrong code: the {d.name} has ended by itself with {d.process.returncode}')
        if time.monotonic() - self.begin > RUN_S:
            raise Wrong(f'hang: the run is over its {RUN_S} s')

    def pause(self, until):
        while True:
            for entry in sorted(self.undo, key=lambda e: e[0]):
                if entry[0] <= time.monotonic():
                    self.undo.remove(entry)
                    entry[1]()
            if until():
                return
            self.look()
            time.sleep(LOOK_S)

    def await_copies(self):
        good, end = 0, time.monotonic() + HARMLESS_LEFT_S
        while good < 2:
            self.pause(lambda until=time.monotonic() + 0.4: time.monotonic() >= until)
            missing = [c.get('pool_copies_missing', 0) for d in self.stage.servers
                       for c in d.statistics()['client_list'] if c.get('pool_program')]
            good = good + 1 if missing and not any(missing) else 0
            if all(p.process.poll() is not None for p in self.stage.programs):
                return
            if time.monotonic() > end:
                raise Wrong(f'hang: copies are missing for {HARMLESS_LEFT_S} s: {missing}')

    def play(self):
        operations = scene.OPERATIONS * int(self.drawn['threads'])
        first = self.stage.programs[0].progress[0]
        self.pause(lambda: all(x.state() != 'starting' for p in self.stage.programs for x in p.progress))
        for i in range(TIMES):
            at = operations * (i + 1) // (TIMES + 2)
            self.pause(lambda: (first.ops() >= at or first.state() == 'done') and not self.undo)
            self.happen()
        self.pause(lambda: not self.undo)

    # Verdicts

    def end_programs(self):
        for role in ('consume', None):
            some = [p for p in self.stage.programs if role in (None, p.name)]
            for p in some:
                for x in p.progress:
                    if x.open():
                        x.calm()
            self.pause(lambda: all(p.process.poll() is not None for p in some))
        self.look()

    def judge_daemon(self, d):
        end = time.monotonic() + torture.STAT_S + HARMLESS_LEFT_S
        while True:
            s = d.statistics()
            wrong = [f'{k} {s[k]}' for k in ('used_bytes', 'regions', 'static_used_bytes', 'server_bytes_under_way',
                                             'move_buffers', 'move_reserved_bytes', 'move_list_bytes') if s.get(k)]
            if not wrong:
                return
            if time.monotonic() > end:
                raise Wrong(f'leak: the {d.name} has {", ".join(wrong)}')
            time.sleep(0.2)

    def judge_file(self):
        if not os.path.exists(self.stage.path('promises')):
            return
        at = self.stage.path('export/rw')
        if self.drawn['seal'] != 'none':
            clear = self.stage.path('rw')
            with open(clear, 'wb') as out:
                done = subprocess.run([built('tools/soda/soda'), 'seal', 'cat', '--key-file',
                                       self.stage.path('seal.key'), at], stdout=out, stderr=subprocess.PIPE,
                                      timeout=60, check=False)
            if done.returncode:
                raise Wrong(f'wrong bytes: a sealed file cannot be read: {done.stderr.decode(errors="replace")}')
            at = clear
        done = subprocess.run([built('tests/torture/torture_program'), 'verify', at, self.stage.path('promises'),
                               str(scene.FILE_BYTES), str(scene.SIZES[self.drawn['chunk']])],
                              capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise Wrong(done.stderr.decode(errors='replace').strip())

    def judge_logs(self):
        for who in [*self.stage.programs, *self.stage.servers, *self.stage.agents]:
            path = who.log() if callable(who.log) else who.log
            with open(path, errors='replace') as f:
                for line in f.read().splitlines():
                    if 'ERROR: ' in line or 'runtime error' in line:
                        raise Wrong(f'sanitizer: {who.name}: {line}')

    def judge(self):
        self.judge_logs()
        for d in [*self.stage.agents, *self.stage.servers]:
            self.judge_daemon(d)
        lost = (0, 1) if self.stage.rules else (0,)
        for d in [*self.stage.agents, *self.stage.servers]:
            d.stop(lost if d in self.stage.agents else (0,))
        self.judge_file()

    def carry_out(self):
        """None, or what was wrong."""
        try:
            self.stage.open()
            self.play()
            self.end_programs()
            self.judge()
        except Wrong as wrong:
            if str(wrong).startswith('hang'):
                with open(self.stage.path('where'), 'w') as f:
                    f.write(torture.where())
            return str(wrong)
        finally:
            self.stage.close()
        return None

    def keep(self, where):
        """The files that a failure has left, but for sockets and data."""
        shutil.rmtree(where, ignore_errors=True)
        os.makedirs(where)
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if os.path.isfile(path) and os.path.getsize(path) < 4 << 20:
                shutil.copy(path, where)

    def forget(self):
        shutil.rmtree(self.folder, ignore_errors=True)
