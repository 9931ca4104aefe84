# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory that lives across the network.

    import soda
    a = soda.zeros((1000, 1000, 1000), float)    # 8 GB, a third of it resident
    a += 1

An array is a numpy array; only where its memory lives differs.  Its pages are on a memory server, and
those that are touched are fetched and stay in a page buffer of limited size.  SODA_SERVER and
SODA_BUFFER in the environment, or soda.init(), say where and how much; without them each process gets a
private server on its own machine.  The memory is given back when the last view of it is gone.
"""
import contextlib
import errno
import io
import math
import os
import sys

import numpy as np

from . import _soda
from ._soda import OFF, Error, __version__

__all__ = ["OFF", "Array", "Error", "advise", "array", "empty", "full", "init", "open", "prefetch", "readinto",
           "send", "shutdown", "stats", "sync", "tofile", "zeros"]

_ADVICE = {"normal": 0, "sequential": 1, "random": 2, "willneed": 3, "cold": 4, "discard": 5, "pin": 6, "unpin": 7,
           "static-cache": 8, "dynamic-cache": 9, "no-cache": 10, "abandon": 11}
_MODES = {"r": _soda.READ_ONLY, "r+": _soda.WRITABLE, "w+": _soda.WRITABLE | _soda.CREATE, "c": _soda.PRIVATE}
_PIECE = 1 << 20  # bytes that go through local memory at once


class Array(_soda.ArrayBase):
    """A numpy array in fabric memory; made by soda.empty(), zeros(), full() and open().

    Views are Arrays, results of computations are plain arrays in local memory.  As a context it is
    written back when the context ends; its memory goes with its last view.
    """

    def __array_wrap__(self, array, context=None, return_scalar=False):
        if array is self or type(self) is not Array:
            return array
        return array[()] if array.shape == () else array.view(np.ndarray)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        if self.nbytes:
            _soda.sync(self)

    def copy(self, order="C"):
        """A plain array in local memory."""
        return np.array(self, order=order, subok=False)

    def tofile(self, file, sep="", format="%s"):
        """As ndarray.tofile(); the bytes go through local memory, a piece at a time."""
        if sep:
            super().tofile(file, sep, format)
        else:
            tofile(self, file)

    def __reduce_ex__(self, protocol):
        return np.array(self, subok=False).__reduce_ex__(protocol)


def _layout(shape, dtype):
    """The dtype, the shape as a tuple, and how many bytes they take."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"{dtype} holds references to objects, which would mean nothing to the server")
    try:
        shape = (shape.__index__(),)
    except AttributeError:
        shape = tuple(int(n.__index__()) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"negative dimensions in {shape}")
    size = math.prod(shape) * dtype.itemsize
    if size > sys.maxsize or max(shape, default=0) > sys.maxsize:
        raise ValueError(f"an array of shape {shape} and dtype {dtype} is larger than any address range")
    return dtype, shape, size


def empty(shape, dtype=float, order="C"):
    """An array whose values are zeros, as zeros() makes it: new fabric memory always is."""
    dtype, shape, size = _layout(shape, dtype)
    if not size:
        return np.empty(shape, dtype, order).view(Array)
    return np.ndarray.__new__(Array, shape, dtype, _soda.alloc(size), order=order)


zeros = empty


def full(shape, fill_value, dtype=None, order="C"):
    """An array of one value; dtype is that of the value unless it is named."""
    if dtype is None:
        dtype = np.asarray(fill_value).dtype
    result = empty(shape, dtype, order)
    result[...] = fill_value
    return result


