/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's memory: how much may be reserved (capacity, quota), and the memory itself.
 *
 * Reserving is accounting: the bytes are taken off a capacity that is fixed at start, and an object
 * that does not fit is refused when it is made, not when its pages are touched.  Memory itself is a
 * memfd of whole 2 MiB blocks, mapped in the server as long as it exists:
 *
 *   0           bytes     backing_bytes        + dirty_bytes (WRITABLE files only)
 *   | object      | zeros     | one byte for each 64 KiB of the object
 *
 * The memfd is sealed (SHRINK, GROW, SEAL), so that nobody who has its descriptor can
 * make the server's mapping fault.  Destroying unmaps and closes it.  The memory goes back to the
 * system, and off the accounts (handed.h), only when no process has it any more: punching a hole
 * earlier would make a reader see zeros.  Only what a region's client discards
 * (soda_memory_discard) goes back at once.
 */
#ifndef SODA_MEM_SERVER_STORE_H
#define SODA_MEM_SERVER_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/numa/numa_node.h"
#include "base/shares.h"
#include "transport/api/transport.h"

#define SODA_STORE_BLOCK (2ull << 20)
#define SODA_DIRTY_UNIT (64u << 10)

struct soda_store {
	uint64_t capacity;	 /* set before start, then constant */
	bool hugepages;		 /* likewise */
	struct soda_nodes nodes; /* likewise; where memory comes from */
	/* Likewise.  Allocates the pages of a descriptor: fallocate(2), or a test's function. */
	int (*populate)(int fd, uint64_t bytes);
	int inotify; /* likewise; -1: the end of a memfd is not reported (handed.h) */
	pthread_mutex_t lock;
	uint64_t used;		    /* guarded by lock, and so below; at most capacity */
	uint64_t refunds;	    /* how often memory was destroyed and no longer charged */
	struct soda_handed *handed; /* memory that was handed out */
	struct soda_shares kept;    /* how much of it was destroyed here, and some process has it */
	uint64_t kept_ns;	    /* when the last of that was destroyed */
};

struct soda_handed;

/*
 * How much one client, or all clients of one tenant, may have, and have.  Guarded by the store's
 * lock.
 */
struct soda_account {
	uint64_t quota;		     /* 0: no limit */
	uint64_t used;		     /* that of accounts below included */
	struct soda_account *parent; /* charged for the same; NULL: none; constant */
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
	bool freezes;  /* soda_memory_freeze will be called when the contents are there */
	bool populate; /* allocate all pages now, because the descriptor will be handed out */
	/*
	 * No descriptor is needed: use anonymous memory (fd is -1), which the kernel backs with
	 * transparent huge pages where they are on.
	 */
	bool unshared;
};

void soda_store_init(struct soda_store *store, uint64_t capacity);
/* Ignore soda_memory_options.populate from now on: pages are allocated when they are used. */
void soda_store_populate_later(struct soda_store *store);

/* How many bytes an object of this size takes of the capacity. 0: too large for any server. */
uint64_t soda_store_cost(const struct soda_store *store, uint64_t bytes, bool dirty_map);

/* Bytes of the capacity that are not reserved. */
uint64_t soda_store_free_bytes(struct soda_store *store);

/* Goes up with each memory that is no longer charged; for soda_handed_await(). */
uint64_t soda_store_refunds(struct soda_store *store);

/* Charge cost to a client's account. 0; -EDQUOT, why. */
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
/* Allocate all pages that are not allocated yet. 0, -ENOSPC. */
int soda_memory_populate(struct soda_store *store, const struct soda_memory *memory,
			 struct soda_why *why);
/* The contents are final: forbid writing by any descriptor or mapping. 0 or negative errno. */
int soda_memory_freeze(const struct soda_memory *memory, struct soda_why *why);
/*
 * Make a range of whole pages zeros and give its pages back to the system; they stay reserved.  0;
 * a negative errno; -ENOTSUP: huge pages, which the system might not give again, and pages that
 * were allocated when the region was opened because clients store to them themselves: nothing
 * changes.
 */
int soda_memory_discard(const struct soda_store *store, const struct soda_memory *memory,
			uint64_t offset, uint64_t bytes);
/*
 * Unmap and close the memory.  Its cost is refunded, to the account, too, if that is not NULL: at
 * once, or, if the memory was handed out, when no process has it any more.
 */
void soda_memory_destroy(struct soda_store *store, struct soda_memory *memory,
			 struct soda_account *account);

/* An id or a secret: not 0, not to be guessed, and none that this or another server had before. */
uint64_t soda_server_random_id(void);

/* Write a sentence into why, which may not be NULL. */
void soda_server_why(struct soda_why *why, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * punched.c: holes that a client on the same machine has punched into huge pages.
 *
 * A client that may write to a memfd can also punch holes into it; no seal forbids only the second.
 * A touch of the hole takes a new page.  Huge pages come from a pool, which may be empty: then the
 * touch is a SIGBUS, which would end the server.  So the server maps ordinary memory over the hole:
 * zeros, as the client has asked for by punching, which only the server sees.  System calls on the
 * hole fail with EFAULT, which ends that connection or SYNC.
 */

/*
 * Fill holes of a mapping of whole, aligned 2 MiB blocks from now on.  The first call installs a
 * handler for SIGBUS; for other addresses, and for memory that has failed (hardware), the signal
 * does what it did before.  0; -ENOMEM: too many mappings are watched.
 */
int soda_punched_watch(void *map, size_t bytes);
/* To be called before the mapping is unmapped. Nothing happens if it is not watched. */
void soda_punched_forget(const void *map);

#endif
