/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes of `soda run` that share one page buffer, and what each of them did: memory that all of
 * them map.  docs/internals/process-tree.md has the picture, the states and what happens when one
 * of them is killed.
 *
 * The budget.  A process that has fabric memory has a *slot*, and says there how many bytes it
 * holds: its own page buffer has this limit.  Nothing else says how much is free: it is what the
 * slots leave.  Who wants more adds to its slot first and then sums up all of them; where that is
 * more than the budget it takes back what it has added.  So the sum of what is used is never over
 * the budget, without a lock, and nothing is lost with a process that is killed at any instruction:
 * its slot is free, with all that it held, as soon as somebody finds that it has ended.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_BASE_TREE_H
#define SODA_BASE_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tree/pool.h"
#include "base/tree/server.h"

enum { SODA_TREE_SLOTS = 1024, SODA_TREE_ROWS = 512, SODA_TREE_NAME = 64, SODA_TREE_TOLD = 3072 };

struct soda_tree_slot {
	_Alignas(64) _Atomic uint64_t owner; /* soda_alive_self() of who has it; 0: free */
	_Atomic int64_t held;		     /* bytes: only its owner adds, and who frees it */
	_Atomic int64_t local;	   /* bytes of other memory, where that has a limit, too */
	_Atomic int64_t wanted;	   /* bytes that it was refused, and has not got since; 0: none */
	_Atomic uint32_t starting; /* it waits for the least that it can start with */
	_Atomic uint32_t need;	   /* chunks a second that were not resident, lately */
};

/* What a process did. Its writer is that process; `soda` reads it when the program has ended. */
struct soda_tree_row {
	_Atomic uint32_t written; /* 0: nothing yet; 1: numbers of a while ago; 2: of its end */
	int32_t pid;
	char program[32];
	uint64_t reserved_peak, resident_peak, faults, zero_fills, fetched, sent, stalled_ns;
	uint64_t lived_ns, cpu_ns; /* since its start; of all threads */
	uint64_t buffer;	   /* the page buffer's limit now, in bytes */
	uint64_t local_peak;	   /* most anonymous memory beside it, of those that were seen */
	uint64_t chunk_bytes, demanded, ahead, useless; /* chunks: waited for; ahead; in vain */
	uint64_t fetch_p50_ns;				/* half of the fetches took no longer */
	uint32_t threads;				/* that waited in faults */
	char told[SODA_TREE_TOLD];			/* all of it as text, at its end */
};

struct soda_tree {
	uint64_t token;		   /* is in the name, too, so that the right memory is known */
	int64_t budget;		   /* bytes; 0: each process has a buffer of its own */
	_Atomic int64_t peak;	   /* most bytes held at once */
	_Atomic uint32_t slots_n;  /* slots from here on were never used */
	_Atomic uint32_t asked;	   /* futex: goes up when somebody wants more */
	_Atomic uint32_t given;	   /* goes up when somebody gave something back */
	_Atomic uint32_t programs; /* that the library was loaded into, where rows are wanted */
	_Atomic uint32_t refused; /* a bit for names of programs that it could not be loaded into */
	_Atomic uint32_t rows_n;  /* may be more than there are rows */
	struct soda_tree_server server;
	struct soda_tree_pool pool;
	struct soda_tree_slot slots[SODA_TREE_SLOTS];
	struct soda_tree_row rows[SODA_TREE_ROWS];
};

/*
 * For `soda`, which keeps the memory until it ends: make it, with the name by which processes of
 * this user find it.  server_program: SODA_MEM_SERVER, or NULL.  0 or a negative error.
 */
int soda_tree_create(int64_t budget, const char *server_program, struct soda_tree **tree_p,
		     char name[SODA_TREE_NAME]);
/*
 * Map the memory of that name, for good. 0; -ENOENT: who made it has ended, or cannot be seen from
 * here; another negative error.
 */
int soda_tree_open(const char *name, struct soda_tree **tree_p);

/*
 * A slot for the calling process, holding nothing; one that this program has already is used anew.
 * NULL: none is free.
 */
struct soda_tree_slot *soda_tree_claim(struct soda_tree *tree);
/* Take bytes, if the budget has them. AS. */
bool soda_tree_take(struct soda_tree *tree, struct soda_tree_slot *slot, int64_t bytes);
/* Give bytes back that are not used any more. AS. */
void soda_tree_give(struct soda_tree *tree, struct soda_tree_slot *slot, int64_t bytes);
/* Tell the other processes that this one wants more. AS. */
void soda_tree_ask(struct soda_tree *tree, struct soda_tree_slot *slot, int64_t bytes);
/* Wait until somebody asks, at most timeout_ns; seen: tree->asked as it was before the last look.
 */
void soda_tree_wait(struct soda_tree *tree, uint32_t seen, int64_t timeout_ns);
/* Free the slots of processes that have ended. */
void soda_tree_reap(struct soda_tree *tree);
/* The sum of what the slots say of local memory. */
int64_t soda_tree_local(const struct soda_tree *tree);
/* How many processes have a slot, but for those that have only local memory. */
uint32_t soda_tree_processes(const struct soda_tree *tree);
/* Whether a process other than that slot's wants more. */
bool soda_tree_wanting(const struct soda_tree *tree, const struct soda_tree_slot *but);

/*
 * How many bytes of what it uses the slot's owner should give to those that want some now, at most
 * `step`, and so that it keeps `least`.  To who starts always; else to who needs much more than
 * this process, or about as much and holds less than an equal share, while this one holds more.
 */
int64_t soda_tree_due(const struct soda_tree *tree, const struct soda_tree_slot *slot,
		      int64_t least, int64_t step);

/* A row for this process; NULL: there are no more. */
struct soda_tree_row *soda_tree_row(struct soda_tree *tree, const char *program);

/*
 * Which program runs in a process, so that what it held can be told from what another one holds
 * that has its process id since, by a fork or by an exec.  After proc(5), of one line in /proc.
 */

/*
 * The calling process: its id, as the /proc that it sees has it, in the high 32 bits; in the low
 * ones a mark of the program that runs in it: of when the process started, and of where its stack
 * is, which an exec changes. Never 0, but where there is no /proc: 0.
 */
uint64_t soda_alive_self(void);

/*
 * Whether that program may still have memory: false only where its process has ended, be it that
 * nobody has waited for it yet, or runs another program. What cannot be read counts as alive.
 */
bool soda_alive(uint64_t who);

static inline int32_t soda_alive_pid(uint64_t who)
{
	return (int32_t)(who >> 32);
}

#endif
