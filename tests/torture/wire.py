# SPDX-License-Identifier: BSD-3-Clause
"""What travels (src/wire/wire.h), as far as a proxy has to know it: where headers are.

A Stream is fed with the bytes of one direction and gives them back; a header comes out whole, so
that a fault may change it first.  Payload is never looked at.
"""

import struct

READ, WRITE, READ_REPLY, WRITE_REPLY, HELLO = 1, 2, 3, 4, 16
FRAME_BYTES, HEAD_BYTES = 8, 64
READ_AT, WRITE_AT, TAG_AT = 40, 52, 56  # where the body begins, at the end of a data header
CONTROL, DATA = 1, 2
BEFORE_DATA = {READ: 24, WRITE: 12, READ_REPLY: 8, WRITE_REPLY: 8}


class Kind:
    """What both directions of a connection know of it."""

    def __init__(self, local):
        self.local = local  # a UNIX socket: no data travel through it
        self.kind = None    # CONTROL or DATA, from the HELLO


class Opaque:
    """A direction whose bytes pass as they are: by TLS, or with a proof of a key, there is nothing to be read."""

    def __init__(self, kind, _):
        self.kind = kind
        self.spoil = None

    def feed(self, data):
        return [data]


class Stream:
    def __init__(self, kind, to_server):
        self.kind = kind
        self.to_server = to_server
        self.first = True     # the HELLO or its answer is still to come
        self.head = bytearray()
        self.body = 0         # bytes that pass as they are
        self.spoil = None     # a function of (header, what) that may change the header

    def head_bytes(self):
        if self.first or self.kind.kind == CONTROL:
            return FRAME_BYTES
        return 0 if self.kind.local else HEAD_BYTES

    def feed(self, data):
        """The bytes that may go on now."""
        out = []
        at = 0
        while at < len(data):
            if self.body:
                n = min(self.body, len(data) - at)
                out.append(data[at:at + n])
                self.body -= n
                at += n
                continue
            want = self.wanted()
            if not want:
                out.append(data[at:])
                break
            n = min(want - len(self.head), len(data) - at)
            self.head += data[at:at + n]
            at += n
            if len(self.head) == self.wanted():
                out.append(self.header())
        return out

    def wanted(self):
        # the kind of a connection stands in the HELLO's body
        if self.first and self.to_server:
            return FRAME_BYTES + 12
        return self.head_bytes()

    def header(self):
        head, self.head = self.head, bytearray()
        kind, _, status, length = struct.unpack_from('<BBHI', head)
        if self.first:
            what = 'hello' if self.to_server else 'welcome'
            if self.to_server:
                self.kind.kind = struct.unpack_from('<I', head, FRAME_BYTES + 8)[0]
            self.body = length - (len(head) - FRAME_BYTES)
            self.first = False
        elif self.kind.kind == CONTROL:
            what = 'call' if self.to_server else 'answer'
            self.body = length
        else:
            what = {READ: 'read', WRITE: 'write', READ_REPLY: 'reply', WRITE_REPLY: 'reply'}[kind]
            self.body = length - BEFORE_DATA[kind]
        if self.spoil:
            self.spoil(head, what)
        return bytes(head)


def put(head, fmt, at, value):
    struct.pack_into('<' + fmt, head, at, value)


# Corruptions of a header, by name: of what, and how.  No result is a valid header of anything.
# A peer must notice, end the connection, and nobody loses anything by that.
SPOILERS = {
    'hello magic': ('hello', lambda h: put(h, 'I', 8, 0x21212121)),
    'hello type': ('hello', lambda h: put(h, 'B', 0, 0xee)),
    'hello length': ('hello', lambda h: put(h, 'I', 4, 0xffffffff)),
    'welcome type': ('welcome', lambda h: put(h, 'B', 0, 0xee)),
    'welcome length': ('welcome', lambda h: put(h, 'I', 4, 0xffffffff)),
    'call type': ('call', lambda h: put(h, 'B', 0, 0x3f)),  # from 0x40 on: a service's, politely refused
    'call length': ('call', lambda h: put(h, 'I', 4, 0xffffffff)),
    'answer type': ('answer', lambda h: put(h, 'B', 0, 0xee)),
    'answer length': ('answer', lambda h: put(h, 'I', 4, 0xffffffff)),
    'read type': ('read', lambda h: put(h, 'B', 0, 0xee)),
    'read length': ('read', lambda h: put(h, 'I', 4, 0xfffffff0)),
    'read size': ('read', lambda h: put(h, 'I', READ_AT + 16, 4097)),
    'read size 0': ('read', lambda h: put(h, 'I', READ_AT + 16, 0)),
    'write type': ('write', lambda h: put(h, 'B', 0, 0xee)),
    'write length': ('write', lambda h: put(h, 'I', 4, 0xfffffff0)),
    'write size': ('write', lambda h: put(h, 'I', WRITE_AT + 8, 4097)),
    'reply type': ('reply', lambda h: put(h, 'B', 0, 0xee)),
    'reply length': ('reply', lambda h: put(h, 'I', 4, 0xfffffff0)),
    'reply tag': ('reply', lambda h: put(h, 'Q', TAG_AT, 0x7777777777777777)),
}

# These are well-formed requests and answers that refuse: an error where they strike, no loss.
REFUSERS = {
    'read region': ('read', lambda h: put(h, 'H', READ_AT, 0xffff)),
    'read offset': ('read', lambda h: put(h, 'I', READ_AT + 4, 0xffffffff)),
}
