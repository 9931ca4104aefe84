/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One client's regions: memory of its own, or a file's, under the 16-bit id that
 * the client chose.
 *
 * The data path takes a hold with one atomic addition and drops it with another:
 *
 *   slot state   OPEN | holds     OPEN is set when the region is there, and cleared
 *                                 by close, which then waits until holds is 0
 *
 * Calls of the control plane are serialised by `control`; `lock` guards the list
 * for those who look from outside (statistics).
 */
#ifndef SODA_MEM_SERVER_REGION_H
#define SODA_MEM_SERVER_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mem_server/files/files.h"
#include "mem_server/store/store.h"
#include "transport/api/service.h"

/* What all clients share; set before start, then constant, but for the count. */
struct soda_region_pool {
	struct soda_store *store;
	struct soda_files *files;
	uint64_t quota;	      /* a client; 0: none */
	uint32_t max_regions; /* of all clients: each costs a descriptor and a mapping */
	uint32_t close_ms;    /* how long close waits for requests under way */
	_Atomic uint32_t regions;
};

struct soda_client_region {
	struct soda_client_region *next;
	struct soda_memory own;
	struct soda_file *file; /* NULL: anonymous */
	uint64_t bytes;
	uint16_t id;
	bool writable;
	char name[SODA_WIRE_MAX_NAME + 1]; /* guarded by the set's lock */
};

struct soda_region_slot {
	_Atomic uint32_t state;
	struct soda_client_region *region; /* valid while state has OPEN, or holds that saw it */
};

struct soda_region_set {
	struct soda_region_pool *pool;
	const struct soda_file_user *user; /* whose files they may be; NULL: the server's */
	struct soda_region_slot *slots;	   /* 65,536, in memory that is there when touched */
	uint32_t slots_end; /* no region ever had this number or a higher one; guarded by control */
	pthread_mutex_t control; /* taken first */
	pthread_mutex_t lock;	 /* taken before the files' and the store's */
	pthread_cond_t released;
	struct soda_client_region *list; /* guarded by lock */
	uint32_t count;			 /* guarded by lock */
	struct soda_account account;
};

/* user: as in soda_file_request, and stays. 0, -ENOMEM. */
int soda_region_set_init(struct soda_region_set *set, struct soda_region_pool *pool,
			 const struct soda_file_user *user);
/* Every region is closed. */
void soda_region_set_destroy(struct soda_region_set *set);

/*
 * open: decoded, not yet trusted; name: open->name_bytes bytes of a peer's.
 * shares: populate, and fill *share_p.  0; -EINVAL: flags, sizes, name; -EBUSY: the
 * id is in use; -ENOSPC, -EDQUOT, -ENOMEM; errors of soda_files_open.
 */
int soda_region_open(struct soda_region_set *set, const struct soda_wire_open *open,
		     const char *name, bool shares, struct soda_wire_opened *opened_p,
		     struct soda_share *share_p, struct soda_why *why);
/*
 * Write a WRITABLE file back, then free.  0; -EINVAL: no such region; -EBUSY: its
 * requests do not end; or the error of soda_file_sync: then it stays open.
 */
int soda_region_close(struct soda_region_set *set, uint16_t id, struct soda_why *why);
/* Of anonymous, PRIVATE and READ_ONLY regions: nothing to do. 0, -EINVAL, soda_file_sync. */
int soda_region_sync(struct soda_region_set *set, uint16_t id, struct soda_why *why);
/*
 * d: decoded, not yet trusted.  0; -EINVAL: no such region, or range; -EACCES: a file's; errors
 * of soda_memory_discard.
 */
int soda_region_discard(struct soda_region_set *set, const struct soda_wire_discard *d,
			struct soda_why *why);
int soda_region_name(struct soda_region_set *set, uint16_t id, const char *name, size_t bytes,
		     struct soda_why *why);
/* What soda_region_open has filled in for a transport that shares, once more. 0, -EINVAL, -ENOMEM.
 */
int soda_region_share(struct soda_region_set *set, uint16_t id, struct soda_share *share_p,
		      struct soda_why *why);
/*
 * Describe the regions from that id on, in the order of their ids, at most max of
 * them; how many.
 */
unsigned soda_region_list(struct soda_region_set *set, uint16_t from, struct soda_wire_listed *list,
			  unsigned max);
/*
 * Close all; the client has no data connection any more.  What cannot be written back is logged as
 * lost: returns how many files.
 */
unsigned soda_region_close_all(struct soda_region_set *set, const char *owner);

/* Take a hold on the memory of a READ or WRITE; any thread, lock-free. 0, -EINVAL, -EACCES. */
int soda_region_acquire(struct soda_region_set *set, bool write, uint16_t id, uint64_t page_offset,
			uint32_t size, struct soda_span *span_p);
/* landed: a WRITE has been stored. */
void soda_region_release(struct soda_region_set *set, const struct soda_span *span, bool landed);

/* How many there are. Any thread. */
uint32_t soda_region_count(struct soda_region_set *set);

const char *soda_region_kind(const struct soda_client_region *region);

#endif
