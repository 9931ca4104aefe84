# SPDX-License-Identifier: BSD-3-Clause
"""What happens to a process: no server, its end, a fork's child; and the page of documentation."""
import importlib.util
import os
import re
import unittest

import servers


class Process(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(servers.Server())

    def ends_well(self, program, says="", **settings):
        result = servers.run(program, self.server.address, SODA_BUFFER="8M", **settings)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, says if says else r"\A\Z")
        return result.stdout

    def test_late(self):
        """The package needs no preload, and no tunable of the C library."""
        out = self.ends_well("""
            import os, soda
            assert "LD_PRELOAD" not in os.environ and "GLIBC_TUNABLES" not in os.environ
            print(int(soda.full(3 << 20, 2).sum()))""")
        self.assertEqual(out, "6291456\n")

    def test_shutdown(self):
        self.ends_well("""
            import soda
            a = soda.zeros(1 << 20)
            view = a[5:]
            del a
            try:
                soda.shutdown()
            except soda.Error as error:
                assert "1 objects are still in use" in str(error), error
            else:
                raise AssertionError
            assert view.sum() == 0
            del view
            soda.shutdown()
            try:
                soda.zeros(10)
            except soda.Error:
                pass
            else:
                raise AssertionError""")

    def test_at_exit(self):
        """An array that lives until the interpreter ends, and one that a file is."""
        self.ends_well("""
            import soda
            a = soda.zeros(3 << 20)
            a[:] = 1
            f = soda.open("at-exit", float, 1000, "w+")
            f[:] = 7""")
        self.assertEqual(os.path.getsize(self.server.path("at-exit")), 8000)
        with open(self.server.path("at-exit"), "rb") as file:
            self.assertEqual(file.read(2), b"\0\0")
            file.seek(6)
            self.assertEqual(file.read(2), b"\x1c\x40")

    def test_fork(self):
        self.ends_well("""
            import os, soda
            a = soda.full(3 << 20, 1)
            pid = os.fork()
            if pid == 0:
                assert a.sum() == 3 << 20
                a[7] = 5
                try:
                    soda.zeros(10)
                except soda.Error as error:
                    del a
                    os._exit(0 if "spawn" in str(error) else 1)
                os._exit(2)
            assert os.waitpid(pid, 0)[1] == 0
            assert a.sum() == 3 << 20 and a[7] == 1""")

    def test_fork_while_arrays_come_and_go(self):
        """A child that frees arrays does not wait for what another thread did at the fork."""
        self.ends_well("""
            import os, threading, warnings, numpy as np, soda
            warnings.simplefilter("ignore")
            stop = threading.Event()

            def work():
                with soda.array(1 << 12):
                    while not stop.is_set():
                        np.empty(1 << 12), np.empty(1 << 20)

            with soda.array(1 << 12):
                kept = [np.ones(1 << 12), np.ones(1 << 20)]
            fam = soda.zeros(1 << 16)
            view = memoryview(fam).cast("B")
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    kept.clear()
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            stop.set()
            for thread in threads:
                thread.join()
            assert kept[0].all() and kept[1].all()""")

    def test_static(self):
        """An array in an agent's static cache can be given to the kernel, which only reads it."""
        with servers.Agent(self.server.address, "--static", "--static-bytes", "16M") as agent:
            result = servers.run("""
                import os, soda
                a = soda.full(4 << 20, 3, "u1")
                soda.advise(a, "static-cache")
                with open(os.devnull, "wb", buffering=0) as file:
                    assert file.write(a[:65536]) == 65536
                print(int(a.sum()))""", SODA_DPU=agent.address, SODA_BUFFER="8M")
        self.assertEqual((result.stderr, result.returncode, result.stdout), ("", 0, f"{12 << 20}\n"))

    def test_spawn(self):
        """Processes that multiprocessing spawns have arrays of their own, and get copies of ours."""
        script = self.server.path("spawned.py")
        with open(script, "w") as file:
            file.write("""if True:
                import multiprocessing, soda

                def work(part):
                    own = soda.empty(part.shape, part.dtype)
                    own[...] = part
                    return int(own.sum())

                if __name__ == "__main__":
                    a = soda.full(3 << 20, 2)
                    with multiprocessing.get_context("spawn").Pool(2) as pool:
                        print(sum(pool.map(work, [a[:1 << 20], a[1 << 20:]])))
            """)
        out = self.ends_well(f"""
            import subprocess, sys
            sys.exit(subprocess.run([sys.executable, {script!r}]).returncode)""")
        self.assertEqual(out, "6291456\n")

    def test_no_server(self):
        result = servers.run("""
            import soda
            try:
                soda.zeros(10)
            except soda.Error as error:
                print(error.errno, error)""", "tcp://127.0.0.1:1", SODA_CONNECT_TIMEOUT="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"^111 .*127\.0\.0\.1:1")

    def test_settings(self):
        out = self.ends_well("""
            import soda
            for bad in ({"mode": "fast"}, {"buffer": "much"}, {"log": "loud"}):
                try:
                    soda.init(**bad)
                except (ValueError, soda.Error) as error:
                    print(error)
            soda.init(buffer="4M", chunk=16384, mode="inline", threads=2, prefetch=0, poll=soda.OFF, evict_high=90,
                      evict_low=80, connect_ms=9000, log="error")
            a = soda.zeros(1 << 20)
            print(soda.stats()["buffer_bytes"])
            a[:] = 1
            soda.advise(a, "cold")
            a.sum()
            print(soda.stats()["prefetched"])
            try:
                soda.init()
            except soda.Error as error:
                print(error.errno)""")
        lines = out.splitlines()
        self.assertIn("inline", lines[0])
        self.assertIn("much", lines[1])
        self.assertIn("warning", lines[2])
        self.assertEqual(lines[-3], "4194304")
        self.assertEqual(lines[-2:], ["0", "114"])


class Page(unittest.TestCase):
    def test_programs(self):
        """Each Python program of docs/python.md, with a private server; what it prints stands below it."""
        with open(os.environ["SODA_SOURCE_DIR"] + "/docs/python.md") as file:
            programs = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", file.read(), re.S)
        self.assertGreater(len(programs), 2)
        for program, printed in programs:
            missing = [name for name in re.findall(r"^import (\w+)", program, re.M) if not importlib.util.find_spec(name)]
            if missing:
                print("SKIP: a program of the page needs", *missing)
                continue
            with self.subTest(program=program), servers.tempfile.TemporaryDirectory() as folder:
                with servers.Server() as server:
                    result = servers.run(f"import os; os.chdir({folder!r})\n{program}", server.address)
                self.assertEqual((result.stderr, result.returncode), ("", 0))
                self.assertEqual(result.stdout, printed)


if __name__ == "__main__":
    unittest.main()
