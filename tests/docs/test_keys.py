# SPDX-License-Identifier: BSD-3-Clause
"""The commands by which docs/pool.md has a pool with keys, on this machine: each server at a port of an address of its own of
127.0.0.0/8, their files in a folder, and a program of ours.  And each key file of docs/security.md is made before it is used.

test_keys.py DOCS PROGRAM
"""
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile

LIMIT_S = 60


def free_port(host):
    with socket.socket() as s:
        s.bind((host, 0))
        return s.getsockname()[1]


def commands(page):
    """[(host, command)] of each block with a prompt; a line that ends in a backslash goes on."""
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```$", page, re.M | re.S):
        text = re.sub(r"\\\n\s*", " ", block)
        yield re.findall(r"^ *(\w+)\$ +(.*)$", text, re.M)


def check_made(page):
    made = set()
    for lines in commands(page):
        for _, command in lines:
            made |= set(re.findall(r"soda seal key (?:\S*/)?(\S+)", command))
            for key in re.findall(r"--key-file (\S+)", command):
                if command.startswith("soda tenant add"):
                    made.add(key)
                assert key in made, f"{key} is not made before: {command}"


def run_pool(page, program):
    lines = next(lines for lines in commands(page) if any("SODA_KEY_FILE" in command for _, command in lines))
    folder = tempfile.mkdtemp()
    text = "\n".join(f"{host}$ {command.replace('/etc/soda/', f'{folder}/{host}-')}" for host, command in lines)
    for address in sorted(set(re.findall(r"10\.0\.0\.\d+:\d+", text))):
        host = address.split(":")[0].replace("10.0.0.", "127.0.0.")
        text = text.replace(address, f"{host}:{free_port(host)}")
    text = text.replace("10.0.0.", "127.0.0.")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SODA_")}
    servers = []
    try:
        for line in text.split("\n"):
            words = shlex.split(line.split("$ ", 1)[1].replace("./program", program))
            if words[0] == "soda-mem-server":
                # a machine of a test has less memory than a memory node
                servers.append(subprocess.Popen([*words, "--capacity", "256M"], cwd=folder, env=environment,
                                                stdout=subprocess.PIPE, text=True))
                assert servers[-1].stdout.readline().startswith("READY "), line
                continue
            changes = dict(word.split("=", 1) for word in words if re.match("[A-Z_]+=", word))
            subprocess.run([word for word in words if not re.match("[A-Z_]+=", word)], cwd=folder,
                           env={**environment, **changes}, check=True, timeout=LIMIT_S)
        assert len(servers) >= 2, text
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def main():
    docs, program = sys.argv[1:]
    with open(os.path.join(docs, "security.md"), encoding="utf-8") as page:
        check_made(page.read())
    with open(os.path.join(docs, "pool.md"), encoding="utf-8") as page:
        run_pool(page.read(), os.path.abspath(program))


if __name__ == "__main__":
    main()
