/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One client's regions: memory of their own, or a file's, under 16-bit ids that
 * the client chooses.
 *
 * A READ or WRITE takes a hold on its region with one atomic addition, and drops the hold with
 * another:
 *
 *   slot state   OPEN | holds     OPEN is set while the region can be used, and cleared
 *                                 by a close, which then waits until holds is 0
 *
 * `control` serialises calls of the control plane; `lock` guards the list for other threads
 * (statistics).
 */
#ifndef SODA_MEM_SERVER_REGION_H
#define SODA_MEM_SERVER_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mem_server/files/files.h"
#include "mem_server/session/tenants.h"
#include "mem_server/store/store.h"
#include "transport/api/service.h"
#include "wire/pool.h"

/* Shared by all clients; set before start, then constant, but for `regions`; all zeros: none. */
struct soda_region_pool {
	struct soda_store *store;
	struct soda_files *files;
	uint64_t quota;		    /* bytes of each client; 0: none */
	uint32_t max_regions;	    /* of all clients; each takes a descriptor and a mapping */
	uint32_t close_ms;	    /* how long a close waits for requests under way */
	struct soda_shares regions; /* of all clients; guarded by the store's lock */
};

struct soda_client_region {
	struct soda_client_region *next;
	struct soda_memory own;
	struct soda_file *_Atomic file; /* NULL: anonymous; set once, at the latest by PUBLISH */
	uint64_t bytes;
	uint16_t id;
	bool sealed;   /* SODA_WIRE_SEALED; set before it is linked, and so below */
	bool by_agent; /* SODA_WIRE_SEALED_BY_AGENT */
	_Atomic bool writable;
	_Atomic uint32_t writes;	   /* under way, those included that find it not writable */
	char name[SODA_WIRE_MAX_NAME + 1]; /* guarded by the set's lock */
};

struct soda_region_slot {
	_Atomic uint32_t state;
	struct soda_client_region *region; /* valid while OPEN, or for a hold that was taken then */
};

struct soda_region_set {
	struct soda_region_pool *pool;
	const struct soda_file_user *user; /* whose permissions decide; NULL: the server's */
	/*
	 * Whose published objects it names, set at start: the user in the lower 32 bits, the
	 * tenant's number above.
	 */
	uint64_t owner;
	struct soda_tenants *tenants; /* set at start; NULL: the server is open, or so the next */
	struct soda_tenant *tenant;
	struct soda_region_slot *slots; /* 65,536; not populated, pages come when touched */
	uint32_t slots_end; /* no region ever had this number or a higher one; guarded by control */
	pthread_mutex_t control; /* taken first */
	pthread_mutex_t lock;	 /* taken before the files' and the store's */
	pthread_cond_t released;
	struct soda_client_region *list; /* guarded by lock */
	uint32_t count;			 /* guarded by lock */
	struct soda_account account;
};

/* user: as in soda_file_request; must stay as long as the set. 0, -ENOMEM. */
int soda_region_set_init(struct soda_region_set *set, struct soda_region_pool *pool,
			 const struct soda_file_user *user);
/* Free the set, when all of its regions are closed. */
void soda_region_set_destroy(struct soda_region_set *set);

/*
 * OPEN.  open: decoded, not checked; name: open->name_bytes bytes from the peer, not terminated.
 * shares: the transport shares memory: populate it, and fill *share_p.  0; -EINVAL: flags, sizes,
 * name; -EBUSY: the id is in use; -ENOSPC, -EDQUOT, -ENOMEM; errors of soda_files_open; -ENOENT,
 * -ENOTSUP: of a published object, which the transport cannot share.
 */
int soda_region_open(struct soda_region_set *set, const struct soda_wire_open *open,
		     const char *name, bool shares, struct soda_wire_opened *opened_p,
		     struct soda_share *share_p, struct soda_why *why);
/*
 * CLOSE: write a WRITABLE file back, then free the region.  0; -EINVAL: no such region; -EBUSY: its
 * requests do not end; an error of soda_file_sync.  After an error it stays open.
 */
int soda_region_close(struct soda_region_set *set, uint16_t id, struct soda_why *why);
/*
 * SYNC: write a WRITABLE file back; for other regions there is nothing to do. 0; -EINVAL: no such
 * region; errors of soda_file_sync.
 */
int soda_region_sync(struct soda_region_set *set, uint16_t id, struct soda_why *why);
/*
 * DISCARD.  d: decoded, not checked.  0; -EINVAL: no such region, or range; -EACCES: a file's
 * region; errors of soda_memory_discard.
 */
int soda_region_discard(struct soda_region_set *set, const struct soda_wire_discard *d,
			struct soda_why *why);
/* NAME: set a region's name, for statistics and messages. 0, -EINVAL. */
int soda_region_name(struct soda_region_set *set, uint16_t id, const char *name, size_t bytes,
		     struct soda_why *why);
/*
 * PUBLISH: end WRITEs to an anonymous region, and give it a name, by which those of set->owner open
 * it.  Where it has that name already: as if that were done now.  0; -EINVAL: no such region, a
 * file's, a name that cannot be, or the region has another one; -EBUSY: its WRITEs do not end;
 * -EEXIST, -ENOMEM: errors of soda_published_add.  After an error WRITEs go on.
 */
int soda_region_publish(struct soda_region_set *set, uint16_t id, const char *name, size_t bytes,
			struct soda_wire_opened *opened_p, struct soda_why *why);
/*
 * POOL, of a file's content: of the open region, or of the name (wire/pool.h).  Errors of
 * files/content.h; -EINVAL: no such region, or a name that cannot be.
 */
int soda_region_content(struct soda_region_set *set, const struct soda_wire_open *ask,
			const char *name, struct soda_wire_content *content_p,
			struct soda_why *why);
/* KEY: fill *share_p again, as soda_region_open has with shares. 0, -EINVAL, -ENOMEM. */
int soda_region_share(struct soda_region_set *set, uint16_t id, struct soda_share *share_p,
		      struct soda_why *why);
/*
 * LIST: describe the regions from id `from` on, in the order of their ids, at most max.  Returns
 * how many.
 */
unsigned soda_region_list(struct soda_region_set *set, uint16_t from, struct soda_wire_listed *list,
			  unsigned max);
/*
 * Close all regions, when the client has no data connection any more.  Files that cannot be written
 * back are lost, and logged with `owner`.  Returns how many.
 */
unsigned soda_region_close_all(struct soda_region_set *set, const char *owner);
/*
 * The same for regions that are not written to a file, and so wait for no disk. Returns whether
 * others are left.
 */
bool soda_region_close_unwritten(struct soda_region_set *set, const char *owner);

/*
 * Hold a region for a READ or WRITE; *span_p is its memory. 0; -EINVAL: no such region, or range;
 * -EACCES: a WRITE to a READ_ONLY file. Any thread, lock-free.
 */
int soda_region_acquire(struct soda_region_set *set, bool write, uint16_t id, uint64_t page_offset,
			uint32_t size, struct soda_span *span_p);
/* Drop the hold.  write: as it was acquired; landed: the data of a WRITE have been stored. */
void soda_region_release(struct soda_region_set *set, const struct soda_span *span, bool write,
			 bool landed);

/* How many regions all clients have. Any thread. */
uint32_t soda_region_pool_count(struct soda_region_pool *pool);

/* How many regions there are. Any thread. */
uint32_t soda_region_count(struct soda_region_set *set);

const char *soda_region_kind(const struct soda_client_region *region);

#endif
