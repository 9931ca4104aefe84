# SPDX-License-Identifier: BSD-3-Clause
"""The processes of one run: memory server (or several, a pool), DPU agent (or two, then the one before the server
is "below"), program; and what they leave behind."""

import collections
import json
import mmap
import os
import resource
import select
import signal
import struct
import subprocess
import time

BUILD = os.environ.get('SODA_BUILD_DIR', 'build')
SOURCE = os.environ.get('SODA_SOURCE_DIR', '.')
READY_S, END_S = 60, 40
STAT_S = float(os.environ.get('SODA_TORTURE_LEFT', '20'))
THREADS_MAX = 8
ENDED = 255  # program.c


# What the kernel calls an agent's memory for the node's store: of a file's data, one a GiB, and its map.
STORE_DATA, STORE_MAP = '/memfd:soda-store (deleted)', '/memfd:soda-store-map (deleted)'
# What a memory server's regions are multiples of, and what is sealed as one.
REGION, PAGE = 2 << 20, 4096


class Wrong(Exception):
    """A verdict: what was wrong, in a sentence that begins with its kind."""


def built(path):
    return os.path.join(BUILD, path)


def await_end(process, seconds):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


class Daemon:
    """A memory server or an agent; a restart is another instance at the same address."""

    def __init__(self, name, program, args, listen, folder):
        self.name, self.program, self.args, self.listen = name, program, args, listen
        self.log = os.path.join(folder, name + '.log')
        self.process = None
        self.address = None
        self.before = None  # what the first instance held, before there was a client

    def start(self):
        # its end of the pipe ends with us, and with it the daemon
        life_r, self.life = os.pipe()
        command = [built(self.program), '--parent-fd', str(life_r), '--listen',
                   self.address or self.listen, *self.args]
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log,
                                            stdout=subprocess.PIPE, pass_fds=[life_r])
        os.close(life_r)
        self.address = self.await_ready()
        if not self.before:
            self.before = self.settled_holdings()

    def await_ready(self):
        line, out = b'', self.process.stdout
        end = time.monotonic() + READY_S
        while not line.endswith(b'\n') and time.monotonic() < end:
            if select.select([out], [], [], 1)[0]:
                byte = os.read(out.fileno(), 1)
                if not byte:
                    break
                line += byte
        if not line.startswith(b'READY '):
            raise Wrong(f'cannot start: the {self.name}: {line!r}; see its log')
        return line.decode().split()[1]

    def holdings(self):
        """Names of its threads and of what its descriptors are, with how many there are of each."""
        pid, held = self.process.pid, collections.Counter()
        for fd in descriptors(pid):
            try:
                what = os.readlink(f'/proc/{pid}/fd/{fd}')
            except OSError:
                continue
            held['descriptor ' + (what if what.startswith('anon') else what.split(':[')[0])] += 1
        for task in os.listdir(f'/proc/{pid}/task'):
            try:
                with open(f'/proc/{pid}/task/{task}/comm') as f:
                    held['thread ' + f.read().strip()] += 1
            except OSError:
                continue
        return held

    def store_files(self):
        """Where the files of its store's data are to be found."""
        folder, found = f'/proc/{self.process.pid}/fd', []
        for fd in descriptors(self.process.pid):
            try:
                if os.readlink(f'{folder}/{fd}') == STORE_DATA:
                    found.append(f'{folder}/{fd}')
            except OSError:
                continue
        return found

    def region_pages(self):
        """Addresses of pages of its regions that have memory.  Regions are whole huge pages that no core dump has, and,
        unlike keys, a child would."""
        pid, found = self.process.pid, []
        with open(f'/proc/{pid}/smaps') as smaps, open(f'/proc/{pid}/pagemap', 'rb', buffering=0) as pagemap:
            for line in smaps:
                word = line.split()
                if not word[0].endswith(':'):
                    first, end = (int(at, 16) for at in word[0].split('-'))
                flags = set(word[1:]) if word[0] == 'VmFlags:' else set()
                if not {'rd', 'wr', 'dd'} <= flags or 'wf' in flags or (end - first) % REGION:
                    continue
                n = (end - first) // PAGE
                entries = os.pread(pagemap.fileno(), 8 * n, first // PAGE * 8)
                found += [first + i * PAGE for i, (e,) in enumerate(struct.iter_unpack('<Q', entries)) if e >> 63]
        return found

    def read_page(self, at):
        """None: it has gone."""
        try:
            with open(f'/proc/{self.process.pid}/mem', 'rb', buffering=0) as memory:
                return os.pread(memory.fileno(), PAGE, at)
        except OSError:
            return None

    def write_page(self, at, text):
        """Whether it is another text than before."""
        if self.read_page(at) in (None, text):
            return False
        try:
            with open(f'/proc/{self.process.pid}/mem', 'r+b', buffering=0) as memory:
                return os.pwrite(memory.fileno(), text, at) == PAGE
        except OSError:
            return False

    def store_memory(self):
        """Bytes of these files that have memory."""
        return sum(os.stat(path).st_blocks * 512 for path in self.store_files())

    def fill_store(self):
        """Memory where the store has none, which nobody counts."""
        for path in self.store_files():
            fd = os.open(path, os.O_RDWR)
            end = os.fstat(fd).st_size
            while (at := os.lseek(fd, 0, os.SEEK_HOLE)) < end:
                os.pwrite(fd, bytes(4096), at)
            os.close(fd)

    @staticmethod
    def kept_by_store(statistics):
        """Descriptors that the objects of its store may have, of files that nobody has open any more."""
        objects = statistics.get('store_objects', 0)
        return {'descriptor ' + STORE_DATA: objects, 'descriptor ' + STORE_MAP: objects}

    def settled_holdings(self):
        """A thread that has begun has its parent's name until it runs: then only one has the process's."""
        self.statistics()
        with open(f'/proc/{self.process.pid}/comm') as f:
            first = 'thread ' + f.read().strip()
        end = time.monotonic() + READY_S
        while True:
            held = self.holdings()
            time.sleep(0.1)
            if held[first] == 1 and self.holdings() == held:
                return held
            if time.monotonic() > end:
                raise Wrong(f'hang: threads of the {self.name} have not begun: {dict(held)}')

    def forget(self):
        self.process.stdout.close()
        os.close(self.life)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.forget()

    def stop(self, allowed=(0,)):
        """SIGTERM; it must end, with one of these."""
        self.process.terminate()
        status = await_end(self.process, END_S)
        if status is None:
            raise Wrong(f'hang: the {self.name} does not end')
        self.forget()
        if status not in allowed:
            raise Wrong(f'wrong code: the {self.name} ended with {status}')

    def statistics(self):
        done = subprocess.run([built('tools/soda/soda'), 'stat', '--json', '--timeout', '10s',
                               self.address], capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise Wrong(f'wrong code: soda stat of the {self.name}: {done.stderr.decode()}')
        return json.loads(done.stdout)


def wrong_in_store(s, memory, put, waited):
    """What of an agent's statistics is wrong where no program is left.  memory: bytes its files have;
    put, waited: what programs may have put there themselves, while it sent data, and beside that."""
    if not s.get('store'):
        return []
    counted = s['store_used_bytes']
    wrong = [f'store_members {s["store_members"]}'] if s['store_members'] else []
    if counted > s['store_capacity_bytes']:
        wrong.append(f'store_used_bytes {counted} of {s["store_capacity_bytes"]}')
    if memory > counted + put + waited:
        wrong.append(f'{memory} bytes of memory in its store, where it counts {counted}')
    # those who put something there take it away, too, and it may have become the agent's meanwhile
    if not put and memory + waited < counted:
        wrong.append(f'{memory} bytes of memory in its store, where it counts {counted}')
    return wrong


class Progress:
    """struct progress of program.c."""

    STATES = ('starting', 'running', 'finishing', 'done')

    def __init__(self, path):
        self.path = path
        self.map = None

    def open(self):
        bytes_ = 8 + 24 * (THREADS_MAX + 1)
        if not self.map and os.path.exists(self.path) and os.path.getsize(self.path) >= bytes_:
            with open(self.path, 'r+b') as f:
                self.map = mmap.mmap(f.fileno(), bytes_)
        return self.map

    def calm(self):
        self.map[0:4] = struct.pack('<I', 1)

    def state(self):
        return self.STATES[struct.unpack_from('<I', self.map, 4)[0]] if self.open() else 'starting'

    def rows(self):
        """(operations, steps, operation now) of each thread; the last one is main's."""
        return [struct.unpack_from('<QQI', self.map, 8 + 24 * i) for i in range(THREADS_MAX + 1)]

    def ops(self):
        return sum(row[0] for row in self.rows()) if self.open() else 0


def descriptors(pid):
    return [int(fd) for fd in os.listdir(f'/proc/{pid}/fd')]


def limit_descriptors(pid, soft):
    """Set RLIMIT_NOFILE of a process; what it was."""
    was = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, was[1]), was[1]))
    return was


def where():
    """Where every thread of every process of this run stands."""
    done = subprocess.run(['timeout', '-k', '1', '60', os.path.join(SOURCE, 'tests/lib/where'),
                           str(os.getpid())], capture_output=True, check=False)
    return done.stdout.decode(errors='replace')


def is_stopped(pid):
    with open(f'/proc/{pid}/stat') as f:
        return f.read().rsplit(')', 1)[1].split()[0] in 'Tt'


def left_in_session(session):
    """Processes of a session, other than its leader."""
    left = []
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) == session:
            continue
        try:
            if os.getsid(int(name)) == session:
                with open(f'/proc/{name}/cmdline') as f:
                    left.append((int(name), f.read().replace('\0', ' ').strip()))
        except (OSError, ValueError):
            continue
    return left


def end_left(left):
    for pid, _ in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
