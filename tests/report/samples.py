# SPDX-License-Identifier: BSD-3-Clause
"""Documents as the programs write them, small enough to know every value."""

MACHINE = {"cpu": "A CPU <fast>", "kernel": "6.1.0", "architecture": "x86_64", "processors": 2,
           "memory_bytes": 8 << 30, "soda": "0.1.0", "date": "2026-01-02 03:04 UTC"}
MODES = ["dram", "ssd", "ssd+readahead", "ssd+advice", "memserver", "base", "agg", "async", "static", "dynamic",
         "dynamic-paper", "static+dynamic", "agg+async", "store", "all"]


def eval_run(mode, seconds, repetition=0, traffic=1000, valid=True, **members):
    run = {"graph": "g1", "app": "bfs", "mode": mode, "processes": 1, "repetition": repetition, "valid": valid,
           "verified": valid, "seconds": seconds, "programs_bytes": 1000, "host_cpu_ns": 2 * 10**9,
           "agent_cpu_ns": 10**9, "server_cpu_ns": 10**9,
           "traffic": {"on_demand": traffic, "prefetch": 0, "write_back": 0, "preload": 0, "total": traffic}}
    return {**run, **members}


def evaluation(runs, graphs=("g1",), apps=("bfs",)):
    modes = {run["mode"] for run in runs}
    return {
        "format": "soda-eval", "version": 1, "machine": MACHINE, "memory_cap": "by <nothing>",
        "commands": [{"text": "soda eval --out '<DIR>'", "memory_cap": "by <nothing>", "machine": MACHINE}],
        "disk": {"in_memory": False, "readahead_default_kib": 128},
        "plan": {"threads": 2, "iterations": 3, "chunk_bytes": 65536, "cache_bytes": 0, "limit_bytes": 0,
                 "dpu_cpu_pct": 0, "shm": True, "link": "", "apps": list(apps),
                 "modes": [mode for mode in MODES if mode in modes], "repeat": 3, "background": True},
        "graphs": [{"name": name, "vertices": 1024, "edges": 16000, "vertex_bytes": 8192, "edge_bytes": 64000}
                   for name in graphs],
        "runs": runs}


def full_evaluation():
    """Two graphs, two applications, every mode, alone and beside another; something missing, something invalid."""
    runs = [eval_run(mode, 1 + place + repetition / 4, repetition, 1000 + 10 * place, graph=graph, app=app,
                     processes=processes, hits=90, late_hits=5, misses=5, interface_bytes=1010 + 10 * place,
                     readahead_kib=128)
            for place, mode in enumerate(MODES) for repetition in range(2) for graph in ("g1", "g2")
            for app in ("bfs", "pagerank") for processes in (1, 2)]
    missing = [run for run in runs if (run["mode"], run["app"], run["graph"]) == ("base", "pagerank", "g2")]
    runs = [run for run in runs if run not in missing]
    for run in runs:
        if (run["mode"], run["app"], run["graph"]) == ("ssd", "bfs", "g1"):
            run.update(valid=False, why_invalid="it was <killed>")
    return evaluation(runs, ("g1", "g2"), ("bfs", "pagerank"))


def program(n=50, command=("sort", "</title><script>alert(1)</script>")):
    times = [10**8 * (i + 1) for i in range(n)]
    return {"format": "soda-run", "version": 1, "command": list(command), "status": 0, "machine": MACHINE,
            "settings": {"SODA_BUFFER": "8M"},
            "samples": {"at_ns": times, "reserved": [64 << 20] * n, "resident": [8 << 20] * n,
                        "buffer": [8 << 20] * n, "faults": [10 * i for i in range(n)], "zero_fills": [0] * n,
                        "fetched": [i << 20 for i in range(n)], "written": [i << 19 for i in range(n)],
                        "stalled_ns": [10**7 * i for i in range(n)]}}
