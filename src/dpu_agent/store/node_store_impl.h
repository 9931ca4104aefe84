/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of node_store.h share, each with one duty:
 *
 *   node_store.c  the store's start and end; a chunk that is asked for, and filled
 *   chunks.c      a chunk: the word that processes see, accounts, lists
 *   objects.c     files: made, joined, left, dropped; their descriptors
 *   folios.c      pages of a chunk that the kernel has as one
 *   pins.c        ranges that members keep
 *   replace.c     which chunks go, and how
 *   ahead.c       chunks that are brought before a program needs them
 *   check.c       states, lists and accounts computed anew
 *
 * *_locked: the store's lock is held.  What begins with another word takes it.
 */
#ifndef SODA_DPU_NODE_STORE_IMPL_H
#define SODA_DPU_NODE_STORE_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpu_agent/store/node_store.h"

enum {
	SODA_NODE_PINS_PART = 2,    /* half of the store may be pinned, and half of a share */
	SODA_NODE_AHEAD_MAX = 1024, /* chunks of an object brought ahead and not used */
};

enum soda_node_state {
	SODA_NODE_CHUNK_EMPTY,
	SODA_NODE_CHUNK_FILLING,
	SODA_NODE_CHUNK_READY,
	/* to be evicted, unless a process holds it; only while the lock is held */
	SODA_NODE_CHUNK_CHOSEN,
	SODA_NODE_CHUNK_EVICTING,
};

/* All guarded by the store's lock. */
struct soda_node_chunk {
	struct soda_node_object *object;     /* NULL: it has never been asked for */
	struct soda_node_chunk *next, *prev; /* READY and not pinned: in its user's list */
	struct soda_node_waiter *waiters;
	uint32_t generation;
	uint32_t left; /* its user's arrivals when it was evicted last; 0: it never was */
	uint32_t pins; /* ranges that it is pinned by */
	uint8_t state; /* enum soda_node_state */
	uint8_t laps;  /* times that it goes to its list's end before it is a victim */
	bool settled;  /* in which list it belongs */
	bool ahead;    /* brought ahead, or on its way so, and not used by a program yet */
	bool ringed;   /* its number is in the object's ring `ahead` */
	bool held;     /* CHOSEN: a process has it among its last ones */
};

/* The oldest first, but for those touched since. */
struct soda_node_list {
	struct soda_node_chunk *oldest, *newest;
	uint64_t n;
};

/* A user's READY chunks, but for pinned ones, in two lists: see replace.c. */
struct soda_node_user {
	struct soda_node_user *next;
	uid_t uid;
	uint32_t tenant; /* one user as two tenants is two */
	unsigned objects;
	uint64_t used, pinned;
	struct soda_node_list trial, settled;
	uint32_t arrivals; /* chunks that were filled; never 0 after the first */
};

/* A range that a member has pinned. */
struct soda_node_pin {
	struct soda_node_pin *next;
	uint32_t member, first, n;
};

/* A memfd, and the agent's mapping of it, where chunks have large folios; else NULL. */
struct soda_node_part {
	int fd;
	char *view;
};

struct soda_node_object {
	/* set before anybody finds it, then constant, and so below */
	struct soda_node_store *store;
	struct soda_node_user *user;
	struct soda_node_name name;
	uint32_t chunks_n;
	uint16_t parts_n;
	int map_fd;
	struct soda_node_part *parts;
	struct soda_store_map *map;
	struct soda_node_chunk *chunks;
	uint64_t members;		     /* a bit each; guarded by the lock, and so below */
	uint16_t joined[SODA_STORE_MEMBERS]; /* how often each has */
	uint32_t taken;			     /* chunks that are not EMPTY */
	struct soda_node_pin *pins;	     /* of all members */
	uint32_t pins_n;
	/* a ring: chunks that are ahead, and some that are not any more, each once */
	uint32_t *ahead, ahead_first, ahead_n;
	struct soda_node_news news; /* nobody has taken yet */
	struct soda_node_object *next;
};

struct soda_node_store {
	const struct soda_node_memory *memory; /* set before start, then constant */
	pthread_t thread;		       /* tells those who have to ask again */
	pthread_mutex_t lock;		       /* guards all below */
	pthread_cond_t work;
	bool stop, told_limit, told_passed;
	unsigned descriptors, descriptors_max; /* of all objects */
	struct soda_node_waiter *again;	       /* for the thread */
	struct soda_node_object *objects;
	struct soda_node_user *users;
	unsigned users_n;
	struct soda_node_stats stats;
};

static inline uint32_t soda_node_index(const struct soda_node_chunk *c)
{
	return (uint32_t)(c - c->object->chunks);
}

static inline uint64_t soda_node_offset(const struct soda_node_chunk *c)
{
	return soda_node_index(c) * (uint64_t)c->object->name.chunk_bytes;
}