def open(name, dtype=np.uint8, shape=None, mode="r", order="C"):
    """An array that is a file of the server's export directory.

    mode: as of numpy.memmap(). "r" is read by many; "r+" changes the file, "w+" makes it if there is
    none; "c" changes the array alone.  shape None: one dimension, as long as the file is.
    """
    if mode not in _MODES:
        raise ValueError(f"mode {mode!r} is none of {', '.join(_MODES)}")
    if shape is None and mode == "w+":
        raise ValueError('mode "w+" needs a shape')
    dtype, wanted, size = _layout(0 if shape is None else shape, dtype)
    if not dtype.itemsize or shape is not None and not size:
        raise ValueError(f"an array of shape {wanted} of {dtype} has nothing of a file")
    # "r+" with a size would make a file longer that is too short for it
    memory = _soda.open(os.fspath(name), size if mode == "w+" else 0, _MODES[mode])
    there = memoryview(memory).nbytes
    if shape is None:
        if there % dtype.itemsize:
            raise ValueError(f"{name} has {there} bytes, no multiple of the {dtype.itemsize} of {dtype}")
        wanted = (there // dtype.itemsize,)
    elif there < size:
        raise Error(errno.EFBIG, f"{name} has {there} bytes, and shape {wanted} of {dtype} takes {size}")
    return np.ndarray.__new__(Array, wanted, dtype, memory, order=order)


@contextlib.contextmanager
def array(threshold=1 << 20):
    """A context in which numpy itself allocates in fabric memory what has `threshold` bytes or more.

    It holds for the thread, or the asynchronous task, that is in it.  Arrays that were made there are
    plain ndarrays and stay valid; the kernel takes them by soda.tofile(), send() and readinto().
    """
    if threshold < 1:
        raise ValueError("the threshold is at least one byte")
    if _soda.forked():
        raise Error(errno.ENOTSUP, "the child of a fork has no fabric memory of its own: start processes with multiprocessing's \"spawn\"")
    before = _soda.use_handler(threshold)
    try:
        yield
    finally:
        _soda.put_handler(before)


def init(*, server=None, dpu=None, buffer=None, evict=None, mechanisms=None, chunk=0, mode=None, on_error=None,
         threads=0, prefetch=None, fault_ms=0, poll=None, evict_high=0, evict_low=0, connect_ms=0, log=None):
    """Start the runtime, before the first array, with other settings than the environment's.

    server: "tcp://host:port" and the like.  buffer: the local memory for pages, as "512M" or "1/3".
    prefetch: how many chunks a stream runs ahead, poll: for how many microseconds an answer is waited for
    busily; 0 and OFF: not at all.  log: "error", "warning", "info" or "debug".
    The others are those of soda_init(3), where 0 and None are the environment's or the default.
    """
    modes = {None: 0, "auto": 0, "inline": 1, "handler": 2}
    errors = {None: 0, "sigbus": 1, "abort": 2, "wait": 3}
    levels = {None: 0, "error": 1, "warning": 2, "info": 3, "debug": 4}
    for name, value, choices in ("mode", mode, modes), ("on_error", on_error, errors), ("log", log, levels):
        if value not in choices:
            raise ValueError(f"{name} is one of {', '.join(filter(None, choices))}, not {value!r}")
    _soda.init(server=server, dpu=dpu, buffer=buffer, evict=evict, mechanisms=mechanisms, chunk=chunk,
               mode=modes[mode], on_error=errors[on_error], threads=threads, prefetch=_count(prefetch),
               fault_ms=fault_ms, poll_us=_count(poll), evict_high=evict_high, evict_low=evict_low,
               connect_ms=connect_ms, log=levels[log])


def _count(value):
    """A number of soda_init(3), where 0 is the default."""
    return 0 if value is None else value or OFF


def shutdown():
    """Write files back and end the runtime, which does not start again. Error while an array is alive."""
    _soda.shutdown()


def sync(array=None):
    """Wait until what was stored is on the server, and in the file of a file's array; None: of all arrays."""
    if _soda.live() and (array is None or array.nbytes):
        _soda.sync(array)


def advise(array, advice):
    """Say how an array, or a part of it, is going to be used: one of soda_advise(3), as "sequential" or "cold"."""
    if advice not in _ADVICE:
        raise ValueError(f"advice {advice!r} is none of {', '.join(_ADVICE)}")
    _soda.advise(array, _ADVICE[advice])


def prefetch(array):
    """Begin to fetch an array, or a part of it; what does not fit is left out. It does not wait."""
    _soda.prefetch(array)


def stats():
    """The counters of soda_get_stats(3), by name."""
    return _soda.stats()


def _pieces(array):
    """Copies of an array's elements in local memory, in C order."""
    flat = array.reshape(-1) if array.flags.c_contiguous else None
    step = max(1, _PIECE // max(1, array.itemsize))
    for at in range(0, array.size, step):
        piece = np.array(flat[at:at + step] if flat is not None else array.flat[at:at + step], subok=False)
        yield piece.view(np.uint8)  # dates have no buffers


def _not_now(what, done):
    return BlockingIOError(errno.EAGAIN, f"the file {what} nothing now: {done} bytes are done", done)


def tofile(array, file):
    """Write an array's bytes, in C order, to a path or a binary file, by pieces that go through local memory."""
    if not hasattr(file, "write"):
        with io.open(file, "wb") as opened:
            return tofile(array, opened)
    done = 0
    for piece in _pieces(array) if array.nbytes else ():
        view = memoryview(piece)
        while view:
            n = file.write(view)
            if n is None:
                raise _not_now("takes", done)
            view = view[n:]
            done += n


def send(socket, array):
    """Send all of an array's bytes on a socket, by pieces that go through local memory."""
    for piece in _pieces(array) if array.nbytes else ():
        socket.sendall(piece)


def readinto(file, array):
    """Fill an array from a binary file or a socket, by pieces. How many bytes came: fewer at its end."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    target = memoryview(array.view(np.ndarray).reshape(-1).view(np.uint8))
    read = file.readinto if hasattr(file, "readinto") else file.recv_into
    piece, at = bytearray(min(_PIECE, len(target))), 0
    while at < len(target):
        n = read(memoryview(piece)[:len(target) - at])
        if n is None:
            raise _not_now("gives", at)
        if not n:
            break
        target[at:at + n] = memoryview(piece)[:n]
        at += n
    return at
