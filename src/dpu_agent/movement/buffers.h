/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Named buffers in the agent's memory.  A buffer is a name, an owner, and some copies of one size,
 * each a sealed memfd.  A producer fills a free copy and publishes it, which makes it the buffer's
 * next step; readers hold steps while they look at them, and a step that is held is not filled
 * anew. docs/internals/movement.md draws the states.  No session and no ticket is known here.
 *
 * A buffer lives until its producer has ended it, all readers have closed it, and no fill is under
 * way; its memory counts against the budget until then, of which tenants have shares
 * (base/shares.h).
 *
 * Threads: any; one lock, soda_buffers.lock, a leaf.  Functions that wait say so.
 */
#ifndef SODA_DPU_AGENT_BUFFERS_H
#define SODA_DPU_AGENT_BUFFERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/shares.h"
#include "daemon/tenants.h"
#include "transport/api/service.h"
#include "wire/movement.h"

enum soda_copy_state { SODA_COPY_FREE, SODA_COPY_FILLING, SODA_COPY_COMPLETE };

/* One memory of a buffer. */
struct soda_copy {
	int fd;		 /* sealed against another size, and against new writers; constant */
	uint8_t *memory; /* the agent's mapping, which is writable; constant */
	enum soda_copy_state state; /* guarded by the table's lock, and so below */
	uint64_t step;		    /* COMPLETE: its number */
	unsigned holds;		    /* readers that hold the step */
};

/* Set when it is made and constant then, down to the copies' memory. */
struct soda_buffer {
	struct soda_buffer *next; /* in the table, while `named`; guarded by its lock */
	char name[SODA_WIRE_MAX_NAME + 1];
	uint64_t bytes;
	unsigned copies_n;
	unsigned mode;
	bool keep;  /* what a reader has not passed is not replaced */
	bool range; /* of an object in FAM: its copies are written there, and nobody opens it */
	uint32_t region; /* range: of its client, and where it begins in that */
	uint64_t at;
	uint32_t tenant; /* whose it is (soda_peer_info.tenant), and whose names its own is among */
	bool known;	 /* uid and gid are the kernel's word */
	uid_t uid;
	gid_t gid;
	struct soda_copy *copies;
	uint8_t *stage;	  /* STAGE: memory that is fetched into, for one get at a time; or NULL */
	uint64_t counted; /* bytes of all that, against the budget */
	pthread_cond_t changed; /* a step was published, or the buffer ended; with the lock */
	uint64_t steps;		/* published so far; guarded by the lock, and so below */
	uint64_t passed;	/* keep, no reader: steps up to this one may be replaced */
	unsigned refs;		/* its producer, readers, fills */
	bool named;		/* in the table: the producer has not ended it */
	struct soda_buffer_reader *readers;
};

/* A reader of a buffer; its memory is the caller's. Fields guarded by the table's lock. */
struct soda_buffer_reader {
	struct soda_buffer_reader *next;
	struct soda_buffer *buffer; /* NULL: closed */
	uint64_t passed;	    /* steps up to this one are done with */
	uint64_t held;		    /* bit i: the reader holds copy i */
};

struct soda_buffers {
	pthread_mutex_t lock;
	pthread_cond_t appeared; /* a buffer was reserved: its name may be the one */
	uint64_t budget;	 /* constant */
	const struct soda_tenants
		*tenants;	     /* set before use, then constant; NULL: there are none */
	struct soda_shares reserved; /* guarded by lock, and so below; bytes of copies and areas */
	struct soda_buffer *list;    /* by name */
	unsigned n;
	unsigned seekers; /* readers that await a name */
};

void soda_buffers_init(struct soda_buffers *all, uint64_t budget);
/* No buffer is left. */
void soda_buffers_destroy(struct soda_buffers *all);

/* The tenant of that number, for shares of what clients of movement have. */
struct soda_holder soda_buffers_holder(const struct soda_buffers *all, uint32_t tenant);
/*
 * Count a tenant's memory that is no buffer's against the budget.  -ENOSPC: over that, or the rest
 * is kept for other tenants; -ENOMEM; why is set.
 */
int soda_buffers_take(struct soda_buffers *all, uint32_t tenant, uint64_t bytes,
		      struct soda_why *why);
void soda_buffers_give(struct soda_buffers *all, uint32_t tenant, uint64_t bytes);

/*
 * Make a buffer of that name, with a reference for its producer, who gives it back by
 * soda_buffer_end().  owner: the producer's connection.  Takes all memory now, which may take 100
 * ms a GiB.  -EINVAL: no such name, mode, flags or size; -EPERM: the owner is not known, and others
 * may not read; -EEXIST; -ENOSPC: over the budget; -ENOMEM: the machine has none; -ENOTSUP: the
 * kernel cannot seal memory against writing. why is set.
 */
int soda_buffer_reserve(struct soda_buffers *all, const struct soda_wire_move_reserve *ask,
			const char *name, size_t name_bytes, const struct soda_peer_info *owner,
			struct soda_buffer **buffer_p, struct soda_why *why);
/*
 * Make a range: a buffer without a name, for lists that are written to a client's region, the
 * tenant's.  Memory as of soda_buffer_reserve().  -EINVAL: no such size; -ENOSPC; -ENOMEM;
 * -ENOTSUP. why is set.
 */
int soda_buffer_range(struct soda_buffers *all, const struct soda_wire_move_range *ask,
		      uint32_t tenant, struct soda_buffer **buffer_p, struct soda_why *why);
/* The producer's end: the name is free, readers are woken, the reference is given back. */
void soda_buffer_end(struct soda_buffers *all, struct soda_buffer *b);

/*
 * Take a copy to fill, with a reference to the buffer: until publish or abandon nobody else has it,
 * and the caller may write to its memory.  -ENOSPC: all are held, being filled, or kept for
 * readers; -EPIPE: the producer has ended the buffer.
 */
int soda_buffer_fill(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy **copy_p);
/* The copy is complete: it becomes the next step, whose number is returned. */
uint64_t soda_buffer_publish(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy *c);
/* Of a range: the copy has been written, which is the next step, and is free again. */
uint64_t soda_buffer_stored(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy *c);
/* The copy is not to be shown: it is free again. */
void soda_buffer_abandon(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy *c);

/*
 * Open the buffer of a name for a reader; waits at most timeout_ms for one to be reserved.
 * Each tenant has names of its own.  -ENOENT; -EACCES: its mode does not let `who` read. why is
 * set.
 */
int soda_buffer_open(struct soda_buffers *all, const char *name, size_t name_bytes,
		     const struct soda_peer_info *who, uint32_t timeout_ms,
		     struct soda_buffer_reader *reader, struct soda_why *why);
/*
 * The oldest complete step with a number above `after`, which the reader holds from now on; waits
 * at most timeout_ms.  *found_p: step 0: none, and `ended` says whether one may come.  -EBUSY: it
 * holds that step already.
 */
int soda_buffer_next(struct soda_buffers *all, struct soda_buffer_reader *reader, uint64_t after,
		     uint32_t timeout_ms, struct soda_wire_move_found *found_p);
/* The copy that holds this step for the reader, or NULL. It stays while the reader holds it. */
const struct soda_copy *soda_buffer_held(struct soda_buffers *all,
					 const struct soda_buffer_reader *reader, uint64_t step);
/* -EINVAL: the reader does not hold it. */
int soda_buffer_release(struct soda_buffers *all, struct soda_buffer_reader *reader, uint64_t step);
/* Gives back what the reader holds. Nothing happens where it is closed. */
void soda_buffer_close(struct soda_buffers *all, struct soda_buffer_reader *reader);

#endif
