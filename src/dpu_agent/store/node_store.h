/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node's store: READ_ONLY files once for all processes of a user on this machine.  A file that
 * a process has joined with has sparse memfds, one a GiB, and a map (wire/store_map.h); a chunk
 * that any process needs is read from the server once and written into its memfd, and each process
 * maps it from there.  docs/internals/node-store.md has the whole of it.
 *
 *            ask: FILL            filled: 0
 *   EMPTY ---------------> FILLING ----------> READY
 *     ^ ^                    |                   |  room is needed
 *     | +---- filled: error -+                   v
 *     +------------ punched -------------------- EVICTING
 *
 * A thread that asks for a chunk that is FILLING or EVICTING waits for that to end.  One budget
 * holds for all users; what one user's chunks take beyond its share of it is what others' chunks
 * replace. Chunks that a member has pinned are never evicted; how much may be pinned is a part of
 * the budget.
 *
 * The store knows no sessions and no network: paging/store.c brings the requests and the data.
 *
 * Locks: one, a leaf; no system call on memory is made with it.  Threads: any.
 */
#ifndef SODA_DPU_NODE_STORE_H
#define SODA_DPU_NODE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "transport/api/transport.h"
#include "wire/store_map.h"

struct soda_node_store;
struct soda_node_object; /* a file in the store, of a user who is one tenant */

/* Of what an object is. */
struct soda_node_name {
	uid_t uid;
	uint32_t tenant; /* soda_peer_info.tenant */
	uint16_t server; /* the tag of the pool's member that has it; 0: there is no pool */
	uint64_t file_id, generation;
	uint64_t bytes; /* of the file, in whole pages */
	uint32_t chunk_bytes;
};

/* A process's place in an object, which it leaves as often as it has joined; `object` NULL: none.
 */
struct soda_node_member {
	struct soda_node_object *object;
	uint32_t number;
};

/* Who waits for a chunk; the caller's until it is told. */
struct soda_node_waiter {
	struct soda_node_waiter *next;
	/* From any thread, without locks. ready: the chunk is; else ask again. */
	void (*told)(struct soda_node_waiter *w, bool ready);
};

enum soda_node_answer {
	SODA_NODE_READY, /* its pages are in the memfd */
	SODA_NODE_WAITS, /* the waiter is told later */
	SODA_NODE_FILL,	 /* it is FILLING now: the caller brings it, and says soda_node_filled */
	SODA_NODE_NONE,	 /* the object has no such chunk */
};

struct soda_node_stats {
	uint64_t capacity, used; /* bytes */
	uint64_t objects, members;
	uint64_t folios; /* objects of which the kernel has a chunk's pages as one */
	uint64_t fills, bytes_filled, fills_failed;
	uint64_t passed; /* of those that failed: the data had come, and could not be kept */
	uint64_t hits;	 /* asked for, and there */
	uint64_t waits;	 /* asked for while another one's fill, or an eviction, was under way */
	uint64_t evictions, bytes_evicted;
	uint64_t held;	  /* evictions put off, as a process had the chunk among its last ones */
	uint64_t forced;  /* evictions of such a chunk, as all were held */
	uint64_t refused; /* joins */
	uint64_t limited; /* times the system gave no memory, and the store made do with less */
	uint64_t pinned, pinned_most; /* bytes of pinned chunks; most that there may be of them */
	uint64_t pins, pins_refused;  /* pinned ranges; those refused */
	/* of the fills, those ahead of any program; of them in bytes: touched, and never touched */
	uint64_t ahead, bytes_ahead, bytes_used;
	uint64_t useless, bytes_useless;
};

/* How memory comes and goes; for tests. 0 or negative errno. */
struct soda_node_memory {
	int (*write)(int fd, const void *data, uint32_t bytes, uint64_t at);
	int (*punch)(int fd, uint64_t at, uint64_t bytes);
};
extern const struct soda_node_memory soda_node_memory;

/* capacity: bytes, at least SODA_NODE_MIN. 0, -EINVAL, -ENOMEM, or of its thread's start. */
int soda_node_store_create(uint64_t capacity, const struct soda_node_memory *memory,
			   struct soda_node_store **store_p);
/* No member is left, and nothing is asked for any more. NULL is a no-op. */
void soda_node_store_destroy(struct soda_node_store *store);

/*
 * Join: the object is made where nobody has joined before. 0; -EBUSY: SODA_STORE_MEMBERS have;
 * -EINVAL: no size for a store, or chunks of which too few fit; -ENOMEM, -EMFILE...; why says so.
 */
