# SPDX-License-Identifier: BSD-3-Clause
"""Results as tables in Markdown."""


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def probability(p, trials):
    """As far as so many trials can say."""
    return f"under {100 / trials:g} %" if p == 0 else f"{100 * p:.3g} %"


def who(run):
    return [run["redundancy"], run["placement"]]


def balance(runs):
    rows = []
    for run in runs:
        b, j = run["balance"], run["joins"]
        after = [f"{j[key]:.2f}" for key in sorted(k for k in j if k.startswith("max_by_mean_after_"))]
        rows.append(who(run) + [f"{b['max_by_mean']:.2f}", f"{b['min_by_mean']:.2f}",
                                f"{100 * b['fill_at_refusal']:.1f} %", f"{100 * j['moved_share']:.1f} %"] + after +
                    [f"{run['rebuild_sources']:.0f}"])
    return table(["redundancy", "placement", "fullest / mean", "emptiest / mean", "full at the first refusal",
                  "moved at a join", "fullest / mean after half", "after all", "sources of a rebuild"], rows)


def loss(runs, trials):
    events = list(runs[0]["loss"])
    rows = []
    for run in runs:
        cells = []
        for event in events:
            told = run["loss"][event]
            cells.append(probability(told["any"], trials) +
                         (f" ({100 * told['slabs_then']:.2g} %; {100 * told['client']:.2g} %)" if told["any"] else ""))
        rows.append(who(run) + cells)
    return table(["redundancy", "placement"] + events, rows)


def markdown(answer):
    return balance(answer["runs"]) + "\n\n" + loss(answer["runs"], answer["trials"])
