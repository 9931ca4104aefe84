# SPDX-License-Identifier: BSD-3-Clause
"""Run the commands for a small cluster that a page has, on this machine: its servers at ports of 127.0.0.1, and a program of
ours in place of ./program.  The program must end well, and both servers must have had the same of it.

test_cluster.py PAGE PROGRAM
"""
import json
import os
import re
import shlex
import socket
import subprocess
import sys

LIMIT_S = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def block_of(page):
    """The block of commands whose program has redundancy: [(host, command)]."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", page, re.M | re.S):
        lines = re.findall(r"^(\w+)\$ +(.*)$", block, re.M)
        if any("SODA_REDUNDANCY" in command for _, command in lines):
            return lines
    raise SystemExit("the page has no commands with SODA_REDUNDANCY")


def start(command):
    server = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline().startswith("READY "), command
    return server


def opened_at(address):
    out = subprocess.run(["soda", "stat", "--json", address], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    return json.loads(out.stdout)["regions_opened"]


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        lines = block_of(page.read())
    text = "\n".join(f"{host}$ {command}" for host, command in lines)
    for address in sorted(set(re.findall(r"10\.0\.0\.\d+:\d+", text))):
        text = text.replace(address, f"127.0.0.1:{free_port()}")
    lines = [line.split("$ ", 1) for line in text.split("\n")]
    servers = []
    try:
        # a machine of a test has less memory than a memory node
        servers = [start(command + " --capacity 256M") for host, command in lines if host.startswith("memory")]
        assert len(servers) >= 2, text
        for command in (command for host, command in lines if host == "compute"):
            words = shlex.split(command.replace("./program", shlex.quote(sys.argv[2])))
            changes = dict(word.split("=", 1) for word in words[:-1])
            environment = {name: value for name, value in os.environ.items() if not name.startswith("SODA_")}
            subprocess.run(words[-1:], env={**environment, **changes}, check=True, timeout=LIMIT_S)
            opened = [opened_at(address) for address in changes["SODA_SERVER"].split(",")]
            assert opened[0] and len(set(opened)) == 1, opened
    finally:
        for server in servers:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
