# SPDX-License-Identifier: BSD-3-Clause
"""Reports of SODA: pages, figures and tables, made of the JSON that its programs write.

  reading.py      JSON from a file, and what is wrong with it in one sentence
  shapes.py       what the results of each program look like, checked when they are read
  spread.py       a median, and how far the repetitions spread around it
  evaluation.py   soda eval: cells (medians of a kind of run) and the values of each figure
  figures.py      soda eval: what each figure shows, and what the paper says of it
  program.py      soda run: what a program did with fabric memory, over time
  movement.py     soda bench move: figures of its tables of Arrow
  charts.py       drawn by matplotlib;  svg.py: made fit for a page, light or dark
  palette.py      the colours, by name;  texts.py: numbers as people read them
  pages.py        the pages, from templates/
  tables.py       Markdown tables of the benchmarks;  bars.py: those of docs/performance.md, measured
  command.py      from arguments to files

Only charts.py knows matplotlib, only pages.py knows jinja2.
"""
