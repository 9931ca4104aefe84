/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda eval`: graph applications on a compute node whose memory is capped, in every mode.
 *
 *   eval.c       options
 *   plan.c       which runs there are, in which order;  parts.c: of all commands
 *   progress.c   how long what is left may take
 *   paper.c      what the paper used and found; whether this machine has it
 *   graph.c      the graphs, as files
 *   readahead.c  the disk's readahead; soda/stage/cgroup.h: the memory cgroup
 *   stage.c      memory server, agent
 *   app.c        one process of the application, started and watched
 *   needs.c      what a process of the capped node may have
 *   run.c        one run: what is started, read before and after
 *   verify.c     whether its result is right
 *   results.c    the results so far, on disk
 *   files.c      results.json, results.csv;  the page of them: tools/report
 *   table.c      the slow-downs, in the terminal
 *   drive.c      all of these, one after the other
 *
 *   application (capped) -----------------------> memory server      memserver
 *   application (capped) --- DPU agent ----------> memory server      base ... all
 *
 * All runs share a memory server; each has an agent of its own, so that caches and counters
 * begin empty.
 */
#ifndef SODA_EVAL_H
#define SODA_EVAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "soda/stage/cgroup.h"
#include "soda/stage/daemon.h"
#include "soda/stage/link.h"

/* What a mode's runs use, and the parts of the agent that are on in it. */
enum soda_eval_trait {
	SODA_EVAL_ON_DISK = 1 << 0,
	SODA_EVAL_THROUGH_AGENT = 1 << 1,
	SODA_EVAL_BESIDE = 1 << 2, /* it is also run beside a background process */
	SODA_EVAL_PLAIN = 1 << 3,  /* --base */
	SODA_EVAL_AGGREGATES = 1 << 4,
	SODA_EVAL_FORWARDS = 1 << 5, /* --async */
	SODA_EVAL_STATICS = 1 << 6,
	SODA_EVAL_DYNAMICS = 1 << 7,
	SODA_EVAL_SHARES = 1 << 8, /* --store: the node's store, for both processes */
	/* the dynamic cache evicts at random and fetches ahead by the model, as the paper's */
	SODA_EVAL_AS_PAPER = 1 << 9,
};

/*
 * The modes: a new one is a line here.  X(name, as people write it, how much longer than dram a
 * run takes before one has been measured, traits).
 */
#define SODA_EVAL_MODE_TABLE(X)                                                                    \
	X(DRAM, "dram", 1, 0)                                                                      \
	X(SSD, "ssd", 2.5, SODA_EVAL_ON_DISK | SODA_EVAL_BESIDE)                                   \
	/* the disk's own readahead, whatever it is */                                             \
	X(SSD_READAHEAD, "ssd+readahead", 2.5, SODA_EVAL_ON_DISK)                                  \
	/* as ssd, and the program says what it reads next */                                      \
	X(SSD_ADVICE, "ssd+advice", 2.5, SODA_EVAL_ON_DISK)                                        \
	X(MEMSERVER, "memserver", 1.7, SODA_EVAL_BESIDE)                                           \
	X(BASE, "base", 2.3, SODA_EVAL_THROUGH_AGENT | SODA_EVAL_BESIDE | SODA_EVAL_PLAIN)         \
	X(AGG, "agg", 2, SODA_EVAL_THROUGH_AGENT | SODA_EVAL_AGGREGATES)                           \
	X(ASYNC, "async", 2, SODA_EVAL_THROUGH_AGENT | SODA_EVAL_FORWARDS)                         \
	X(STATIC, "static", 2, SODA_EVAL_THROUGH_AGENT | SODA_EVAL_BESIDE | SODA_EVAL_STATICS)     \
	X(DYNAMIC, "dynamic", 2, SODA_EVAL_THROUGH_AGENT | SODA_EVAL_DYNAMICS)                     \
	X(DYNAMIC_PAPER, "dynamic-paper", 2,                                                       \
	  SODA_EVAL_THROUGH_AGENT | SODA_EVAL_DYNAMICS | SODA_EVAL_AS_PAPER)                       \
	X(STATIC_DYNAMIC, "static+dynamic", 2,                                                     \
	  SODA_EVAL_THROUGH_AGENT | SODA_EVAL_STATICS | SODA_EVAL_DYNAMICS)                        \
	X(AGG_ASYNC, "agg+async", 2,                                                               \
	  SODA_EVAL_THROUGH_AGENT | SODA_EVAL_AGGREGATES | SODA_EVAL_FORWARDS)                     \
	X(STORE, "store", 2,                                                                       \
	  SODA_EVAL_THROUGH_AGENT | SODA_EVAL_BESIDE | SODA_EVAL_AGGREGATES | SODA_EVAL_FORWARDS | \
		  SODA_EVAL_SHARES)                                                                \
	X(ALL, "all", 2,                                                                           \
	  SODA_EVAL_THROUGH_AGENT | SODA_EVAL_BESIDE | SODA_EVAL_AGGREGATES | SODA_EVAL_FORWARDS | \
		  SODA_EVAL_STATICS | SODA_EVAL_DYNAMICS)

#define SODA_EVAL_MODE_NAME(name, text, factor, traits) SODA_EVAL_##name,
enum soda_eval_mode { SODA_EVAL_MODE_TABLE(SODA_EVAL_MODE_NAME) SODA_EVAL_MODES };

extern const char *const soda_eval_mode_names[]; /* ends with NULL, as does: */
extern const char *const soda_eval_app_names[];	 /* the paper's five first */

enum { SODA_EVAL_APPS_MAX = 9, SODA_EVAL_GRAPHS_MAX = 16, SODA_EVAL_REPEAT_MAX = 1000 };

struct soda_eval_graph {
	const char *spec;    /* as asked for: a file, or rmat:SCALE:EDGES; borrowed */
	char name[64];	     /* in results and file names */
	char path[PATH_MAX]; /* of the binary triple */
	bool generated;	     /* by rmat: or uniform: */
	bool symmetric;
	uint64_t vertices, edges, vertex_bytes, edge_bytes;
};

struct soda_eval_run {
	uint32_t graph, app, processes, repetition;
	enum soda_eval_mode mode;
};

struct soda_eval_plan {
	const char *out, *work; /* folders: results; graphs, for as long as they are needed */
	uint32_t graphs_n, apps_n, modes_n;
	struct soda_eval_graph graphs[SODA_EVAL_GRAPHS_MAX];
	uint32_t apps[SODA_EVAL_APPS_MAX]; /* of soda_eval_app_names */
	enum soda_eval_mode modes[SODA_EVAL_MODES];
	uint32_t repeat, threads, iterations; /* iterations: PageRank's */
	uint32_t timeout_ms;		      /* of a process */
	uint64_t chunk_bytes, cache_bytes;    /* cache_bytes 0: in proportion to the limit */
	uint64_t limit_bytes;		      /* of the node; 0: a third of what is computed on */
	uint32_t cpu_pct;		      /* of the agent; 0: no cap */
	bool background, shm, quick, paper;
	struct soda_bench_link link; /* rate "": none */
	struct soda_eval_run *runs;  /* runs_n, in their order */
	uint32_t runs_n;
};

/* What an application needs on a graph, known from its run in local memory. */
struct soda_eval_needs {
	uint64_t object_bytes, array_bytes; /* all data; of these the application's own arrays */
	uint64_t limit_bytes, buffer_bytes; /* of a process's memory; of its page buffer */
	/* With the node's store: the page buffer's part for what is not shared. */
	uint64_t own_bytes;
	bool arrays_fam;
};

/* Processes, groups and files that all runs share. */
struct soda_eval_stage {
	const struct soda_eval_plan *plan;
	const char *dir; /* for files of a run */
	pid_t owner;
	struct soda_bench_daemon server, agent;
	struct soda_cgroup cpu_cap;
	struct soda_cgroup cap;
	bool capped; /* there are memory cgroups */
};

/* plan.c.  Fill runs from the rest; the caller frees them. 0 or -ENOMEM. */
int soda_eval_plan_make(struct soda_eval_plan *plan);
/* Members that must be equal so that results can be compared: a new reference. */
json_t *soda_eval_plan_setting(const struct soda_eval_plan *plan);
/* Set the plan's members from a setting. */
void soda_eval_plan_adopt(struct soda_eval_plan *plan, const json_t *setting);
/* The setting, and the graphs, applications and modes: a new reference. */
json_t *soda_eval_plan_describe(const struct soda_eval_plan *plan);
/* A graph as JSON, a new reference; and the graph of that JSON. */
json_t *soda_eval_graph_describe(const struct soda_eval_graph *graph);
void soda_eval_graph_recall(struct soda_eval_graph *graph, const json_t *described);
/* The place of a name in a list that ends with NULL; -1: it is not there. */
int soda_eval_name_find(const char *const *names, const char *name);
bool soda_eval_mode_has(enum soda_eval_mode mode, enum soda_eval_trait trait);
/* Seconds of a run, as a multiple of dram's, before one has been measured. */
double soda_eval_mode_factor(enum soda_eval_mode mode);

/* graph.c.  Make the graph's files if they are not there; 0, or negative errno after a message. */
int soda_eval_graph_prepare(const struct soda_eval_plan *plan, struct soda_eval_graph *graph);
/* Set the graph's name from its spec; 0, or -EINVAL after a message. */
int soda_eval_graph_name(struct soda_eval_graph *graph, const char *spec, const char *work);

/* stage.c.  0 or negative errno after a message; close in either case. */
int soda_eval_stage_open(struct soda_eval_stage *stage);
void soda_eval_stage_close(struct soda_eval_stage *stage);
/* Start an agent for this run's mode, which may have a store for its processes. */
int soda_eval_agent_start(struct soda_eval_stage *stage, const struct soda_eval_run *run,
			  const struct soda_eval_needs *needs);
/* The sizes of that agent's caches, for a report. */
void soda_eval_agent_caches(const struct soda_eval_plan *plan, const struct soda_eval_graph *graph,
			    const struct soda_eval_needs *needs, uint64_t *dynamic_p,
			    uint64_t *static_p, uint64_t *entry_p);

/*
 * run.c.  Do a run; *result_p is a new reference to what came of it, which says of itself
 * whether it is valid.  0, or negative errno after a message where going on makes no sense.
 */
int soda_eval_run_do(struct soda_eval_stage *stage, const struct soda_eval_run *run,
		     const struct soda_eval_needs *needs, json_t **result_p);

/*
 * verify.c.  Whether the result of a run, a file in plan->work that may be taken away, is
 * right: by the serial check, or because it is what that has found right before.  0; -EBADMSG: it
 * is wrong; -EIO: it could not be checked; the last line of the log says why.
 */
int soda_eval_verify(const struct soda_eval_plan *plan, const struct soda_eval_run *run,
		     const char *result, const char *log);
/* Remove what was kept for that. */
void soda_eval_verify_forget(const struct soda_eval_plan *plan);

/* needs.c.  From the result of the run in local memory. */
void soda_eval_needs_of(const struct soda_eval_plan *plan, const json_t *dram,
			struct soda_eval_needs *needs_p);
/*
 * The size of the node's store in a run, bytes: what the page buffers of the run's processes leave
 * of what they have in other modes.  0: the run has no store, and needs may be NULL.
 */
uint64_t soda_eval_store_bytes(const struct soda_eval_run *run,
			       const struct soda_eval_needs *needs);
/*
 * How much a process touches before its run (soda-ligra --warm), within the run's limit: what it
 * will have itself. With a store the first process touches what the agent takes for that a moment
 * later; when the second one starts, the store has it.
 */
uint64_t soda_eval_warm_bytes(const struct soda_eval_run *run, const struct soda_eval_needs *needs,
			      bool first);

/* paper.c.  Turn the plan into the paper's; 0, or -ENOTSUP having said all that is missing. */
int soda_eval_paper_plan(struct soda_eval_plan *plan);

/*
 * readahead.c.  The disk that files are on: its readahead, and what of files is in the page cache.
 */
#define SODA_EVAL_READAHEAD_KIB 128u /* Linux's default, and what the comparison is made with */

struct soda_eval_readahead {
	char path[256];	     /* of the setting; "": not known */
	uint32_t before_kib; /* what it was */
	int changed;	     /* negative errno: it could not be set */
};

/* Whether the folder is on a file system in memory, so that no disk is read. */
bool soda_eval_readahead_none(const char *folder);
/* Find the disk of this folder, and its present readahead. 0 or negative errno. */
int soda_eval_readahead_find(const char *folder, struct soda_eval_readahead *disk_p);
/* Set the readahead; returns what is in force then, KiB; 0: not known. */
uint32_t soda_eval_readahead_set(struct soda_eval_readahead *disk, uint32_t kib);
/* Set the readahead as it was when the disk was found. */
void soda_eval_readahead_restore(const struct soda_eval_readahead *disk);

/* Write a file's dirty pages and drop the file from the page cache. 0 or negative errno. */
int soda_eval_drop_cached(const char *path);

#endif