int soda_node_join(struct soda_node_store *store, const struct soda_node_name *name,
		   struct soda_node_member *member_p, struct soda_why *why);
/* The place of a process once more, of a file that it reads from several servers. */
void soda_node_join_again(const struct soda_node_member *member, struct soda_node_member *again_p);
/*
 * The process has gone, or has closed the file: nothing is asked for it any more. What is there
 * stays, for those that come, until others need the room. A no-op where it has not joined.
 */
void soda_node_leave(struct soda_node_member *member);

/* What a client is told of an object that it has joined. */
void soda_node_describe(const struct soda_node_member *member, struct soda_wire_stored *stored_p);
/* The map's descriptor (SODA_WIRE_STORE_MAP), or a part's, borrowed; -EINVAL, errors of making it.
 */
int soda_node_descriptor(struct soda_node_object *o, uint16_t part);

/*
 * Pin the chunks that [offset, + bytes) touches, for this member, until it unpins them or leaves:
 * none that is READY, or becomes it, is evicted.  They are not brought here: the member asks for
 * them.  0; 1: the member has pinned all of it before; -ENOSPC: more than half of the store would
 * be pinned, or more than half of the user's share of it; -EINVAL, -ENOMEM; why says so.
 */
int soda_node_pin(const struct soda_node_member *member, uint64_t offset, uint64_t bytes,
		  struct soda_why *why);
/*
 * Undo the member's pins inside of the chunks that [offset, + bytes) touches.  How many; -EBUSY:
 * one lies across their edge, and nothing was undone.
 */
int soda_node_unpin(const struct soda_node_member *member, uint64_t offset, uint64_t bytes);

/* The object's own size of chunks, which a session's may differ from: its chunks are counted so. */
uint32_t soda_node_chunk_bytes(const struct soda_node_object *o);
/* The chunk at `offset`, if [offset, + bytes) is exactly one; else UINT32_MAX. */
uint32_t soda_node_chunk(const struct soda_node_object *o, uint64_t offset, uint64_t bytes);
/* A process of the object needs the chunk. May evict others before it returns FILL. */
enum soda_node_answer soda_node_ask(struct soda_node_object *o, uint32_t chunk,
				    struct soda_node_waiter *w);
/*
 * The end of what FILL began: the chunk's data have come, or (err, a negative errno) cannot be had.
 * 0: it is READY, and those who waited have been told; else it is EMPTY again, and they ask again:
 * err, or why the data cannot be kept, though others were evicted for them (-ENOMEM, -ENOSPC...).
 */
int soda_node_filled(struct soda_node_object *o, uint32_t chunk, const void *data, int err);

/*
 * Reading ahead of the programs (cache/dynamic/prefetch.h decides what).  A chunk that is brought
 * so is READY for everybody, and among the first to go, until a program uses it: asks for it, or
 * has touched it.
 */

/* Bytes of the chunks that [offset, + bytes) touches and that are EMPTY. */
uint64_t soda_node_lacks(struct soda_node_object *o, uint64_t offset, uint64_t bytes);
/*
 * True: the chunk was EMPTY and is FILLING now, as after soda_node_ask.  False: somebody has it or
 * brings it, or so much was brought ahead and not used that no more is taken; or there is no such
 * chunk.
 */
bool soda_node_claim(struct soda_node_object *o, uint32_t chunk);
/*
 * Chunks that were brought ahead and that programs have touched since: up to max of their offsets
 * in the object, each once.  How many.  Looks at a bounded number of chunks.
 */
uint32_t soda_node_touched(struct soda_node_object *o, uint64_t *offsets, uint32_t max);

/* In bytes. Programs: all that have joined with the object. */
struct soda_node_news {
	uint64_t
		asked; /* that programs needed and the store had not, or had for being read ahead */
	uint64_t used; /* of what was brought ahead */
	uint64_t unused; /* likewise: evicted before anybody touched it */
};
/* What has happened since the last call. */
void soda_node_take_news(struct soda_node_object *o, struct soda_node_news *news_p);

void soda_node_stats(struct soda_node_store *store, struct soda_node_stats *stats_p);
/*
 * Compute states, lists and accounts anew: 0, or -EUCLEAN and what is wrong. For tests.  The second
 * one never waits: -EBUSY where another thread has the lock.
 */
int soda_node_check(struct soda_node_store *store, struct soda_why *why);
int soda_node_check_now(struct soda_node_store *store, struct soda_why *why);

#endif
