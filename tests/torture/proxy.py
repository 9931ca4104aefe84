# SPDX-License-Identifier: BSD-3-Clause
"""A proxy of connections, TCP and UNIX sockets with their descriptors, that does harm on demand.

One thread with one loop serves all links of a run; Proxy.do() runs a function in it.
"""

import array
import collections
import os
import selectors
import socket
import threading
import time

import wire

RECEIVE = 256 << 10
QUEUE_MAX = 1 << 20
TRICKLE_PIECES = 4  # in a millisecond


def address_of(text):
    """("tcp://127.0.0.1:7000" or "shm:///path") -> family and address."""
    scheme, rest = text.split('://', 1)
    if scheme == 'tcp':
        host, port = rest.rsplit(':', 1)
        return socket.AF_INET, (host, int(port))
    return socket.AF_UNIX, rest


class Way:
    """One direction of a connection."""

    def __init__(self, pair, source, sink, stream):
        self.pair, self.source, self.sink, self.stream = pair, source, sink, stream
        self.queue = collections.deque()  # (due, bytes, descriptors)
        self.queued = 0
        self.fds = []  # that came, and go with the next bytes

    def receive(self):
        """False: the connection is over."""
        fds = self.fds
        try:
            if self.stream.kind.local:
                data, extra, _, _ = self.source.recvmsg(RECEIVE, socket.CMSG_SPACE(64))
                for level, kind, cmsg in extra:
                    if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                        some = array.array('i')
                        some.frombytes(cmsg[:len(cmsg) - len(cmsg) % some.itemsize])
                        fds += some
            else:
                data = self.source.recv(RECEIVE)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if not data:
            self.flush()
            return False
        due = time.monotonic() + self.pair.link.delay_s if self.pair.link.delay_s else 0
        for piece in self.stream.feed(data):
            self.queue.append([due, memoryview(piece), fds])
            self.queued += len(piece)
            fds = []
        self.fds = fds  # came with half a header: the next piece takes them
        return self.flush()

    def flush(self):
        """Send what is due; False: the connection is over."""
        link = self.pair.link
        pieces = 0
        while self.queue and not link.held:
            if link.trickle and pieces == TRICKLE_PIECES:
                self.queue[0][0] = time.monotonic() + 0.001
                break
            pieces += 1
            due, data, fds = self.queue[0]
            if due and time.monotonic() < due:
                break
            self.queue[0][0] = 0
            part = data[:link.trickle] if link.trickle else data
            try:
                if fds:
                    n = socket.send_fds(self.sink, [part], fds, socket.MSG_NOSIGNAL)
                    self.close_fds(fds)
                    self.queue[0][2] = []
                else:
                    n = self.sink.send(part, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                return False
            self.queued -= n
            if n == len(data):
                self.queue.popleft()
            else:
                self.queue[0][1] = data[n:]
        return True

    @staticmethod
    def close_fds(fds):
        for fd in fds:
            os.close(fd)

    def close(self):
        for _, _, fds in self.queue:
            self.close_fds(fds)
        self.close_fds(self.fds)
        self.queue.clear()


class Pair:
    """A connection of a client, and the proxy's own to the server."""

    def __init__(self, link, client, server):
        kind = wire.Kind(link.local)
        self.link, self.client, self.server = link, client, server
        stream = wire.Opaque if link.opaque else wire.Stream
        self.up = Way(self, client, server, stream(kind, True))
        self.down = Way(self, server, client, stream(kind, False))
        self.up.stream.spoil = self.down.stream.spoil = self.spoil

    def spoil(self, head, what):
        for spoiler in self.link.spoilers:
            wanted, change = spoiler['how']
            if wanted != what or spoiler['done']:
                continue
            spoiler['skip'] -= 1
            if spoiler['skip'] < 0:
                change(head)
                spoiler['done'] = True

    def sockets(self):
        return ((self.client, self.up, self.down), (self.server, self.down, self.up))

    def close(self):
        self.up.close()
        self.down.close()
        self.client.close()
        self.server.close()


class Link:
    """An address that clients connect to, and the server behind it.  opaque: what passes is not looked into."""

    def __init__(self, proxy, listen, target, opaque=False):
        self.proxy, self.target, self.opaque = proxy, target, opaque
        self.held = self.refusing = False
        self.delay_s = 0.0
        self.trickle = 0
        self.spoilers = []
        self.pairs = []
        family, where = address_of(listen)
        self.local = family == socket.AF_UNIX
        self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if not self.local:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(where)
        self.socket.listen(256)
        name = self.socket.getsockname()
        self.address = f'tcp://{name[0]}:{name[1]}' if not self.local else listen

    def accept(self):
        try:
            client, _ = self.socket.accept()
        except OSError:
            return
        if self.refusing:
            client.close()
            return
        family, where = address_of(self.target)
        server = socket.socket(family, socket.SOCK_STREAM)
        server.settimeout(2)
        try:
            server.connect(where)
        except OSError:  # nobody is there: so the client finds
            server.close()
            client.close()
            return
        for s in (client, server):
            s.setblocking(False)
            if not self.local:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs.append(Pair(self, client, server))

    def cut(self, pairs=None):
        for pair in list(pairs or self.pairs):
            self.proxy.drop(pair)


class Proxy:
    def __init__(self):
        self.links = []
        self.selector = selectors.DefaultSelector()
        self.masks = {}
        self.todo = collections.deque()
        self.wake_r, self.wake_w = os.pipe()
        os.set_blocking(self.wake_r, False)
        self.selector.register(self.wake_r, selectors.EVENT_READ)
        self.stopping = False
        self.broken = None  # why the loop ended
        self.thread = threading.Thread(target=self.main, daemon=True)
        self.thread.start()

    def link(self, listen, target, opaque=False):
        made = []

        def make():
            link = Link(self, listen, target, opaque)
            self.links.append(link)
            self.selector.register(link.socket, selectors.EVENT_READ, link)
            made.append(link)
        self.do(make)
        return made[0]

    def do(self, function):
        """Run it in the loop, and wait until it has."""
        done = threading.Event()
        self.todo.append((function, done))
        os.write(self.wake_w, b'x')
        if not done.wait(30) or self.broken:
            raise RuntimeError(f'the proxy does not answer: {self.broken}')

    def stop(self):
        def end():
            self.stopping = True
            for link in self.links:
                link.cut()
                link.socket.close()
        self.do(end)
        self.thread.join(10)

    def drop(self, pair):
        if pair not in pair.link.pairs:
            return
        pair.link.pairs.remove(pair)
        for s, _, _ in pair.sockets():
            if self.masks.pop(s, None):
                self.selector.unregister(s)
        pair.close()

    def arm(self, pair):
        """What to wait for on both of its sockets."""
        for s, into, out_of in pair.sockets():
            mask = 0
            if not pair.link.held and into.queued < QUEUE_MAX:
                mask |= selectors.EVENT_READ
            if out_of.queue and not pair.link.held and not out_of.queue[0][0]:
                mask |= selectors.EVENT_WRITE
            if mask == self.masks.get(s, 0):
                continue
            if not mask:
                self.selector.unregister(s)
            elif self.masks.get(s, 0):
                self.selector.modify(s, mask, pair)
            else:
                self.selector.register(s, mask, pair)
            self.masks[s] = mask

    def timeout(self):
        dues = [way.queue[0][0] for link in self.links
                for pair in link.pairs for way in (pair.up, pair.down)
                if way.queue and way.queue[0][0] and not link.held]
        return max(0.0, min(dues) - time.monotonic()) if dues else 1.0

    def serve(self, pair, s, mask):
        for mine, into, out_of in pair.sockets():
            if mine is not s:
                continue
            if mask & selectors.EVENT_WRITE and not out_of.flush():
                return False
            if mask & selectors.EVENT_READ and not into.receive():
                return False
        return True

    def turn(self):
        for key, mask in self.selector.select(self.timeout()):
            if key.fd == self.wake_r:
                os.read(self.wake_r, 4096)
            elif isinstance(key.data, Link):
                key.data.accept()
            elif key.data in key.data.link.pairs and not self.serve(key.data, key.fileobj, mask):
                self.drop(key.data)
        while self.todo:
            function, done = self.todo.popleft()
            function()
            done.set()
        for link in self.links:
            for pair in list(link.pairs):
                if (pair.up.queue and not pair.up.flush()) or \
                   (pair.down.queue and not pair.down.flush()):
                    self.drop(pair)
                else:
                    self.arm(pair)

    def main(self):
        try:
            while not self.stopping:
                self.turn()
        except BaseException as e:  # whoever waits for us must learn of it
            self.broken = repr(e)
            for _, done in self.todo:
                done.set()
            raise
