# SPDX-License-Identifier: BSD-3-Clause
"""Arrays, through the package's functions, with a buffer that holds a part of them."""
import errno
import gc
import hashlib
import os
import pickle
import socket
import tempfile
import threading
import time
import unittest

import numpy as np
import servers

SERVER = servers.Server()


def setUpModule():
    unittest.enterModuleContext(SERVER)
    soda.init(server=SERVER.address, buffer="8M")
    unittest.addModuleCleanup(end)


def end():
    """Nothing is left: else this is soda.Error."""
    gc.collect()
    soda.shutdown()


import soda  # noqa: E402

COUNT = 3 << 20  # of 8 bytes: 24 MiB


def numbers(count=COUNT):
    """An array that is not resident as a whole, and the same in local memory."""
    local = np.random.default_rng(7).integers(0, 1 << 62, count)
    fam = soda.empty(count, np.int64)
    fam[...] = local
    return fam, local


class Arrays(unittest.TestCase):
    def test_values(self):
        fam, local = numbers()
        before = soda.stats()["bytes_fetched"]
        self.assertEqual(fam.sum(), local.sum())
        self.assertGreater(soda.stats()["bytes_fetched"], before)
        fam += 1
        fam[::3] *= 2
        local += 1
        local[::3] *= 2
        self.assertTrue(np.array_equal(fam, local))
        self.assertLessEqual(soda.stats()["resident_peak_bytes"], soda.stats()["buffer_bytes"])

    def test_makers(self):
        self.assertFalse(soda.zeros((300, 70, 20), "f4", order="F").any())
        self.assertTrue((soda.full((7, 9), 3) == 3).all())
        self.assertEqual(soda.full(5, 2.5).dtype, float)
        self.assertEqual(soda.zeros(()).shape, ())
        self.assertEqual(soda.zeros((0, 4)).size, 0)
        pairs = soda.zeros(100, [("a", "i4"), ("b", "f8")])
        pairs["b"][3] = 1.5
        self.assertEqual(pairs[3]["b"], 1.5)

    def test_results_are_plain(self):
        a = soda.zeros((100, 100))
        self.assertIs(type(a[2:5]), soda.Array)
        self.assertIs(type(a + 1), np.ndarray)
        self.assertIs(type(a.copy()), np.ndarray)
        self.assertIsInstance(a.sum(), float)

    def test_freed_with_the_last_view(self):
        gc.collect()
        before = soda.stats()["fam_bytes"]
        a = soda.zeros(1 << 20)
        view = memoryview(a[5:10])
        self.assertGreater(soda.stats()["fam_bytes"], before)
        del a
        self.assertEqual(view[0], 0)
        self.assertGreater(soda.stats()["fam_bytes"], before)
        del view
        self.assertEqual(soda.stats()["fam_bytes"], before)

    def test_refused(self):
        for dtype in object, [("a", "O")]:
            with self.assertRaisesRegex(TypeError, "references to objects"):
                soda.zeros(10, dtype)
        for shape in (1 << 40, 1 << 40), 1 << 62, (1 << 70, 0):
            with self.assertRaisesRegex(ValueError, "larger than any address range"):
                soda.zeros(shape)
        with self.assertRaises(ValueError):
            soda.zeros((3, -1))
        with self.assertRaises(soda.Error) as caught:
            soda.zeros(1 << 31)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        with self.assertRaises(ValueError):
            soda.advise(soda.zeros(9), "quickly")
        with self.assertRaises(soda.Error):
            soda.advise(np.zeros(9), "cold")
        with self.assertRaises(TypeError):
            soda.prefetch([1, 2])

    def test_advice(self):
        fam, local = numbers()
        for advice in "sequential", "random", "normal", "willneed", "cold":
            soda.advise(fam, advice)
        soda.advise(fam[:1000], "pin")
        soda.prefetch(fam[100:200])
        soda.advise(fam[:1000], "unpin")
        soda.sync(fam[::-2])
        soda.sync()
        self.assertTrue(np.array_equal(fam, local))
        soda.advise(fam, "discard")
        self.assertFalse(fam[:COUNT // 2].any())

    def test_threads(self):
        fam, local = numbers()
        sums = [None] * 4

        def add(i):
            sums[i] = int(fam[i::4].sum())

        threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [int(local[i::4].sum()) for i in range(4)])


class Advice(unittest.TestCase):
    """Advice that changes what is there is for what the array has, and nothing between."""

    def test_discard_leaves_gaps(self):
        a = soda.full((1024, 4096), 1.0)
        for part in a[:, 0], a[::2], a[:, ::-3], np.broadcast_to(a[0], (7, 4096)):
            for advice in "discard", "static-cache":
                with self.assertRaisesRegex(ValueError, "contiguous"):
                    soda.advise(part, advice)
        self.assertEqual(a.sum(), a.size)
        soda.advise(a[512:].T[::-1], "discard")
        self.assertEqual(a.sum(), a.size // 2)

    def test_discard_in_the_heap(self):
        with soda.array(1 << 12):
            arrays = [np.full(9000, 1.0) for _ in range(64)]
        for array in arrays[::2]:
            soda.advise(array, "discard")
        self.assertTrue(all(array.all() for array in arrays[1::2]))
        with self.assertRaisesRegex(ValueError, "share"):
            soda.advise(arrays[0], "static-cache")

    def test_a_buffer_leaves_a_pin(self):
        a = soda.full(4 << 20, 7, np.uint8)
        chunk = 64 << 10
        soda.advise(a[:4 * chunk], "pin")
        with open(os.devnull, "wb", buffering=0) as file:
            for _ in range(3):
                file.write(a[:chunk])
                file.write(a[2 * chunk:8 * chunk])
        self.assertGreaterEqual(soda.stats()["pinned_bytes"], 4 * chunk)
        soda.advise(a[:chunk], "unpin")
        soda.advise(a[2 * chunk:4 * chunk], "unpin")
        soda.advise(a[chunk:2 * chunk], "unpin")
        self.assertEqual(soda.stats()["pinned_bytes"], 0)
        soda.advise(a, "pin")
        del a
        self.assertEqual(soda.stats()["pinned_bytes"], 0)


class Kernel(unittest.TestCase):
    """Arrays that the kernel is given."""

    def test_files(self):
        fam, local = numbers()
        with tempfile.TemporaryDirectory() as folder:
            fam.tofile(folder + "/all")
            self.assertTrue(np.array_equal(np.fromfile(folder + "/all", np.int64), local))
            with open(folder + "/turned", "wb") as file:
                soda.tofile(fam.reshape(3, -1).T, file)
            self.assertTrue(np.array_equal(np.fromfile(folder + "/turned", np.int64), local.reshape(3, -1).T.ravel()))
            back = soda.zeros(COUNT + 10, np.int64)
            with open(folder + "/all", "rb", buffering=0) as file:
                self.assertEqual(soda.readinto(file, back), local.nbytes)
        self.assertTrue(np.array_equal(back[:COUNT], local))
        self.assertFalse(back[COUNT:].any())

    def test_as_they_are(self):
        fam, local = numbers()
        soda.advise(fam, "cold")
        part, same = fam[1000:200000], local[1000:200000]
        with tempfile.TemporaryFile(buffering=0) as file:
            self.assertEqual(file.write(part), part.nbytes)
            file.seek(0)
            back = soda.zeros(part.size, np.int64)
            self.assertEqual(file.readinto(back), part.nbytes)
        self.assertTrue(np.array_equal(back, same))
        self.assertEqual(hashlib.sha256(part).digest(), hashlib.sha256(same).digest())
        self.assertEqual(soda.stats()["pinned_bytes"], 0)

    def test_what_is_read_stays_clean(self):
        """An array that is written to a file is only read in memory."""
        fam, local = numbers()
        soda.sync()
        part = fam[:200000]
        before = soda.stats()
        with tempfile.TemporaryFile(buffering=0) as file:
            for _ in range(3):
                file.write(part)
        soda.sync()
        after = soda.stats()
        for name in "wp_faults", "bytes_written_back":
            self.assertEqual(after[name], before[name], name)
        self.assertTrue(np.array_equal(part, local[:200000]))

    def test_buffers_of_threads(self):
        """A buffer that ends takes nothing from one that another thread has."""
        a = soda.full(16 << 20, 1, np.uint8)
        (near, far), mib = socket.socketpair(), 1 << 20
        with open(os.devnull, "wb", buffering=0) as file, near, far:
            for turn in range(20):
                soda.advise(a, "cold")
                writer = threading.Thread(target=lambda: file.write(a[:2 * mib]))
                receiver = threading.Thread(target=lambda: near.recv_into(a[mib:5 * mib]))
                for thread in (writer, receiver) if turn % 2 else (receiver, writer):
                    thread.start()
                writer.join()
                # It waits in the kernel with 4 MiB, or soon will.
                until = time.monotonic() + 20
                while soda.stats()["pinned_bytes"] < 4 * mib and time.monotonic() < until:
                    time.sleep(0.001)
                self.assertGreaterEqual(soda.stats()["pinned_bytes"], 4 * mib)
                far.sendall(b"x")
                receiver.join()
                self.assertEqual(soda.stats()["pinned_bytes"], 0)

    def test_dates(self):
        for dtype in "M8[s]", "m8[ms]":
            fam = soda.zeros(300000, dtype)
            fam[...] = np.arange(300000).astype(dtype)
            local = np.array(fam, subok=False)
            with tempfile.TemporaryDirectory() as folder:
                np.save(folder + "/a.npy", fam)
                self.assertTrue(np.array_equal(np.load(folder + "/a.npy"), local))
                fam.tofile(folder + "/b")
                self.assertTrue(np.array_equal(np.fromfile(folder + "/b", dtype), local))
            here, there = socket.socketpair()
            sender = threading.Thread(target=lambda: (soda.send(here, fam), here.close()))
            sender.start()
            back = soda.zeros(300000, dtype)
            with there:
                soda.readinto(there, back)
            sender.join()
            self.assertTrue(np.array_equal(back, local))

    def test_not_now(self):
        """A file that takes or gives nothing now loses nothing: it is an error, which says how far it came."""
        fam = soda.full(1 << 20, 3, np.uint8)
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        os.set_blocking(reading, False)
        with open(writing, "wb", buffering=0) as to, open(reading, "rb", buffering=0) as come:
            with self.assertRaises(BlockingIOError) as caught:
                soda.tofile(fam, to)
            self.assertGreater(caught.exception.characters_written, 0)
            back = soda.zeros(fam.size, np.uint8)
            with self.assertRaises(BlockingIOError) as again:
                soda.readinto(come, back)
            self.assertEqual(again.exception.characters_written, caught.exception.characters_written)
            self.assertEqual(int(back.sum()), 3 * again.exception.characters_written)

    def test_too_large_as_it_is(self):
        fam, _ = numbers()
        with open(os.devnull, "wb", buffering=0) as file, self.assertRaisesRegex(soda.Error, r"soda\.tofile"):
            file.write(fam)
        self.assertEqual(soda.stats()["pinned_bytes"], 0)

    def test_sockets(self):
        fam, local = numbers()
        here, there = socket.socketpair()
        back = soda.zeros(COUNT, np.int64)
        sender = threading.Thread(target=lambda: (soda.send(here, fam), here.close()))
        sender.start()
        with there:
            self.assertEqual(soda.readinto(there, back), local.nbytes)
        sender.join()
        self.assertTrue(np.array_equal(back, local))

    def test_pickle(self):
        fam, local = numbers()
        for protocol in 2, 5:
            with tempfile.TemporaryFile() as file:
                pickle.dump(fam, file, protocol)
                file.seek(0)
                self.assertTrue(np.array_equal(pickle.load(file), local))

    def test_save(self):
        fam, local = numbers(1 << 20)
        with tempfile.TemporaryDirectory() as folder:
            np.save(folder + "/a.npy", fam)
            self.assertTrue(np.array_equal(np.load(folder + "/a.npy"), local))


class Files(unittest.TestCase):
    def test_read(self):
        local = np.arange(1 << 19, dtype="i4")
        local.tofile(SERVER.path("numbers"))
        with soda.open("numbers", "i4") as a:
            self.assertTrue(np.array_equal(a, local))
            with self.assertRaises(ValueError):
                a[0] = 1
        self.assertTrue(np.array_equal(soda.open("numbers", "i4", (512, 512)), local[:1 << 18].reshape(512, 512)))

    def test_write(self):
        with soda.open("made", float, (300, 1000), "w+") as a:
            a[:, 5] = 2.5
        self.assertEqual(np.fromfile(SERVER.path("made")).sum(), 750)
        del a
        changed = soda.open("made", float, (300, 1000), "r+")
        changed[0, 0] = 1
        soda.sync(changed)
        del changed
        private = soda.open("made", float, mode="c")
        private[:] = 9
        del private
        self.assertEqual(np.fromfile(SERVER.path("made")).sum(), 751)

    def test_refused(self):
        np.zeros(1000, "u1").tofile(SERVER.path("short"))
        for mode in "r", "r+", "c":
            with self.assertRaisesRegex(soda.Error, "short has 1000 bytes") as caught:
                soda.open("short", float, 1000, mode)
            self.assertEqual(caught.exception.errno, errno.EFBIG)
        self.assertEqual(os.path.getsize(SERVER.path("short")), 1000)
        with self.assertRaisesRegex(ValueError, "no multiple"):
            soda.open("short", [("a", "V7")])
        with self.assertRaises(soda.Error) as caught:
            soda.open("no-such")
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        with self.assertRaises(TypeError):
            soda.open("short", object)
        with self.assertRaises(ValueError):
            soda.open("short", mode="w")
        with self.assertRaises(ValueError):
            soda.open("made-too", mode="w+")


class Hook(unittest.TestCase):
    def test_allocates(self):
        before = soda.stats()["fam_bytes"]
        with soda.array(1 << 16):
            a = np.arange(1 << 20, dtype=float)
            b = np.sqrt(a) + a[::-1]
            small = np.ones(100)
        self.assertGreaterEqual(soda.stats()["fam_bytes"] - before, a.nbytes + b.nbytes)
        grown = np.ones(1 << 20)
        local = np.arange(1 << 20, dtype=float)
        self.assertTrue(np.array_equal(b, np.sqrt(local) + local[::-1]))
        self.assertEqual(small.sum() + grown.sum(), 100 + (1 << 20))
        del a, b, small, grown
        gc.collect()
        self.assertEqual(soda.stats()["fam_bytes"], before)

    def test_resize(self):
        with soda.array(1 << 16):
            a = np.arange(5000)
        for count in 100, 50000, 80000, 50, 9000, 200000:
            a.resize(count, refcheck=False)
            self.assertEqual(list(a[:50]), list(range(50)))
        self.assertEqual(a[100:].sum(), 0)

    def test_small_ones_share(self):
        """An array of 64 KiB takes about that of the server, not a granule of it."""
        before = soda.stats()["fam_bytes"]
        with soda.array(1 << 16):
            arrays = [np.full(1 << 13, i, float) for i in range(1500)]
        self.assertLess(soda.stats()["fam_bytes"] - before, 400 << 20)
        self.assertEqual(sum(int(a[-1]) for a in arrays), sum(range(1500)))
        soda.advise(arrays[5], "cold")
        self.assertTrue((arrays[5] == 5).all())
        del arrays

    def test_crosses(self):
        """Sizes from local to the heap to objects, and back."""
        with soda.array(1 << 16):
            a = np.arange(100)
        for count in 9000, 400000, 1200000, 20000, 100, 700000, 3000000, 50, 600000:
            a.resize(count, refcheck=False)
            self.assertEqual(list(a[:50]), list(range(50)))
            a[50:] = 1
            self.assertEqual(a.sum(), sum(range(50)) + count - 50)

    def test_full(self):
        with soda.array(), self.assertRaises(MemoryError):
            np.zeros(1 << 31)
        np.zeros(1 << 20)

    def test_nested(self):
        before = soda.stats()["fam_bytes"]
        with soda.array(1 << 16):
            with self.assertRaises(KeyError), soda.array(1 << 10):
                raise KeyError
            kept = np.ones(1 << 12)
            self.assertEqual(soda.stats()["fam_bytes"], before)
        self.assertEqual(kept.sum(), 1 << 12)


if __name__ == "__main__":
    unittest.main()
