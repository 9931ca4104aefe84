# SPDX-License-Identifier: BSD-3-Clause
"""The processes of a drawn configuration: etcd, memory servers, agents, and two programs that check all that they read
(those of tests/torture), each told by the configuration how it is started."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture'))

import plan as torture_plan  # noqa: E402
import stage as torture  # noqa: E402
from proxy import Proxy  # noqa: E402
from stage import Wrong, built  # noqa: E402

POOL_SERVERS = 4
OTHER_USER = 65534
SIZES = {'4K': 4096, '16K': 16384, '64K': 65536, '256K': 262144, '2M': 2 << 20}
OBJECT_BYTES = 8 << 20
FILE_BYTES = torture_plan.FILE_BYTES
CHUNKS_A_THREAD = 8  # BLOCK of tests/torture/model.h
OPERATIONS = 2500
GRACE = '20s'


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith('SODA_')}


def soda(*words, env=None):
    done = subprocess.run([built('tools/soda/soda'), *words], capture_output=True, timeout=60, check=False,
                          env=env or clean_environment())
    if done.returncode:
        raise Wrong(f'cannot start: soda {" ".join(words)}: {done.stderr.decode(errors="replace").strip()}')


class Daemon(torture.Daemon):
    """A daemon whose statistics are asked for with an operator's key, where there are tenants."""

    keys = {}

    def statistics(self):
        was = dict(os.environ)
        os.environ.update(self.keys)
        try:
            return super().statistics()
        finally:
            os.environ.clear()
            os.environ.update(was)


