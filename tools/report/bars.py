# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/performance.md: a row is measured by runs of soda bench, and has a bar, which is met or missed."""
import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

from . import reading, shapes, tables

LIMIT_S = 600


class Failed(Exception):
    """A run that came to nothing."""


def held(condition):
    return "met" if condition else "**missed**"


@contextlib.contextmanager
def busy_processor():
    """Something else that keeps one processor busy."""
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as process:
        try:
            yield
        finally:
            process.kill()


class Bench:
    """Runs of soda bench, each by a name: done now, or read from where they were kept."""

    def __init__(self, who, args):
        self.rounds, self.host = args.rounds, getattr(args, "host", None)
        self._who, self._keep, self._kept = who, args.keep, getattr(args, "from")
        self._soda = args.soda

    @property
    def measures(self):
        return self._kept is None

    def _measure(self, name, command):
        print(f"{self._who}: {' '.join(command)}", file=sys.stderr)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
        except (subprocess.SubprocessError, OSError) as error:
            raise Failed(f"{name} failed: {error}") from error
        path = os.path.join(self._keep, f"{name}.json")
        with open(path, "wb") as file:
            file.write(done.stdout)
        return path

    def run(self, name, *words, prefix=(), wanted=None):
        """The document of one run, checked."""
        if self.measures:
            path = self._measure(name, [*prefix, self._soda, "bench", *words, "--json"])
        else:
            path = os.path.join(self._kept, f"{name}.json")
        return shapes.read(path, wanted)[1]

    def fault(self, name, *words, rounds=None, prefix=()):
        return self.run(name, "fault", *words, "--rounds", str(rounds or self.rounds), prefix=prefix,
                        wanted="soda-bench-fault")

    def dpu(self, name, *words, rounds=None):
        """Its runs by mode."""
        document = self.run(name, "dpu", *words, "--rounds", str(rounds or self.rounds), "--host-transport", self.host,
                            wanted="soda-bench-dpu")
        return {run["mode"]: run for run in document["runs"]}


def _find_soda():
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/tools/soda/soda")
    return os.environ.get("SODA") or (os.path.realpath(build) if os.access(build, os.X_OK) else shutil.which("soda"))


def _arguments(who, rows, text, rounds, hosts):
    parser = argparse.ArgumentParser(prog=who, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--rounds", type=int, default=rounds, help="of each run (%(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="keep the JSON of each run there")
    parser.add_argument("--from", metavar="DIR", help="measure nothing: the table of what --keep has kept")
    if hosts:
        parser.add_argument("--host", choices=hosts, default=hosts[0], help="how processes reach the agent (%(default)s)")
    args = parser.parse_args()
    for name in args.rows:
        if name not in rows:
            parser.error(f"no row '{name}'; see --list")
    args.soda = _find_soda()
    if not args.soda and not getattr(args, "from"):
        parser.error("no soda: build it, or name it in $SODA")
    return args


def _table(who, rows, bench, names):
    """The exit status."""
    status = 0
    print("\n".join(tables.head("case", "bar", "measured", "")), flush=True)
    for name in names:
        try:
            cells = rows[name](bench)
            if cells:
                print(tables.row(*cells), flush=True)
        except (Failed, reading.Unreadable) as error:
            print(f"{who}: {error}", file=sys.stderr)
            status = 1
        except (KeyError, TypeError, ZeroDivisionError) as error:  # what is not known is null
            print(f"{who}: {name}: the results do not say what the row needs: {error}", file=sys.stderr)
            status = 1
    return status


def main(who, rows, text, rounds, hosts=()):
    """rows: name: function of a Bench; its cells are case, bar, measured, held, or None: it was left out."""
    args = _arguments(who, rows, text, rounds, hosts)
    if args.list:
        print("\n".join(rows))
        return 0
    with contextlib.ExitStack() as stack:
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
        else:
            args.keep = stack.enter_context(tempfile.TemporaryDirectory(prefix="soda-bench-"))
        return _table(who, rows, Bench(who, args), args.rows or list(rows))