static inline uint32_t soda_node_bytes(const struct soda_node_object *o, uint32_t index)
{
	uint64_t left = o->name.bytes - index * (uint64_t)o->name.chunk_bytes;

	return left < o->name.chunk_bytes ? (uint32_t)left : o->name.chunk_bytes;
}

/* The part that it lies in, and where in it. */
static inline struct soda_node_part *soda_node_part(const struct soda_node_chunk *c)
{
	return &c->object->parts[soda_node_offset(c) / SODA_WIRE_STORE_PART];
}

static inline uint64_t soda_node_part_offset(const struct soda_node_chunk *c)
{
	return soda_node_offset(c) % SODA_WIRE_STORE_PART;
}

/* A user's chunks in both lists. */
static inline uint64_t soda_node_ready(const struct soda_node_user *u)
{
	return u->trial.n + u->settled.n;
}

static inline unsigned soda_node_descriptors(const struct soda_node_object *o)
{
	return o->parts_n + 1u;
}

/* chunks.c */

/* What the processes see.  Sequentially consistent: see store_map.h. */
void soda_node_publish(struct soda_node_chunk *c, enum soda_store_state state);
/* Whether a process has touched it. A hint. */
bool soda_node_is_touched(const struct soda_node_chunk *c);
/* How one has, and it is forgotten. */
enum soda_store_touch soda_node_take_touch(const struct soda_node_chunk *c);
/* The chunks that the range touches. False: it is not inside of the file. */
bool soda_node_cut(const struct soda_node_object *o, uint64_t offset, uint64_t bytes,
		   uint32_t *first_p, uint32_t *n_p);
/* An EMPTY chunk is FILLING from now on, and counted. */
void soda_node_begin_locked(struct soda_node_object *o, struct soda_node_chunk *c);
/* A chunk is EMPTY again, and those who waited for it have to ask again. */
void soda_node_empty_locked(struct soda_node_chunk *c);
/* It is not counted any more. */
void soda_node_give_locked(struct soda_node_chunk *c);
/* The list that it belongs into; a chunk that is READY and not pinned is in it. */
struct soda_node_list *soda_node_list(const struct soda_node_chunk *c);
void soda_node_link_newest_locked(struct soda_node_chunk *c);
void soda_node_unlink_locked(struct soda_node_chunk *c);
/* They have to ask again: the thread tells them, because the caller may have locks of others. */
void soda_node_send_back_locked(struct soda_node_store *store, struct soda_node_waiter *waiters);
/* One that was brought ahead is used. */
void soda_node_count_used_locked(struct soda_node_chunk *c);
/* The chunk goes. True: it was brought ahead and has met nobody, and so was of no use. */
bool soda_node_end_ahead_locked(struct soda_node_chunk *c);

/* objects.c */

/*
 * One that nobody has joined, and that has nothing, is nobody's any more.  The caller frees what
 * is returned, without the lock; NULL: it stays.
 */
struct soda_node_object *soda_node_drop_locked(struct soda_node_object *o);
void soda_node_free_object(struct soda_node_object *o);

/* folios.c */

/*
 * Whether the operator lets shared memory have folios of four pages up to a chunk.  folder: what
 * the kernel calls /sys/kernel/mm/transparent_hugepage.
 */
#define SODA_NODE_FOLIOS "/sys/kernel/mm/transparent_hugepage"
bool soda_node_folios_allowed(const char *folder, uint32_t chunk_bytes);
/* The agent's mapping of a memfd, in which a chunk has one folio. NULL: it cannot be had. */
char *soda_node_map_view(int fd, uint64_t bytes, uint32_t chunk_bytes);
/* NULL is a no-op, and so below. */
void soda_node_unmap_view(char *view, uint64_t bytes);
/* Make a chunk's pages, which are written next: that tells whether there was memory. */
void soda_node_make_pages(char *view, uint64_t at, uint32_t bytes);

/* pins.c */

/* The member's pins inside of the chunks end. The caller frees what is returned. */
struct soda_node_pin *soda_node_take_pins_locked(struct soda_node_object *o, uint32_t member,
						 uint32_t first, uint32_t n);
/* How many. */
int soda_node_free_pins(struct soda_node_pin *pins);

/* replace.c */

/* A program uses a READY chunk that was brought ahead. */
void soda_node_use_locked(struct soda_node_chunk *c);
/* The chunk is READY from now on, and in its list. */
void soda_node_arrive_locked(struct soda_node_chunk *c);
/* A batch of chunks goes, for what the asker wants. How many did. */
int soda_node_evict(struct soda_node_store *store, struct soda_node_user *asker);
/* Evict until the budget holds, or all that is there is being filled. */
void soda_node_make_room(struct soda_node_store *store, struct soda_node_user *asker);

/* ahead.c */

/* Bytes that were touched, and that nobody has looked at yet. */
uint64_t soda_node_touched_yet_locked(const struct soda_node_object *o);

#endif
