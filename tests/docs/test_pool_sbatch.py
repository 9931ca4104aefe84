# SPDX-License-Identifier: BSD-3-Clause
"""The answers that examples/slurm/pool.sbatch takes, with a Slurm that only names nodes."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = os.environ["SODA_SOURCE_DIR"] + "/examples/slurm/pool.sbatch"
# One node is started, and its server is not: as far as that the script has taken everything.
STUBS = {
    "scontrol": 'if [ "$2" = hostnames ]; then seq -f node%g 120; else echo NodeAddr=nowhere; fi',
    "srun": 'echo "$@" >> "$STUB_SAYS"; exit 1',
}


class Pool(unittest.TestCase):
    def ask(self, memory_nodes, **settings):
        """The script's output, and how its first server would have been started."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in STUBS.items():
                stub = pathlib.Path(folder, name)
                stub.write_text(f"#!/bin/sh\n{text}\n")
                stub.chmod(0o755)
            said = pathlib.Path(folder, "said")
            env = {"PATH": folder + ":" + os.environ["PATH"], "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node[1-120]",
                   "STUB_SAYS": str(said), **settings}
            result = subprocess.run(["bash", SCRIPT, memory_nodes, "true"], env=env, cwd=folder, capture_output=True,
                                    text=True, timeout=120, check=False)
            self.assertNotEqual(result.returncode, 0)
            return result.stderr, said.read_text() if said.exists() else ""

    def test_many_nodes(self):
        says, started = self.ask("100", SODA_CAPACITY="1G")
        self.assertIn("no memory server on", says)
        self.assertIn("--capacity 1G", started)
        for number in "121", "0", "x", "1x":
            says, started = self.ask(number, SODA_CAPACITY="1G")
            self.assertIn("give a number from 1 to 120", says)
            self.assertEqual(started, "")

    def test_all_of_a_node(self):
        """--mem=0 is all of a node's memory, and no number."""
        for settings in {"SLURM_MEM_PER_NODE": "0"}, {}, {"SLURM_MEM_PER_NODE": "0", "SODA_CAPACITY": ""}:
            says, started = self.ask("1", **settings)
            self.assertIn("how much memory may a server promise?", says)
            self.assertEqual(started, "")
        self.assertIn("--capacity 3G", self.ask("1", SLURM_MEM_PER_NODE="0", SODA_CAPACITY="3G")[1])
        self.assertIn("--capacity 750M", self.ask("1", SLURM_MEM_PER_NODE="1000")[1])


if __name__ == "__main__":
    unittest.main()
