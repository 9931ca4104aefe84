/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's memory: what may be promised (capacity, quota) and what backs it.
 *
 * A promise is accounting: reserving subtracts from a capacity fixed at start, and
 * fails at once where a later page could not be had.  Memory itself is a memfd of
 * whole 2 MiB blocks, mapped in the server as long as it exists:
 *
 *   0           bytes     backing_bytes        + dirty_bytes (WRITABLE files only)
 *   | object      | zeros     | one byte for each 64 KiB of the object
 *
 * Sealed (SHRINK, GROW, SEAL) so that a descriptor that has been handed out can
 * never make the server's mapping fault.  Destroying unmaps and closes: the memory
 * goes back to the system, and off the accounts (handed.h), when the last process that
 * shares it lets go, and not before, because a hole punched under a reader would read as
 * zeros; but for what its only client discards (soda_memory_discard).
 */
#ifndef SODA_MEM_SERVER_STORE_H
#define SODA_MEM_SERVER_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/numa/numa_node.h"
#include "transport/api/transport.h"

#define SODA_STORE_BLOCK (2ull << 20)
#define SODA_DIRTY_UNIT (64u << 10)

struct soda_store {
	uint64_t capacity;	 /* set before start, then constant */
	bool hugepages;		 /* likewise */
	struct soda_nodes nodes; /* likewise; where memory comes from */
	/* Likewise.  Allocates the pages of a descriptor; fallocate(2), or a test's own. */
	int (*populate)(int fd, uint64_t bytes);
	int inotify; /* likewise; -1: nobody tells what has gone (handed.h) */
	pthread_mutex_t lock;
	uint64_t used;		    /* guarded by lock, and so below; at most capacity */
	uint64_t refunds;	    /* how often memory was destroyed and no longer charged */
	struct soda_handed *handed; /* memory that was handed out */
	unsigned kept_n;	    /* of those: destroyed here, and kept by somebody */
	uint64_t kept_ns;	    /* when the last one was destroyed */
};

struct soda_handed;

/* What one client may have.  Guarded by the store's lock. */
struct soda_account {
	uint64_t quota; /* 0: no limit; constant */
	uint64_t used;
};

struct soda_memory {
	int fd;
	uint8_t *map;
	uint8_t *dirty; /* atomic bytes, or NULL */
	uint64_t bytes; /* of the object */
	uint64_t backing_bytes;
	uint64_t dirty_bytes;	    /* of the dirty map, whole pages */
	struct soda_handed *handed; /* NULL: its descriptor has not left the server */
};

struct soda_memory_options {
	uint64_t bytes;
	bool dirty_map;
	bool freezes;  /* soda_memory_freeze follows when the contents are there */
	bool populate; /* all pages now: the descriptor will be handed out */
	/*
	 * No descriptor is needed: anonymous memory, which the kernel backs with huge pages
	 * as it is touched where transparent ones are on.  fd is -1 then.
	 */
	bool unshared;
};

void soda_store_init(struct soda_store *store, uint64_t capacity);
/* From now on memory is allocated as it is used, whatever its options say. */
void soda_store_populate_later(struct soda_store *store);

/* What an object of this size costs. 0: too large for any server. */
uint64_t soda_store_cost(const struct soda_store *store, uint64_t bytes, bool dirty_map);

/* Bytes neither used nor promised. */
uint64_t soda_store_free_bytes(struct soda_store *store);

/* Changes with each memory that is no longer charged: for soda_handed_await(). */
uint64_t soda_store_refunds(struct soda_store *store);

/* Charge a client's account. 0, -EDQUOT with why. */
int soda_account_charge(struct soda_store *store, struct soda_account *account, uint64_t cost,
			struct soda_why *why);
void soda_account_refund(struct soda_store *store, struct soda_account *account, uint64_t cost);
uint64_t soda_account_used(struct soda_store *store, const struct soda_account *account);

/*
 * Reserve and map zero-filled memory.  0; -ENOSPC: over the capacity, or the system
 * has no pages left (nothing stays reserved); -ENOMEM: descriptors or mappings.
 */
int soda_memory_create(struct soda_store *store, const struct soda_memory_options *opt,
		       struct soda_memory *memory_p, struct soda_why *why);
/* Allocate what is not there yet. 0, -ENOSPC. */
int soda_memory_populate(struct soda_store *store, const struct soda_memory *memory,
			 struct soda_why *why);
/* Contents are final: no other descriptor or mapping may write. 0 or negative errno. */
int soda_memory_freeze(const struct soda_memory *memory, struct soda_why *why);
/*
 * A part of it, whole pages, becomes zeros, and its pages go back to the system; the
 * reservation stays.  -ENOTSUP: huge pages, which nobody promises to be there again.
 */
int soda_memory_discard(const struct soda_store *store, const struct soda_memory *memory,
			uint64_t offset, uint64_t bytes);
/*
 * What it cost is refunded, to the account too if there is one: at once, or, if it was handed out,
 * when no process has it any more.
 */
void soda_memory_destroy(struct soda_store *store, struct soda_memory *memory,
			 struct soda_account *account);

/*
 * host_memory.c: how much memory this node can give.  Available: what can be allocated now, which
 * is MemAvailable, at most what the memory cgroups (v1 or v2) of this process leave, their page
 * cache not counted, and at most what these nodes have, if any are chosen; 0: unknown.
 * Huge: free 2 MiB huge pages in bytes, of these nodes, or of all, and those that the kernel may
 * add; 0: none, or no support.
 */
uint64_t soda_host_memory_available(const struct soda_nodes *nodes);
uint64_t soda_host_memory_huge(const struct soda_nodes *nodes);

/* A sentence for people. why may not be NULL. */
void soda_server_why(struct soda_why *why, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * punched.c: huge pages that a client on the same machine has taken from under the server.
 *
 * Whoever shares a memfd that may be written to can punch a hole in it; no seal forbids one without
 * the other.  A touch of the hole takes a new page.  Where pages come from a pool, the pool may be
 * empty: the touch is a SIGBUS, and would be the server's end.  So the server puts zeros there,
 * which the client has asked for by punching, in ordinary memory that the client does not see,
 * and goes on.  System calls on the hole fail with EFAULT, which ends that connection or SYNC.
 */

/*
 * A mapping of whole, aligned 2 MiB whose holes are filled from now on.  The first call handles
 * SIGBUS for the process; of other addresses, and of memory that has broken, it stays what it was.
 * 0; -ENOMEM: there are too many.
 */
int soda_punched_watch(void *map, size_t bytes);
/* Before it is unmapped. What is not watched is ignored. */
void soda_punched_forget(const void *map);

#endif
