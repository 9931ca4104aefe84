# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/performance.md, of results that were kept: each row, its bar met or missed."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools")
TRAFFIC = {"on_demand": 0, "prefetch": 0, "write_back": 0, "preload": 54 * 10**6}


def fault(**members):
    side = {"gb_per_s": 2.0, "gb_per_s_min": 1.5, "gb_per_s_max": 2.5, "touched_gb_per_s": 4.0, "cpu_s_per_gb": 0.5,
            "us_per_fault_p50": 50.0, "bytes_fetched": 80, "bytes_written_back": 110}
    floor = {**side, "gb_per_s": 1.0, "bytes_written_back": 100}
    return {"format": "soda-bench-fault", "version": 1, "pattern": "rand", "threads": 1, "size": 1 << 30, "chunk": 65536,
            "buffer": 1 << 28, "rounds": 2, "ratio_gb_per_s": 2.0, "ratio_cpu": 1.0, "metadata_bytes": 1 << 20,
            "resident_peak_bytes": 1 << 28, **side, "floor": floor, **members}


def dpu(**totals):
    """Modes, and their traffic."""
    return {"format": "soda-bench-dpu", "version": 1, "runs": [
        {"mode": mode.replace("_", "+"), "pattern": "rand", "rounds": 2, "seconds": 1.0, "gb_per_s": 1.0,
         "cpu_s_per_gb_host": 0.5, "cpu_s_per_gb_agent": 0.25, "cpu_s_per_gb_server": 0.25, "host_transport": "shm",
         "link_bits_per_s": 2e9, "interface_bytes": {"from_server": 5 * 10**8}, "hit_rate": 0.97, "late_hits": 7,
         "switched_on": 3, "switched_off": 0, "seconds_vs_memserver": 1.1, "seconds_vs_base": 0.5,
         "traffic": {**TRAFFIC, "total": total}} for mode, total in totals.items()]}


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="soda-test-report-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def keep(self, **documents):
        for name, document in documents.items():
            with open(os.path.join(self.folder, name.replace("_", "-") + ".json"), "w", encoding="utf-8") as file:
                json.dump(document, file)

    def table(self, program, *rows):
        done = subprocess.run([sys.executable, os.path.join(TOOLS, program), "--from", self.folder, *rows],
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout.splitlines()[2:], done.stderr

    def check_rows(self, program, expected):
        status, rows, err = self.table(program, *expected)
        self.assertEqual((status, err), (0, ""))
        for row, words in zip(rows, expected.values(), strict=True):
            for word in words:
                self.assertIn(word, row)

    def test_faults(self):
        start = {"format": "soda-bench-start", "version": 1, "size": 1, "ms_first_touch": 1.0, "ms_first_fetch": 51.0}
        self.keep(pinned=fault(ratio_cpu=1.21), quiet=fault(), loaded=fault(ratio_gb_per_s=0.84), threads=fault(),
                  seq=fault(touched_gb_per_s=1.9), rmw=fault(), metadata=fault(resident_peak_bytes=1 + (1 << 28)),
                  zipf_1=fault(), zipf_2=fault(), zipf_fifo_1=fault(bytes_fetched=100),
                  zipf_fifo_2=fault(bytes_fetched=100), start=start, shm_floor=fault(),
                  **{f"shm_{transport}_{turn}": fault(gb_per_s=speed) for transport, speed in
                     (("shm", 2.6), ("tcp", 2.0)) for turn in (1, 2)})
        self.check_rows("bench-table", {
            "pinned": ("2.00 of the floor, CPU 1.21 (2.00 GB/s (1.50-2.50) at 0.50 s/GB, 50 us; floor 1.00 GB/s at "
                       "0.50 s/GB, 50 us)", "**missed**"),
            "quiet": ("| met |",), "loaded": ("0.84 of the floor", "**missed**"), "threads": ("| met |",),
            "seq": ("1.90 GB/s touched at 0.50 s/GB (floor 4.00 at 0.50)", "**missed**"),
            "rmw": ("1.10 of the floor's bytes written back", "| met |"), "shm": ("1.30 of tcp (2.60 GB/s; tcp 2.00)",),
            "zipf": ("0.800 of the fetches, 4.00 GB/s touched (FIFO 4.00)", "| met |"), "metadata": ("**missed**",),
            "start": ("51.0 ms to the first fetch", "**missed**")})

    def test_agents(self):
        pair = dpu(memserver=100, base=100)
        self.keep(hop=pair, hop_free=pair, batch=dpu(base=1, agg_async=1), batch_link=dpu(base=1, agg_async=1),
                  scan=dpu(memserver=100, dynamic=106), random=dpu(memserver=100, dynamic=103),
                  switch=dpu(memserver=1, dynamic=1), hot=dpu(memserver=100, static=60),
                  shared=dpu(memserver=100, all=36), host=dpu(memserver=1, all=1))
        self.check_rows("bench-dpu-table", {
            "hop": ("1.100 (1.000 GB/s; memserver 1.000)", "| met |"),
            "hop-free": ("0.50 host + 0.25 agent + 0.25 server",), "batch": ("| 2.000 (", "| met |"),
            "batch-link": ("1.000 at the interface, a plain stream 2.000 Gbit/s", "| met |"),
            "scan": ("0.970 (7 late); 1.060 (1.10 of the time)", "**missed**"), "random": ("1.030;", "| met |"),
            "switch": ("on 3 times, off 0", "**missed**"), "hot": ("0.400 (54 MB preloaded)", "| met |"),
            "shared": ("0.360", "**missed**"), "host": ("agent (shm)", "1.000 (0.500; tcp 0.500)", "**missed**")})

    def test_what_is_not_there_fails_its_row_alone(self):
        self.keep(pinned=fault(ratio_cpu=None), threads=fault())
        status, rows, err = self.table("bench-table", "pinned", "quiet", "threads")
        self.assertEqual((status, len(rows)), (1, 1))
        self.assertIn("random, 2 threads", rows[0])
        self.assertIn("pinned: the results do not say", err)
        self.assertIn("quiet.json: No such file", err)
        self.assertEqual(self.table("bench-table", "nonsense")[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
