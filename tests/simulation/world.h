/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One seed: what the programs are told, what threads do, what goes wrong, and what is right.
 *
 *   plan.c      the seed's settings: sizes, time-outs, with an agent or without
 *   work.c      threads of the application: loads, stores, and the calls of soda.h
 *   model.c     what each load may see, and what soda_sync has promised
 *   copies.c    what the servers of a pool must have of each object
 *   sealing/    what servers may have of sealed objects and files, and what they change of them
 *   neighbour.c another client, by the wire's contract
 *   trust/      tenants: their keys, who changes them, and who has none
 *   fate.c      faults: when, which, how long
 */
#ifndef SODA_SIM_WORLD_H
#define SODA_SIM_WORLD_H

#include "nodes.h"
#include "fibers.h"

enum { SIM_OBJECTS = 8, SIM_THREADS = 4, SIM_FAULTS = 16, SIM_SLOTS = 2 };
/* Of a pool: what lies on one server, or on two; and the most that an object has. */
enum { SIM_SLAB = 2 << 20, SIM_SLABS = 3 };

struct sim_plan {
	uint64_t seed;
	unsigned ops, faults, threads;
	bool agent;
	bool neighbour;	  /* another client */
	unsigned crowded; /* percent of what threads do, where others are at it, too */
	bool handler;	  /* a thread serves all faults */
	unsigned servers; /* more than one: a pool */
	bool mirrored;	  /* redundancy: mirror:2, or... */
	const char *code; /* ...erasure codes, ec:K+M; NULL: none */
	bool drains;	  /* servers are drained, with redundancy */
	/* With redundancy: the next server is struck when all have all copies again. */
	bool one_at_a_time;
	const char *rebuild_rate;
	unsigned sealed;   /* percent of the objects */
	bool sealed_files; /* there are some, too */
	/* Where a daemon has tenants (of its settings): */
	uint64_t tenant_quota; /* the application's; 0: none */
	bool other_files;      /* the other tenant may have files */
	bool same_tenant;      /* the other client is the application's tenant */
	uint32_t chunk_bytes, buffer_chunks, prefetch;
	uint32_t connect_ms, fault_ms;
	const char *evict;
	unsigned slow, stalls; /* sim_run's */
	uint64_t delay_ns, jitter_ns;
	struct sim_server_settings server;
	struct sim_agent_settings agent_settings;
};

extern struct sim_plan plan;
void sim_plan_make(uint64_t seed);
/* Whether the seed has a pool of servers. */
bool sim_plan_has_pool(uint64_t seed);
void sim_plan_print(void);

/* The model. */

struct sim_cell {
	uint64_t value;	    /* of the last store; 0: none */
	uint64_t good_ns;   /* when it was last stored or loaded */
	uint64_t synced;    /* the last value that soda_sync has promised... */
	uint64_t synced_ns; /* ...and when that sync began */
	uint64_t stored;    /* number of the last store... */
	uint64_t stored_ns; /* ...and when that was done */
	bool opened;	    /* one has begun: the host may take the chunk for stored to */
	unsigned discards;  /* that are at it now */
	bool or_zero;	    /* a DISCARD is at it, or was when it was stored to */
	uint64_t discarded; /* when, in the count of stores */
};

struct sim_object {
	char *base;
	size_t bytes;
	struct sim_cell *cells;
	unsigned users;
	bool taken;	/* by one thread alone */
	bool frozen;	/* in the static cache, or READ_ONLY */
	unsigned flags; /* a file's, and its number; 0: anonymous */
	int file;
	uint64_t born_ns;
	/* Of each slab: when soda_sync has said that something is lost; and, with redundancy, when
	   there was no current copy on a server that lived. */
	uint64_t told_ns[SIM_SLABS], unsafe_ns[SIM_SLABS];
};

extern struct sim_object sim_objects[SIM_OBJECTS];

static inline size_t sim_cells(const struct sim_object *o)
{
	return o->bytes / 4096 * SIM_SLOTS;
}
static inline char *sim_cell_at(const struct sim_object *o, size_t cell)
{
	return o->base + cell / SIM_SLOTS * 4096 + (cell % SIM_SLOTS ? 4088 : 0);
}

void sim_model_load(struct sim_object *o, size_t cell);
void sim_model_store(struct sim_object *o, size_t cell);
/* What soda_sync has said. */
int sim_model_sync(struct sim_object *o, size_t first, size_t n);
/* It could not be made again when a server met the host anew: its program lets it go. */
bool sim_model_abandoned(const struct sim_object *o);
/*
 * A sealed file that is not written any more: an agent that has ended had acknowledged more than
 * the server got, or had its keys alone.
 */
bool sim_model_spoiled(const struct sim_object *o);
/* A server or agent has ended, or forgot the host. */
bool sim_model_lost(void);
void sim_model_discard(struct sim_object *o, size_t first, size_t n);
/* An error of what began then, which only a fault explains. */
void sim_model_excuse(const char *what, int err, uint64_t began_ns);
/* The pages that are there hold what they should, every byte. */
void sim_model_look(void);

/* As whom, and of which instance, the host was welcomed that has its objects on the server. */
struct sim_welcomed sim_model_met(enum sim_process server);
/* Does the host know what has happened? */
void sim_model_look_at_host(void);

/* Copies, where there is redundancy. */

/* At any time: which slabs have no current copy. */
void sim_copies_look(void);
uint64_t sim_copies_unsafe_ns(const struct sim_object *o, size_t cell);
/*
 * The page that copy k has there; NULL: it is not current, or its server has lost it, or does not
 * have it yet, or any more.
 */
const char *sim_copies_page(const struct sim_places *places, unsigned k);
/* A word of it, opened where it is sealed. false: it is not current, or its server has lost it. */
bool sim_copies_word(const struct sim_places *places, unsigned k, uint64_t *word_p);
/* What is settled of these cells is right in each current copy. */
void sim_copies_check(const struct sim_object *o, size_t first, size_t n);
/* Other ones each time. */
void sim_copies_check_some(void);

/* What has happened, for the model. */
struct sim_history {
	uint64_t disturbed_ns; /* until then errors of what began have an excuse */
	unsigned in_force;     /* faults that go on just now */
	unsigned done;	       /* operations */
	bool starved;	       /* a server or agent lacked memory or descriptors */
	bool killed;	       /* a server was, or ended */
	bool drained;	       /* a server ended by itself: until then it opens nothing more */
	uint64_t keys_lost_ns; /* an agent that sealed went then, with its keys */
	bool removed;	       /* the application's tenant was, or its agent's, for a while */
	uint64_t parted_ns;    /* the agent knew it no more then, and took leave of the servers */
	/* Of copies: rebuilds that began, how many had when the last one ended, and that were
	   complete; and the server of the last one. */
	unsigned begun, ended, rebuilt;
	enum sim_process rebuilt_on;
};

extern struct sim_history sim_history;

void *sim_work_main(void *thread);
void sim_work_end(void);
void *sim_neighbour_main(void *arg);
/* All is mended: it comes once more. */
void sim_neighbour_end(void);
void *sim_fate_main(void *arg);
/* Start the agent or the server; returns when it listens. */
void sim_fate_boot(enum sim_process p);
/* All is as it should be from now on. */
void sim_fate_mend(void);
/* And everybody knows. */
void sim_fate_settle(void);
/* All servers are there: all slabs get all of their copies, within a minute. */
void sim_fate_await_copies(void);
/* A fault goes on, or what began then could still meet with its consequences. */
bool sim_fate_explains(uint64_t began_ns);

#endif
