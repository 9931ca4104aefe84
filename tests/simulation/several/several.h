/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One seed of several programs: two to four, each a process with a host agent of its own, on the
 * same memory server, files, published objects, agent and store.
 *
 *   main.c      the seed's settings, its course, its end
 *   hosts.c     which host agent a call is for
 *   programs.c  what programs do, each by itself, and which codes that may return
 *   model.c     what each program may see of what it has open, and what others must see
 *   faults.c    faults: when, which, how long
 */
#ifndef SODA_SIM_SEVERAL_H
#define SODA_SIM_SEVERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../fibers.h"
#include "../net.h"
#include "../nodes.h"

enum {
	SEVERAL_OBJECTS = 6, /* of a program, at a time */
	SEVERAL_PAGES = 60,  /* of an object, at most */
	SEVERAL_SLOTS = 2,   /* words of a page that are stored to */
	SEVERAL_CELLS = SEVERAL_PAGES * SEVERAL_SLOTS,
	SEVERAL_FILES = 3,
	SEVERAL_NAMES = 2,     /* of published objects */
	SEVERAL_VERSIONS = 400 /* of all published objects together */
};

/* Each program's own. */
struct several_settings {
	uint32_t chunk_bytes, buffer_chunks, prefetch;
	const char *evict;
	bool handler;
};

struct several_plan {
	uint64_t seed;
	unsigned programs, ops, faults;
	unsigned slow, stalls; /* sim_run's */
	bool by_agent, poisons;
	uint32_t connect_ms, fault_ms;
	uint64_t delay_ns, jitter_ns;
	struct several_settings program[SIM_HOSTS];
	struct sim_server_settings server;
	struct sim_agent_settings agent;
};
extern struct several_plan several_plan;

/* All is mended: what was wrong is no excuse any more. */
extern bool several_calm;

static inline enum sim_process several_process(unsigned program)
{
	return program ? SIM_HOST2 + program - 1 : SIM_HOST;
}

/* hosts.c */

/* The program that is running. */
unsigned several_self(void);
/* A program begins: its machine is as the plan says. */
void several_prepare(void);

/* model.c */

enum several_kind {
	SEVERAL_ANONYMOUS,
	SEVERAL_PUBLISHED, /* by this program, or opened by its name */
	SEVERAL_READ,	   /* a file that is READ_ONLY, WRITABLE, PRIVATE */
	SEVERAL_WRITTEN,
	SEVERAL_PRIVATE
};

/* An object that a program has open. */
struct several_object {
	char *base; /* NULL: nothing */
	enum several_kind kind;
	unsigned pages;
	int file;    /* which */
	int name;    /* of a published object... */
	int version; /* ...and which of that name; -1: not known yet */
	bool closing;
	uint64_t closing_ns;	    /* when that began */
	uint64_t asked_ns, born_ns; /* when the call began that has opened it, and when it ended */
	struct sim_welcomed met;    /* as whom the program was known to the server then */
	/* The values that each cell may hold: the same where it has been seen, or stored to. */
	uint64_t low[SEVERAL_CELLS], high[SEVERAL_CELLS];
};

extern struct several_object several_objects[SIM_HOSTS][SEVERAL_OBJECTS];

static inline unsigned several_cells(const struct several_object *o)
{
	return o->pages * SEVERAL_SLOTS;
}

/* The running program opens, or makes, an object; it has it. */
void several_model_ask(struct several_object *o, enum several_kind kind);
void several_model_open(struct several_object *o, char *base, size_t bytes);
/* It is about to close it; it has (well: all that was stored is in the file), or could not. */
void several_model_closing(struct several_object *o);
void several_model_closed(struct several_object *o, bool well);
void several_model_stays(struct several_object *o);

void several_load(struct several_object *o, unsigned cell);
void several_store(struct several_object *o, unsigned cell);
/* soda_sync() of all of it. */
int several_sync(struct several_object *o);

/* The server has forgotten the client that had the object, or is another one. */
bool several_forgotten(const struct several_object *o);

/* How a file is called, and its pages. */
const char *several_file_name(int file);
unsigned several_file_pages(int file);
/*
 * Whether another program that excludes us has the file open, and has had it all the time since we
 * asked; whether one may have had it at any time.
 */
bool several_file_kept(const struct several_object *o);
bool several_file_may_be_kept(const struct several_object *o);

/* The object is to be a new version of what has that name: what is to be stored to its cells. */
void several_version_begin(struct several_object *o, int name);
uint64_t several_version_value(int version, unsigned cell);
/* It is about to be published; it is (0), or not, or (unknown) nobody knows. */
void several_publish_begins(struct several_object *o);
void several_publish_ends(struct several_object *o, int ret, bool unknown);
/* As above: whether something has the name that o asked for. */
bool several_name_kept(const struct several_object *o);
bool several_name_may_be_kept(const struct several_object *o);

/* The program is gone, and with it all that it had open. */
void several_model_killed(unsigned program);
/* The server is gone. */
void several_model_server_gone(void);
/* While it is, somebody writes a file anew. */
void several_model_rewrite(int file, bool dated);
/* The files as they were at the beginning; and that they are right when nobody has them open. */
void several_model_begin(void);
void several_model_end(void);

/* programs.c */

void several_begin(unsigned program);
/* It is about to end by itself, and to begin again. */
bool several_is_leaving(unsigned program);
bool several_all_ended(void);
/* Operations of all programs so far. */
extern unsigned several_done;

/* faults.c */

void *several_faults_main(void *arg);
void several_boot(enum sim_process p);
/* The process is gone: nobody hears of it any more (silently: its peers do not hear that either).
 */
void several_gone(enum sim_process p, bool silently);
/* All is as it should be, and everybody knows when this returns. */
void several_settle(void);
/* A call that began then may have failed because of a fault. */
bool several_excused(uint64_t began_ns);
void several_excuse(const char *what, int err, uint64_t began_ns);

#endif