class Etcd:
    """One node, which is killed and started anew with what it had."""

    def __init__(self, host, folder):
        self.folder = os.path.join(folder, 'etcd')
        self.urls = [f'http://{host}:{port}' for port in free_ports(host, 2)]
        self.address = 'etcd://' + self.urls[0].split('//')[1] + '/drawn'
        self.process = None

    def start(self):
        client, peer = self.urls
        with open(self.folder + '.log', 'ab') as log:
            self.process = subprocess.Popen(
                ['etcd', '--name', 'n', '--data-dir', self.folder, '--listen-client-urls', client,
                 '--advertise-client-urls', client, '--listen-peer-urls', peer,
                 '--initial-advertise-peer-urls', peer, '--initial-cluster', 'n=' + peer],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        host, port = client.split('//')[1].rsplit(':', 1)
        end = time.monotonic() + torture.READY_S
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise Wrong(f'cannot start: etcd; see {self.folder}.log') from None
            time.sleep(0.05)

    def await_members(self, n):
        """Servers register themselves a moment after they can be reached."""
        end = time.monotonic() + torture.READY_S
        while True:
            done = subprocess.run([built('tools/soda/soda'), 'pool', 'status', '--json', self.address], timeout=60,
                                  capture_output=True, check=False, env=clean_environment())
            if done.stdout.count(b'tcp://') >= n:
                return
            if time.monotonic() > end:
                raise Wrong(f'cannot start: {n} servers are not registered: {done.stderr.decode(errors="replace")}')
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()


def free_ports(host, n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind((host, 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Program:
    """One of the two: libsoda's, or one that knows nothing of SODA, alone or in a tree of processes."""

    def __init__(self, stage, name, kind, chunk, number):
        self.stage, self.name, self.kind, self.chunk, self.number = stage, name, kind, chunk, number
        self.plain = kind in ('run', 'tree')
        copies = 2 if kind == 'tree' else 1
        self.folder = stage.folder
        if kind == 'user':
            self.folder = stage.path('other')
            os.mkdir(self.folder)
            os.chown(self.folder, OTHER_USER, OTHER_USER)
        self.progress = [torture.Progress(os.path.join(self.folder, f'progress-{name}-{i}')) for i in range(copies)]
        self.process = None
        self.moved = [{} for _ in range(copies)]

    def log(self):
        return self.stage.path(self.name + '.log')

    def threads(self):
        return int(self.stage.drawn['threads'])

    def buffer(self):
        threads, chunk = self.threads(), self.chunk
        least = 5 * chunk * (threads + 2) + (2 << 20) + (32 * chunk if chunk > 65536 else 0)
        least += len(self.stage.servers) * chunk * (threads + 2) * (2 if self.plain else 1)
        return least + {'least': 0, 'third': OBJECT_BYTES // 3, 'all': 4 * OBJECT_BYTES}[self.stage.drawn['buffer']]

    def arguments(self, copy):
        c = self.stage.drawn
        # each thread owns some of the object
        chunks = max(32, self.threads() * CHUNKS_A_THREAD, OBJECT_BYTES // self.chunk)
        mix = torture_plan.PLAIN_MIX if self.plain else torture_plan.MIXES['heap' if c['object'] == 'heap' else 'mixed']
        rules = list(self.stage.rules)
        if self.plain and rules:
            rules.append('fills')
        if self.kind == 'reader':
            return ['reader=1', 'ro=ro', 'ops=1', 'mix=' + torture_plan.READER_MIX, f'seed={self.number * 10 + copy}',
                    f'chunk={self.chunk}', f'threads={self.threads()}', 'rules=' + ','.join(rules),
                    'progress=' + self.progress[copy].path]
        args = [f'seed={self.number * 10 + copy}', f'ops={OPERATIONS}', f'chunks={min(chunks, 3000)}',
                f'chunk={self.chunk}', f'threads={self.threads()}', 'mix=' + mix, 'rules=' + ','.join(rules),
                'progress=' + self.progress[copy].path]
        if self.kind == 'first' and c['object'] in ('files', 'static'):
            args += ['ro=ro', 'rw=rw', 'promises=' + self.stage.path('promises'),
                     f'freeze={int(c["object"] == "static")}']
        return args

    def environment(self):
        c = self.stage.drawn
        env = clean_environment()
        env.update(SODA_FAULT_TIMEOUT='25s', SODA_CHUNK=str(self.chunk), SODA_MODE=c['mode'],
                   SODA_MECHANISMS=c['mechanisms'], SODA_THREADS=str(self.threads()), SODA_EVICT=c['evict'])
        if c['prefetch'] != 'default':
            env['SODA_PREFETCH'] = c['prefetch']
        if c['poll'] != 'default':
            env['SODA_POLL'] = c['poll']
        if c['servers'] != 'one':
            env['SODA_SLAB'] = c['slab']
        # objects of an agent that does not stand still lie as it says
        if c['redundancy'] != 'none':
            env['SODA_REDUNDANCY'] = c['redundancy']
        if c['seal'] == 'program':
            env.update(SODA_SEAL='1', SODA_SEAL_KEY_FILE=self.own(self.stage.path('seal.key')))
        if c['tenants'] != 'none':
            tenant = 'bob' if c['tenants'] == 'two' and self.kind != 'first' else 'alice'
            env['SODA_KEY_FILE'] = self.own(self.stage.key(tenant))
        if c['tls'] != 'off':
            env['SODA_TLS'] = c['tls']
        return env

    def own(self, path):
        """A secret is its user's alone."""
        if self.kind != 'user':
            return path
        copy = os.path.join(self.folder, os.path.basename(path))
        shutil.copy(path, copy)
        os.chmod(copy, 0o600)
        os.chown(copy, OTHER_USER, OTHER_USER)
        return copy

    def command(self, env):
        kind, address = self.stage.address_for_programs()
        program = built('tests/torture/torture_plain' if self.plain else 'tests/torture/torture_program')
        words = [program, *self.arguments(0)]
        if self.kind == 'user':
            words[0] = self.stage.copy_of(program)
            env['LD_LIBRARY_PATH'] = os.path.dirname(words[0])
            words = ['setpriv', '--reuid', str(OTHER_USER), '--regid', str(OTHER_USER), '--clear-groups', *words]
        if self.kind == 'tree':
            words = ['sh', '-c', '"$0" $A & a=$!; "$0" $B & b=$!; wait $a && wait $b', program]
            env.update(A=' '.join(self.arguments(0)), B=' '.join(self.arguments(1)))
        run = ['--mem', str(self.buffer()), '--threshold', '64K'] if self.plain else None
        if run is None:
            env['SODA_BUFFER'] = str(self.buffer())
        if kind == 'etcd':
            run = run or []
        if run is None:
            env['SODA_DPU' if kind == 'agent' else 'SODA_SERVER'] = address
            return words
        return [built('tools/soda/soda'), 'run', *run, '--dpu' if kind == 'agent' else '--server', address, '--', *words]

    def start(self):
        env = self.environment()
        command = self.command(env)
        with open(self.log(), 'wb') as log:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=log)


class Mover(Program):
    """A producer or a consumer of lists of memory."""

    def __init__(self, stage, role, number):
        super().__init__(stage, role, 'mover', 65536, number)

    def threads(self):
        return 1

    def command(self, env):
        env['SODA_DPU'] = self.stage.address_for_programs()[1]
        return [built('tests/torture/torture_mover'), self.name, 'name=heat', f'seed={self.number}',
                'progress=' + self.progress[0].path]


class Stage:
    """All processes of one configuration."""

    def __init__(self, drawn, number, folder):
        self.drawn, self.number, self.folder = drawn, number, folder
        self.host = f'127.{1 + (os.getpid() >> 16) % 200}.{(os.getpid() >> 8) % 256}.{1 + os.getpid() % 250}'
        self.rules = ['lose'] if self.loses() else []
        if drawn['happens'].startswith('server ') and drawn['redundancy'] == 'ec:2+2':
            self.rules.append('full')  # four pieces lie on four servers, or nowhere
        self.proxy = Proxy()
        self.links, self.servers, self.agents, self.programs = [], [], [], []
        self.etcd = self.seal_state = None

    def loses(self):
        """Content without a second copy goes with its server."""
        return self.drawn['happens'] == 'server ends' and self.drawn['redundancy'] in ('none', 'stripe:2')

    def path(self, name):
        return os.path.join(self.folder, name)

    def key(self, tenant):
        return self.path(tenant + '.key')

    def copy_of(self, program):
        """A copy where another user can run it, who may not enter the directory of the build."""
        there = self.path('programs')
        if not os.path.isdir(there):
            os.mkdir(there)
            libraries = subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout
            ours = [line.split()[2] for line in libraries.splitlines() if 'libsoda' in line and '=>' in line]
            for path in [program, *ours]:
                shutil.copy(path, there)
        return os.path.join(there, os.path.basename(program))

    # tenants

    def tenants_file(self, name, tenants, listen, files=False):
        """A daemon's, with these; those that have a key file already bring it. LISTEN is where it has its name from."""
        server_name = self.host if listen.startswith('tcp') else 'localhost'
        for tenant in tenants:
            role = {'node': 'agent', 'operator': 'operator'}.get(tenant, 'client')
            words = ['--read', self.path('export'), '--write', self.path('export')] if files and role != 'operator' else []
            soda('tenant', 'add', tenant, '--file', self.path(name), '--server-name', server_name,
                 '--role', role, '--key-file', self.key(tenant), *words)
        return ['--tenants', self.path(name)]

    def clients(self):
        return {'none': [], 'one': ['alice'], 'two': ['alice', 'bob']}[self.drawn['tenants']]

    def tls(self):
        return ['--tls', self.drawn['tls']] if self.drawn['tls'] != 'off' else []

    # the stage

    def open(self):
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path('export'))
        if self.drawn['seal'] != 'none':
            soda('seal', 'key', self.path('seal.key'))
        sealed = self.drawn['seal'] != 'none'
        for name, bytes_, id_ in (('ro', FILE_BYTES, 1), ('rw', FILE_BYTES, 2)):
            if not sealed and self.drawn['object'] in ('files', 'static'):
                subprocess.run([built('tests/torture/torture_program'), 'make', self.path('export/' + name),
                                str(bytes_), str(id_)], check=True, timeout=60)
        if self.drawn['servers'] == 'etcd':
            self.etcd = Etcd(self.host, self.folder)
            self.etcd.start()
        self.open_servers()
        if self.drawn['agent'] != 'none':
            self.open_agents()
        if sealed and self.drawn['object'] == 'files':
            self.make_sealed_files()
        self.open_programs()

    def listen(self, name):
        return f'tcp://{self.host}:0' if self.drawn['transport'] == 'tcp' else 'shm://' + self.path(name)

    def server_listen(self, i):
        """An agent reaches its servers by tcp, and programs the agent by their transport; so do members of etcd."""
        c = self.drawn
        return self.listen(f's{i}') if c['agent'] == 'none' and c['servers'] != 'etcd' else f'tcp://{self.host}:0'

    def open_servers(self):
        c = self.drawn
        args = ['--capacity', '1G', '--grace', GRACE, '--populate=' + c['populate'], '--workers', c['threads'][:1]]
        args += self.tls()
        if c['tenants'] != 'none':
            args += self.tenants_file('server.ini', [*self.clients(), 'node', 'operator'], self.server_listen(0), files=True)
            Daemon.keys = {'SODA_KEY_FILE': self.key('operator')}
            if c['tls'] != 'off':
                Daemon.keys['SODA_TLS'] = c['tls']
        else:
            Daemon.keys = {}
            args += ['--export', self.path('export')]
        if self.etcd:
            args += ['--pool', self.etcd.address]
        for i in range(1 if c['servers'] == 'one' else POOL_SERVERS):
            listen = self.server_listen(i)
            server = Daemon(f'server-{i}', 'src/mem_server/soda-mem-server', args, listen, self.folder)
            self.servers.append(server)
            server.start()
            if self.etcd:
                self.etcd.await_members(i + 1)
            else:
                self.links.append(self.proxy.link(listen if listen.startswith('tcp') else 'shm://' + self.path(f'p{i}'),
                                                  server.address, opaque=True))

    def open_agents(self):
        c = self.drawn
        upstream = self.etcd.address if self.etcd else ','.join(link.address for link in self.links)
        if c['agent'] == 'two':
            below = self.agent('below', ['--server', upstream], ['node', 'operator'], f'tcp://{self.host}:0')
            upstream = below.address
        args = ['--server', upstream]
        args += {'sync': ['--async=no'], 'caches': ['--cache-bytes', '8M', '--adaptive=no'],
                 'store': ['--store', '16M']}.get(c['agent'], [])
        if c['object'] == 'moved':
            args += ['--move-memory', '128M']
        if c['seal'] == 'agent':
            self.seal_state = f'/dev/shm/soda-draw-{os.getpid()}'
            os.mkdir(self.seal_state, 0o700)
            args += ['--seal', '--seal-state', self.seal_state, '--seal-key-file', self.path('seal.key')]
        self.agent('agent', args, [*self.clients(), 'operator'], self.listen('agent'))

    def agent(self, name, args, tenants, listen):
        args = ['--timeout', '60s', '--grace', '60s', '--workers', self.drawn['threads'][:1], *args, *self.tls()]
        if self.drawn['tenants'] != 'none':
            args += ['--key-file', self.key('node'), *self.tenants_file(name + '.ini', tenants, listen)]
        agent = Daemon(name, 'src/dpu_agent/soda-dpu-agent', args, listen, self.folder)
        self.agents.insert(0, agent)
        agent.start()
        return agent

    def address_for_programs(self):
        """("agent", "server" or "etcd", address)."""
        if self.agents:
            return 'agent', self.agents[0].address.replace('shm:', 'unix:')
        if self.etcd:
            return 'etcd', self.etcd.address
        return 'server', ','.join(link.address for link in self.links)

    def make_sealed_files(self):
        env = clean_environment()
        if self.drawn['seal'] == 'program':
            env.update(SODA_SEAL='1', SODA_SEAL_KEY_FILE=self.path('seal.key'))
        if self.drawn['tenants'] != 'none':
            env['SODA_KEY_FILE'] = self.key('alice')
        if self.drawn['tls'] != 'off':
            env['SODA_TLS'] = self.drawn['tls']
        kind, address = self.address_for_programs()
        env['SODA_DPU' if kind == 'agent' else 'SODA_SERVER'] = address
        for name, id_ in (('ro', 1), ('rw', 2)):
            done = subprocess.run([built('tests/torture/torture_program'), 'seal', name, str(FILE_BYTES), str(id_)],
                                  capture_output=True, check=False, timeout=60, env=env)
            if done.returncode:
                raise Wrong(f'cannot start: sealed {name}: {done.stderr.decode(errors="replace").strip()}')

    def open_programs(self):
        c, chunk = self.drawn, SIZES[self.drawn['chunk']]
        other = {'16K': '64K', '64K': '4K' if c['redundancy'] == 'none' else '16K'}.get(c['chunk'], '16K')
        self.programs.append(Program(self, 'first', 'first', chunk, self.number * 100 + 1))
        second = SIZES[other] if c['neighbour'] in ('chunk', 'reader') else chunk
        self.programs.append(Program(self, 'second', c['neighbour'], second, self.number * 100 + 2))
        if c['object'] == 'moved':
            self.programs += [Mover(self, role, self.number * 100 + 3 + i) for i, role in enumerate(('produce', 'consume'))]
        for program in self.programs:
            program.start()

    def close(self):
        """Nothing is left, whatever happened."""
        processes = [x.process for x in [*self.programs, *self.agents, *self.servers, self.etcd] if x]
        for process in processes:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        if self.seal_state:
            shutil.rmtree(self.seal_state, ignore_errors=True)
        self.proxy.stop()
