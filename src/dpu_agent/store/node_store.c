/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/store/node_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wait.h"

/* In the simulation stores have few chunks. */
enum {
	PINS_PART = 2,	 /* half of the store may be pinned, and half of a share */
	PINS_MAX = 4096, /* ranges of an object */
#ifdef SODA_SIMULATION
	BATCH = 4,
	MAP_PART = 0,
	LEAST = 16 << 10,
#else
	BATCH = 16,	 /* chunks evicted at once: a hole in a row costs less than its parts */
	MAP_PART = 4,	 /* a file whose map would take more than this part of it is not taken */
	LEAST = 4 << 20, /* bytes beside pinned ones: with less it does not make do */
#endif
	WRITES_MAX = 8,	   /* attempts to write a chunk where the system gives no memory */
	AHEAD_MAX = 1024,  /* chunks of an object brought ahead and not used */
	AHEAD_LOOK = 256,  /* of them looked at at a time */
	TRIAL_SHARE = 10,  /* the list `trial` may have a tenth of a user's chunks, */
	TRIAL_LEAST = 128, /* at least so many, but no more than a quarter */
	LATE_ONE_IN = 8,
	PARTS_MAX = SODA_WIRE_STORE_MAP,
	DESCRIPTORS_MAX = 16384, /* and a quarter of what the process may have */
};

enum chunk_state {
	EMPTY,
	FILLING,
	READY,
	CHOSEN, /* to be evicted, unless a process holds it; only while the lock is held */
	EVICTING,
};

/* All guarded by the store's lock. */
struct chunk {
	struct soda_node_object *object; /* NULL: it has never been asked for */
	struct chunk *next, *prev;	 /* READY and not pinned: in its user's list */
	struct soda_node_waiter *waiters;
	uint32_t generation;
	uint32_t left; /* its user's arrivals when it was evicted last; 0: it never was */
	uint32_t pins; /* ranges that it is pinned by */
	uint8_t state; /* enum chunk_state */
	uint8_t laps;  /* times that it goes to its list's end before it is a victim */
	bool settled;  /* in which list it belongs */
	bool ahead;    /* brought ahead, or on its way so, and not used by a program yet */
	bool ringed;   /* its number is in the object's ring `ahead` */
	bool held;     /* CHOSEN: a process has it among its last ones */
};

/* The oldest first, but for those touched since. */
struct list {
	struct chunk *oldest, *newest;
	uint64_t n;
};

/* A user's READY chunks, but for pinned ones, in two lists: see "Replacement". */
struct user {
	struct user *next;
	uid_t uid;
	unsigned objects;
	uint64_t used, pinned;
	struct list trial, settled;
	uint32_t arrivals; /* chunks that were filled; never 0 after the first */
};

/* A range that a member has pinned. */
struct pin {
	struct pin *next;
	uint32_t member, first, n;
};

struct soda_node_object {
	struct soda_node_store
		*store; /* set before anybody finds it, then constant, and so below */
	struct user *user;
	struct soda_node_name name;
	uint32_t chunks_n;
	uint16_t parts_n;
	int map_fd, *parts;
	struct soda_store_map *map;
	struct chunk *chunks;
	uint64_t members; /* a bit each; guarded by the lock, and so below */
	uint32_t taken;	  /* chunks that are not EMPTY */
	struct pin *pins; /* of all members */
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
	struct user *users;
	unsigned users_n;
	struct soda_node_stats stats;
};

/* Memory */

static int write_memory(int fd, const void *data, uint32_t bytes, uint64_t at)
{
	for (uint32_t done = 0; done < bytes;) {
		ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + done));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO;
		done += n > 0 ? (uint32_t)n : 0;
	}
	return 0;
}

static int punch_memory(int fd, uint64_t at, uint64_t bytes)
{
	int ret;

	do
		ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
				(off_t)bytes);
	while (ret && errno == EINTR);
	return ret ? -errno : 0;
}

const struct soda_node_memory soda_node_memory = { .write = write_memory, .punch = punch_memory };

static uint32_t index_of(const struct chunk *c)
{
	return (uint32_t)(c - c->object->chunks);
}

static uint64_t offset_of(const struct chunk *c)
{
	return index_of(c) * (uint64_t)c->object->name.chunk_bytes;
}

static uint32_t bytes_of(const struct soda_node_object *o, uint32_t index)
{
	uint64_t left = o->name.bytes - index * (uint64_t)o->name.chunk_bytes;

	return left < o->name.chunk_bytes ? (uint32_t)left : o->name.chunk_bytes;
}

static int part_of(const struct chunk *c)
{
	return c->object->parts[offset_of(c) / SODA_WIRE_STORE_PART];
}

/* What the processes see.  Sequentially consistent: see store_map.h. */
static void publish(struct chunk *c, enum soda_store_state state)
{
	uint32_t word = c->generation * SODA_STORE_GENERATION | state;

	atomic_store(&soda_store_words(c->object->map)[index_of(c)], word);
}

/* relaxed: a hint */
static bool is_touched(const struct chunk *c)
{
	const struct soda_node_object *o = c->object;

	return atomic_load_explicit(&soda_store_touched(o->map, o->chunks_n)[index_of(c)],
				    memory_order_relaxed);
}

/*
 * How, and it is forgotten.  A look first, because most have not been, and the line is shared.
 */
static enum soda_store_touch take_touch(const struct chunk *c)
{
	const struct soda_node_object *o = c->object;
	uint8_t how = is_touched(c) ? atomic_exchange_explicit(
					      &soda_store_touched(o->map, o->chunks_n)[index_of(c)],
					      0, memory_order_relaxed)
				    : SODA_STORE_UNTOUCHED;

	return how == SODA_STORE_UNTOUCHED || how == SODA_STORE_PASSED ? how : SODA_STORE_TOUCHED;
}

/* Accounts and lists, with the lock held. */

static void take_locked(struct chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = bytes_of(o, index_of(c));

	o->taken++;
	o->user->used += bytes;
	o->store->stats.used += bytes;
}

static void give_locked(struct chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = bytes_of(o, index_of(c));

	o->taken--;
	o->user->used -= bytes;
	o->store->stats.used -= bytes;
}

static struct list *list_of(const struct chunk *c)
{
	struct user *u = c->object->user;

	return c->settled ? &u->settled : &u->trial;
}

static uint64_t ready_of(const struct user *u)
{
	return u->trial.n + u->settled.n;
}

static void link_newest_locked(struct chunk *c)
{
	struct list *l = list_of(c);

	c->next = NULL;
	c->prev = l->newest;
	*(l->newest ? &l->newest->next : &l->oldest) = c;
	l->newest = c;
	l->n++;
}

static void unlink_locked(struct chunk *c)
{
	struct list *l = list_of(c);

	*(c->prev ? &c->prev->next : &l->oldest) = c->next;
	*(c->next ? &c->next->prev : &l->newest) = c->prev;
	l->n--;
}

/* A chunk that is READY, and in no list: it becomes its list's newest, unless it is pinned. */
static void enlist_locked(struct chunk *c)
{
	if (!c->pins)
		link_newest_locked(c);
}

/* They have to ask again: the thread tells them, because the caller may have locks of others. */
static void send_back_locked(struct soda_node_store *store, struct soda_node_waiter *waiters)
{
	struct soda_node_waiter **end = &store->again;

	if (!waiters)
		return;
	while (*end)
		end = &(*end)->next;
	*end = waiters;
	pthread_cond_signal(&store->work);
}

static void count_used_locked(struct chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = bytes_of(o, index_of(c));

	c->ahead = false;
	o->news.asked += bytes;
	o->news.used += bytes;
	o->store->stats.bytes_used += bytes;
}

/* The chunk goes. True: it was brought ahead and has met nobody, and so was of no use. */
static bool end_ahead_locked(struct chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = bytes_of(o, index_of(c));

	if (!c->ahead)
		return false;
	if (take_touch(c)) {
		count_used_locked(c);
		return false;
	}
	c->ahead = false;
	o->news.unused += bytes;
	o->store->stats.useless++;
	o->store->stats.bytes_useless += bytes;
	return true;
}

static void empty_locked(struct chunk *c)
{
	struct soda_node_waiter *waiters = c->waiters;

	give_locked(c);
	c->state = EMPTY;
	c->ahead = false;
	c->waiters = NULL;
	publish(c, SODA_STORE_EMPTY);
	send_back_locked(c->object->store, waiters);
}

/* Objects */

/* Of `chunks`, and of `ahead` behind them: pages of it come as they are touched. */
static size_t private_bytes(const struct soda_node_object *o)
{
	return o->chunks_n * sizeof(*o->chunks) + AHEAD_MAX * sizeof(*o->ahead);
}

static void free_object(struct soda_node_object *o)
{
	for (unsigned i = 0; o->parts && i < o->parts_n; i++)
		if (o->parts[i] >= 0)
			close(o->parts[i]);
	if (o->map)
		munmap(o->map, soda_store_map_bytes(o->chunks_n));
	if (o->map_fd >= 0)
		close(o->map_fd);
	if (o->chunks)
		munmap(o->chunks, private_bytes(o));
	free(o->parts);
	free(o);
}

static unsigned descriptors_of(const struct soda_node_object *o)
{
	return o->parts_n + 1u;
}

static void put_user_locked(struct soda_node_store *store, struct user *u)
{
	struct user **link = &store->users;

	if (--u->objects)
		return;
	while (*link != u)
		link = &(*link)->next;
	*link = u->next;
	store->users_n--;
	free(u);
}

/* One that nobody has joined, and that has nothing.  The caller frees what is returned; NULL. */
static struct soda_node_object *drop_locked(struct soda_node_object *o)
{
	struct soda_node_object **link = &o->store->objects;

	if (o->members || o->taken)
		return NULL;
	while (*link != o)
		link = &(*link)->next;
	*link = o->next;
	o->store->stats.objects--;
	o->store->descriptors -= descriptors_of(o);
	put_user_locked(o->store, o->user);
	return o;
}

/* Whether nobody has joined it, and nobody is at work on a chunk of it. */
static bool is_idle_locked(const struct soda_node_object *o)
{
	if (o->members)
		return false;
	for (uint32_t i = 0; i < o->chunks_n; i++)
		if (o->chunks[i].state != READY && o->chunks[i].state != EMPTY)
			return false;
	return true;
}

/*
 * An object that was left behind, with all that it has, makes room for the descriptors of another
 * one.  The caller frees it; NULL: there is none.
 */
static struct soda_node_object *take_idle_locked(struct soda_node_store *store)
{
	struct soda_node_object *o = store->objects;

	while (o && !is_idle_locked(o))
		o = o->next;
	for (uint32_t i = 0; o && i < o->chunks_n; i++) {
		if (o->chunks[i].state != READY)
			continue;
		unlink_locked(&o->chunks[i]);
		end_ahead_locked(&o->chunks[i]);
		o->chunks[i].state = EMPTY;
		give_locked(&o->chunks[i]);
	}
	return o ? drop_locked(o) : NULL;
}

/* A memfd of that size for good, that processes may map for writing, as userfaultfd demands. */
static int make_memory(const char *name, uint64_t bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int ret = 0;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		ret = -errno;
	if (ret && fd >= 0)
		close(fd);
	return ret ? ret : fd;
}

/*
 * All of the map's pages, now: the agent's cgroup pays for them, and where the system has none the
 * object is refused. A store into a page that cannot be had would end the agent later, by SIGBUS.
 */
static int allocate(int fd, uint64_t bytes)
{
	int ret;

	do
		ret = fallocate(fd, 0, 0, (off_t)bytes);
	while (ret && errno == EINTR);
	return ret ? -errno : 0;
}

static int make_map(struct soda_node_object *o)
{
	uint64_t bytes = soda_store_map_bytes(o->chunks_n);
	void *p;
	int ret;

	o->map_fd = make_memory("soda-store-map", bytes);
	if (o->map_fd < 0)
		return o->map_fd;
	ret = allocate(o->map_fd, bytes);
	if (ret)
		return ret;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, o->map_fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	o->map = p;
	*o->map = (struct soda_store_map){ .magic = SODA_STORE_MAGIC,
					   .chunk_bytes = o->name.chunk_bytes,
					   .chunks = o->chunks_n,
					   .file_id = o->name.file_id,
					   .generation = o->name.generation };
	return 0;
}

static int make_parts(struct soda_node_object *o)
{
	o->parts = malloc(o->parts_n * sizeof(*o->parts));
	if (!o->parts)
		return -ENOMEM;
	for (unsigned i = 0; i < o->parts_n; i++)
		o->parts[i] = -1;
	for (unsigned i = 0; i < o->parts_n; i++) {
		uint64_t left = o->name.bytes - i * SODA_WIRE_STORE_PART;

		o->parts[i] = make_memory(
			"soda-store", left < SODA_WIRE_STORE_PART ? left : SODA_WIRE_STORE_PART);
		if (o->parts[i] < 0)
			return o->parts[i];
	}
	return 0;
}

/* Its descriptors are counted; what was left behind goes for them. -EMFILE: there is nothing. */
static int reserve_descriptors(struct soda_node_store *store, unsigned n)
{
	struct soda_node_object *idle;
	bool reserved;

	do {
		pthread_mutex_lock(&store->lock);
		reserved = store->descriptors + n <= store->descriptors_max;
		if (reserved)
			store->descriptors += n;
		idle = reserved ? NULL : take_idle_locked(store);
		pthread_mutex_unlock(&store->lock);
		if (idle)
			free_object(idle);
	} while (idle);
	return reserved ? 0 : -EMFILE;
}

static void give_descriptors(struct soda_node_store *store, unsigned n)
{
	pthread_mutex_lock(&store->lock);
	store->descriptors -= n;
	pthread_mutex_unlock(&store->lock);
}

static int make_object(struct soda_node_store *store, const struct soda_node_name *name,
		       struct soda_node_object **object_p)
{
	struct soda_node_object *o = calloc(1, sizeof(*o));
	void *chunks;
	int ret;

	if (!o)
		return -ENOMEM;
	*o = (struct soda_node_object){ .store = store, .name = *name, .map_fd = -1 };
	o->chunks_n = (uint32_t)((name->bytes + name->chunk_bytes - 1) / name->chunk_bytes);
	o->parts_n = (uint16_t)((name->bytes + SODA_WIRE_STORE_PART - 1) / SODA_WIRE_STORE_PART);
	chunks = mmap(NULL, private_bytes(o), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	o->chunks = chunks == MAP_FAILED ? NULL : chunks;
	o->ahead = o->chunks ? (uint32_t *)(o->chunks + o->chunks_n) : NULL;
	ret = reserve_descriptors(store, descriptors_of(o));
	if (ret) {
		free_object(o);
		return ret;
	}
	ret = o->chunks ? make_parts(o) : -ENOMEM;
	if (!ret)
		ret = make_map(o);
	if (!ret) {
		*object_p = o;
		return 0;
	}
	give_descriptors(store, descriptors_of(o));
	free_object(o);
	return ret;
}

/*
 * Pins.  A pinned chunk that is READY is in no list, so that nobody comes across it who looks for
 * victims.  One that is pinned while it is being evicted goes, and is asked for again.
 */

static void pin_chunk_locked(struct soda_node_object *o, uint32_t index)
{
	struct chunk *c = &o->chunks[index];

	if (c->pins++)
		return;
	o->user->pinned += bytes_of(o, index);
	o->store->stats.pinned += bytes_of(o, index);
	if (c->state == READY)
		unlink_locked(c);
}

static void unpin_chunk_locked(struct soda_node_object *o, uint32_t index)
{
	struct chunk *c = &o->chunks[index];

	if (--c->pins)
		return;
	o->user->pinned -= bytes_of(o, index);
	o->store->stats.pinned -= bytes_of(o, index);
	if (c->state == READY)
		link_newest_locked(c);
}

/* The member's pins inside of the chunks end. The caller frees what is returned. */
static struct pin *take_pins_locked(struct soda_node_object *o, uint32_t member, uint32_t first,
				    uint32_t n)
{
	struct pin **link = &o->pins, *taken = NULL, *p;

	while ((p = *link)) {
		if (p->member != member || p->first < first || p->first + p->n > first + n) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		for (uint32_t i = 0; i < p->n; i++)
			unpin_chunk_locked(o, p->first + i);
		o->pins_n--;
		o->store->stats.pins--;
		p->next = taken;
		taken = p;
	}
	return taken;
}

static int free_pins(struct pin *pins)
{
	int n = 0;

	while (pins) {
		struct pin *next = pins->next;

		free(pins);
		pins = next;
		n++;
	}
	return n;
}

/* The chunks that the range touches. False: it is not inside of the file. */
static bool cut_range(const struct soda_node_object *o, uint64_t offset, uint64_t bytes,
		      uint32_t *first_p, uint32_t *n_p)
{
	uint32_t chunk = o->name.chunk_bytes;

	if (!bytes || offset >= o->name.bytes || bytes > o->name.bytes - offset)
		return false;
	*first_p = (uint32_t)(offset / chunk);
	*n_p = (uint32_t)((offset + bytes - 1) / chunk) - *first_p + 1;
	return true;
}

/* What a user may have pinned: half of its share, and of all what others have left of the half. */
static uint64_t room_for_pins_locked(const struct soda_node_store *store, const struct user *u)
{
	uint64_t all = store->stats.capacity / PINS_PART, own = all / store->users_n;

	all -= all < store->stats.pinned ? all : store->stats.pinned;
	own -= own < u->pinned ? own : u->pinned;
	return own < all ? own : all;
}

static int refuse_pin_locked(const struct soda_node_object *o, uint64_t wanted,
			     struct soda_why *why)
{
	struct soda_node_store *store = o->store;

	store->stats.pins_refused++;
	snprintf(why->text, sizeof(why->text),
		 "the node's store: %llu KiB wanted, but only %llu more may be kept: choose less, "
		 "or start the agent with a larger --store",
		 (unsigned long long)wanted >> 10,
		 (unsigned long long)room_for_pins_locked(store, o->user) >> 10);
	return -ENOSPC;
}

static int refuse_many_locked(const struct soda_node_object *o, struct soda_why *why)
{
	o->store->stats.pins_refused++;
	snprintf(why->text, sizeof(why->text),
		 "the node's store: programs have %d ranges of the file kept already: choose fewer "
		 "and larger ones",
		 PINS_MAX);
	return -ENOSPC;
}

static bool has_pinned_locked(const struct soda_node_object *o, uint32_t member, uint32_t first,
			      uint32_t n)
{
	const struct pin *p = o->pins;

	while (p && (p->member != member || p->first > first || p->first + p->n < first + n))
		p = p->next;
	return p;
}

/* 0: *p is the object's now; 1, -ENOSPC: it is not. */
static int add_pin_locked(struct soda_node_object *o, struct pin *p, struct soda_why *why)
{
	uint64_t more = 0;

	if (has_pinned_locked(o, p->member, p->first, p->n))
		return 1;
	if (o->pins_n == PINS_MAX)
		return refuse_many_locked(o, why);
	for (uint32_t i = p->first; i < p->first + p->n; i++)
		more += o->chunks[i].pins ? 0 : bytes_of(o, i);
	if (more > room_for_pins_locked(o->store, o->user))
		return refuse_pin_locked(o, more, why);
	for (uint32_t i = p->first; i < p->first + p->n; i++)
		pin_chunk_locked(o, i);
	p->next = o->pins;
	o->pins = p;
	o->pins_n++;
	o->store->stats.pins++;
	return 0;
}

int soda_node_pin(const struct soda_node_member *member, uint64_t offset, uint64_t bytes,
		  struct soda_why *why)
{
	struct soda_node_object *o = member->object;
	uint32_t first, n;
	struct pin *p;
	int ret;

	if (!cut_range(o, offset, bytes, &first, &n)) {
		snprintf(why->text, sizeof(why->text), "the range is not inside of the file");
		return -EINVAL;
	}
	p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct pin){ .member = member->number, .first = first, .n = n };
	pthread_mutex_lock(&o->store->lock);
	ret = add_pin_locked(o, p, why);
	pthread_mutex_unlock(&o->store->lock);
	if (ret)
		free(p);
	return ret;
}

static bool lies_across(const struct pin *p, uint32_t first, uint32_t n)
{
	return p->first < first + n && first < p->first + p->n &&
	       (p->first < first || p->first + p->n > first + n);
}

int soda_node_unpin(const struct soda_node_member *member, uint64_t offset, uint64_t bytes)
{
	struct soda_node_object *o = member->object;
	struct pin *taken = NULL;
	uint32_t first, n;
	bool across = false;

	if (!cut_range(o, offset, bytes, &first, &n))
		return 0;
	pthread_mutex_lock(&o->store->lock);
	for (const struct pin *p = o->pins; p && !across; p = p->next)
		across = p->member == member->number && lies_across(p, first, n);
	if (!across)
		taken = take_pins_locked(o, member->number, first, n);
	pthread_mutex_unlock(&o->store->lock);
	return across ? -EBUSY : free_pins(taken);
}

/* Joining */

static int refuse(struct soda_node_store *store, int err, struct soda_why *why, const char *text)
{
	pthread_mutex_lock(&store->lock);
	store->stats.refused++;
	pthread_mutex_unlock(&store->lock);
	snprintf(why->text, sizeof(why->text), "the node's store: %s", text);
	return err;
}

static struct soda_node_object *find_locked(struct soda_node_store *store,
					    const struct soda_node_name *name)
{
	struct soda_node_object *o = store->objects;

	while (o && (o->name.uid != name->uid || o->name.file_id != name->file_id ||
		     o->name.generation != name->generation || o->name.bytes != name->bytes ||
		     o->name.chunk_bytes != name->chunk_bytes))
		o = o->next;
	return o;
}

/* The user's struct, with one object more; NULL: no memory. */
static struct user *get_user_locked(struct soda_node_store *store, uid_t uid)
{
	struct user *u = store->users;

	while (u && u->uid != uid)
		u = u->next;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return NULL;
		*u = (struct user){ .uid = uid, .next = store->users };
		store->users = u;
		store->users_n++;
	}
	u->objects++;
	return u;
}

/* Another thread may have shown the same one meanwhile: then *made_p stays the caller's. */
static struct soda_node_object *show_locked(struct soda_node_store *store,
					    struct soda_node_object **made_p)
{
	struct soda_node_object *o = find_locked(store, &(*made_p)->name);

	if (o)
		return o;
	o = *made_p;
	o->user = get_user_locked(store, o->name.uid);
	if (!o->user)
		return NULL;
	o->next = store->objects;
	store->objects = o;
	store->stats.objects++;
	*made_p = NULL;
	return o;
}

static bool add_member_locked(struct soda_node_object *o, struct soda_node_member *member_p)
{
	if (o->members == UINT64_MAX)
		return false;
	*member_p = (struct soda_node_member){ .object = o,
					       .number = (uint32_t)__builtin_ctzll(~o->members) };
	o->members |= 1ull << member_p->number;
	o->store->stats.members++;
	return true;
}

/* Whether it can be held at all. */
static const char *unfit(const struct soda_node_store *store, const struct soda_node_name *name)
{
	uint32_t chunk = name->chunk_bytes;
	uint64_t chunks;

	if (chunk < SODA_WIRE_PAGE || chunk > SODA_WIRE_MAX_DATA || chunk & (chunk - 1))
		return "the client's chunks are of a size that it does not take";
	if (!name->bytes || name->bytes % SODA_WIRE_PAGE ||
	    name->bytes / SODA_WIRE_STORE_PART >= PARTS_MAX || name->bytes / chunk >= UINT32_MAX)
		return "the file is of a size that it does not take";
	chunks = (name->bytes + chunk - 1) / chunk;
	if (soda_store_map_bytes((uint32_t)chunks) * MAP_PART > store->stats.capacity)
		return "the file has too many chunks for it: start the agent with a larger "
		       "--store, or the program with larger chunks";
	if (store->stats.capacity / chunk < SODA_NODE_CHUNKS_MIN)
		return "chunks of this size are too large for it: start the agent with a larger "
		       "--store, or the program with smaller chunks";
	return NULL;
}

int soda_node_join(struct soda_node_store *store, const struct soda_node_name *name,
		   struct soda_node_member *member_p, struct soda_why *why)
{
	struct soda_node_object *made = NULL, *o;
	const char *text;
	bool joined;
	int ret = 0;

	pthread_mutex_lock(&store->lock);
	text = unfit(store, name);
	o = text ? NULL : find_locked(store, name);
	joined = o && add_member_locked(o, member_p);
	pthread_mutex_unlock(&store->lock);
	if (text)
		return refuse(store, -EINVAL, why, text);
	if (joined)
		return 0;
	if (!o)
		ret = make_object(store, name, &made);
	if (ret)
		return refuse(store, ret, why, soda_strerror(ret));
	pthread_mutex_lock(&store->lock);
	o = made ? show_locked(store, &made) : find_locked(store, name);
	joined = o && add_member_locked(o, member_p);
	pthread_mutex_unlock(&store->lock);
	if (made) {
		give_descriptors(store, descriptors_of(made));
		free_object(made);
	}
	return joined ? 0 : refuse(store, -EBUSY, why, "too many have joined with this file");
}

void soda_node_leave(struct soda_node_member *member)
{
	struct soda_node_object *o = member->object;
	struct soda_node_store *store = o ? o->store : NULL;
	struct pin *pins;

	if (!o)
		return;
	member->object = NULL;
	pthread_mutex_lock(&store->lock);
	memset((void *)soda_store_member(o->map, o->chunks_n, member->number), 0, SODA_WIRE_PAGE);
	o->members &= ~(1ull << member->number);
	store->stats.members--;
	pins = take_pins_locked(o, member->number, 0, o->chunks_n);
	o = drop_locked(o);
	pthread_mutex_unlock(&store->lock);
	free_pins(pins);
	if (o)
		free_object(o);
}

void soda_node_describe(const struct soda_node_member *member, struct soda_wire_stored *stored_p)
{
	const struct soda_node_object *o = member->object;

	*stored_p = (struct soda_wire_stored){ .map_bytes = soda_store_map_bytes(o->chunks_n),
					       .chunk_bytes = o->name.chunk_bytes,
					       .chunks = o->chunks_n,
					       .parts = o->parts_n,
					       .member = (uint16_t)member->number };
}

int soda_node_descriptor(struct soda_node_object *o, uint16_t part)
{
	if (part == SODA_WIRE_STORE_MAP)
		return o->map_fd;
	return part < o->parts_n ? o->parts[part] : -EINVAL;
}

/*
 * Replacement.  Of what a program does with a chunk the store sees when it maps the chunk first;
 * after that it sees nothing until it has evicted the chunk, and somebody asks for it again.  How
 * many others have arrived meanwhile says how often it is used, and where it comes:
 *
 *   trial     a short list: what was never here, or has been away for long.  A scan passes through
 *             it.  What a second program maps there is settled, too.
 *   settled   what came back while as many others arrived as there are chunks, or fewer; the
 *             sooner, the more laps it may go round before it is a victim.
 *
 * Of what comes back late one in LATE_ONE_IN is settled all the same: of a loop over more than the
 * store a part then stays.
 *
 * Ideas: 2Q (Johnson and Shasha, VLDB 1994), CLOCK, S3-FIFO (Yang et al., SOSP 2023), bimodal
 * insertion (Qureshi et al., ISCA 2007), as in the page buffer's own policy; what is new here is
 * that the mappings of several programs are seen.
 */

static uint8_t laps_after(uint32_t away, uint64_t ready)
{
	return away < ready / 16 ? 7 : away < ready / 8 ? 3 : away < ready / 3 ? 1 : 0;
}

/* In which list the chunk belongs, which a program needs now, and for how long. */
static void judge_locked(struct chunk *c)
{
	struct user *u = c->object->user;
	uint32_t away = u->arrivals - c->left;

	c->settled = c->left && (away <= ready_of(u) || u->arrivals % LATE_ONE_IN == 0);
	c->laps = c->settled ? laps_after(away, ready_of(u)) : 0;
}

/* A program has used a chunk that was brought ahead and is in no list now: it is as any other. */
static void use_locked(struct chunk *c)
{
	count_used_locked(c);
	judge_locked(c);
}

/* The same of a READY chunk, wherever it is. */
static void use_ready_locked(struct chunk *c)
{
	if (!c->pins)
		unlink_locked(c);
	use_locked(c);
	enlist_locked(c);
}

/* The chunk is READY from now on, and in its list. */
static void arrive_locked(struct chunk *c)
{
	struct soda_node_object *o = c->object;
	struct user *u = o->user;

	take_touch(c); /* forget a touch that came when the chunk was leaving */
	c->state = READY;
	publish(c, SODA_STORE_READY);
	if (!++u->arrivals)
		u->arrivals = 1;
	if (c->ahead) {
		o->store->stats.ahead++;
		o->store->stats.bytes_ahead += bytes_of(o, index_of(c));
	}
	c->settled = false;
	c->laps = 0;
	if (c->ahead && c->waiters)
		use_locked(c);
	else if (!c->ahead)
		judge_locked(c);
	enlist_locked(c);
}

/* Eviction */

struct batch {
	struct chunk *chunks[BATCH];
	int n;
};

/* Programs' streams read ahead into trial: in a small store it is more than a tenth. */
static uint64_t trial_share(uint64_t ready)
{
	uint64_t least = ready / 4 < TRIAL_LEAST ? ready / 4 : TRIAL_LEAST;

	return ready / TRIAL_SHARE > least ? ready / TRIAL_SHARE : least;
}

/* How many chunks of each list may still be looked at: an eviction looks at each once. */
struct looks {
	uint64_t trial, settled;
};

static struct looks at_all_of(const struct user *u)
{
	return (struct looks){ u->trial.n, u->settled.n };
}

/*
 * The next that may be a victim: of trial, as long as it has more than its share, else of settled;
 * of the other one where all of that list was looked at.  NULL: all of both was.
 */
static struct chunk *next_locked(const struct user *u, struct looks *looks)
{
	bool trial = u->trial.n > trial_share(ready_of(u)) || !u->settled.n;
	uint64_t *left = trial ? &looks->trial : &looks->settled;

	if (!*left) {
		trial = !trial;
		left = trial ? &looks->trial : &looks->settled;
	}
	if (!*left)
		return NULL;
	--*left;
	return trial ? u->trial.oldest : u->settled.oldest;
}

/* Whether more than one program has joined: the stream of one alone passes what it brought itself.
 */
static bool has_company_locked(const struct soda_node_object *o)
{
	return o->members & (o->members - 1);
}

/*
 * Whether the chunk, which is in no list now, stays: another program has mapped it since it was
 * looked at last, or it has come back so soon that it may go round once more.  A program that is
 * alone maps by its stream what its own READs ahead have brought, which is one use and not two.
 */
static bool stays_locked(struct chunk *c)
{
	enum soda_store_touch touched = take_touch(c);

	if (touched && c->ahead) {
		use_locked(c);
		return true;
	}
	if (touched == SODA_STORE_TOUCHED || (touched && has_company_locked(c->object))) {
		c->settled = true;
		return true;
	}
	if (!c->laps)
		return false;
	c->laps--;
	return true;
}

/* Up to max chunks (BATCH or fewer) that are to go. any: whatever may speak for them. */
static void choose_locked(struct user *u, struct batch *b, struct looks *looks, bool any, int max)
{
	struct chunk *c;

	b->n = 0;
	while (b->n < max && (c = next_locked(u, looks))) {
		unlink_locked(c);
		if (!any && stays_locked(c)) {
			link_newest_locked(c);
			continue;
		}
		c->state = CHOSEN;
		c->held = false;
		publish(c, SODA_STORE_EMPTY);
		b->chunks[b->n++] = c;
	}
}

static void mark_held_of(struct soda_node_object *o, uint32_t member)
{
	_Atomic uint32_t *ring = soda_store_member(o->map, o->chunks_n, member);

	for (uint32_t i = 0; i < SODA_STORE_RINGS * SODA_STORE_LAST; i++) {
		uint32_t at = atomic_load(&ring[i]); /* seq_cst: see store_map.h */

		if (at && at <= o->chunks_n && o->chunks[at - 1].state == CHOSEN)
			o->chunks[at - 1].held = true;
	}
}

/* Which of the chosen are among some thread's last ones. */
static void mark_held_locked(struct batch *b)
{
	const struct soda_node_object *done = NULL;

	for (int i = 0; i < b->n; i++) {
		struct soda_node_object *o = b->chunks[i]->object;

		if (o == done)
			continue;
		for (uint32_t m = 0; m < SODA_STORE_MEMBERS; m++)
			if (o->members >> m & 1)
				mark_held_of(o, m);
		done = o;
	}
}

/* Those that are held stay; the others are EVICTING. */
static void keep_held_locked(struct soda_node_store *store, struct batch *b)
{
	int n = 0;

	for (int i = 0; i < b->n; i++) {
		struct chunk *c = b->chunks[i];

		if (c->held) {
			store->stats.held++;
			c->state = READY;
			publish(c, SODA_STORE_READY);
			link_newest_locked(c);
			continue;
		}
		c->state = EVICTING;
		c->generation++;
		publish(c, SODA_STORE_EMPTY);
		b->chunks[n++] = c;
	}
	b->n = n;
}

/*
 * Whose chunks go: the asker's, if it has its share of the budget; else those of the user that has
 * most.
 */
static struct user *victim_locked(const struct soda_node_store *store, struct user *asker)
{
	struct user *most = asker;

	if (ready_of(asker) && asker->used >= store->stats.capacity / store->users_n)
		return asker;
	for (struct user *u = store->users; u; u = u->next)
		if (ready_of(u) && (!ready_of(most) || u->used > most->used))
			most = u;
	return most;
}

/* Of what nobody holds a batch, if there is any. any: as in choose_locked. */
static void pick_free_locked(struct soda_node_store *store, struct user *u, struct batch *b,
			     bool any)
{
	struct looks looks = at_all_of(u);

	b->n = 0;
	while (!b->n && (looks.trial || looks.settled)) {
		choose_locked(u, b, &looks, any, BATCH);
		mark_held_locked(b);
		keep_held_locked(store, b);
	}
}

/* What nobody holds, nor anything else speaks for; what nobody holds; the oldest, held or not. */
static void pick_locked(struct soda_node_store *store, struct user *asker, struct batch *b)
{
	struct user *u = victim_locked(store, asker);
	struct looks looks;

	pick_free_locked(store, u, b, false);
	if (!b->n)
		pick_free_locked(store, u, b, true);
	if (b->n)
		return;
	looks = at_all_of(u);
	choose_locked(u, b, &looks, true, 1);
	store->stats.forced += (uint64_t)b->n;
	keep_held_locked(store, b);
}

/* How many from the i-th on lie in a row in one memfd. */
static int run_at(const struct batch *b, int i)
{
	int n = 1;

	while (i + n < b->n && b->chunks[i + n] == b->chunks[i + n - 1] + 1 &&
	       b->chunks[i + n]->object == b->chunks[i]->object &&
	       part_of(b->chunks[i + n]) == part_of(b->chunks[i]))
		n++;
	return n;
}

/* Without the lock. How many were. */
static int punch(struct soda_node_store *store, struct batch *b, int *errs)
{
	int punched = 0;

	for (int i = 0, n; i < b->n; i += n) {
		const struct chunk *last;
		uint64_t at = offset_of(b->chunks[i]);
		int ret;

		n = run_at(b, i);
		last = b->chunks[i + n - 1];
		ret = store->memory->punch(part_of(b->chunks[i]), at % SODA_WIRE_STORE_PART,
					   offset_of(last) +
						   bytes_of(last->object, index_of(last)) - at);
		for (int k = i; k < i + n; k++)
			errs[k] = ret;
		punched += ret ? 0 : n;
		if (ret)
			soda_log_error("the node's store cannot give memory back: %s",
				       soda_strerror(ret));
	}
	return punched;
}

static struct soda_node_object *settle_evicted_locked(struct soda_node_store *store,
						      struct chunk *c, int err)
{
	struct soda_node_waiter *waiters = c->waiters;

	if (!err) {
		store->stats.evictions++;
		store->stats.bytes_evicted += bytes_of(c->object, index_of(c));
		if (!end_ahead_locked(c)) /* else it does not come back: nobody had it */
			c->left = c->object->user->arrivals;
		empty_locked(c);
		return drop_locked(c->object);
	}
	c->state = READY;
	c->waiters = NULL;
	enlist_locked(c);
	publish(c, SODA_STORE_READY);
	send_back_locked(store, waiters);
	return NULL;
}

/* A batch goes. How many did. */
static int evict(struct soda_node_store *store, struct user *asker)
{
	struct soda_node_object *dead = NULL, *o;
	struct batch b;
	int errs[BATCH], n;

	pthread_mutex_lock(&store->lock);
	pick_locked(store, asker, &b);
	pthread_mutex_unlock(&store->lock);
	n = punch(store, &b, errs);
	pthread_mutex_lock(&store->lock);
	for (int i = 0; i < b.n; i++) {
		o = settle_evicted_locked(store, b.chunks[i], errs[i]);
		if (!o)
			continue;
		o->next = dead;
		dead = o;
	}
	pthread_mutex_unlock(&store->lock);
	while (dead) {
		o = dead->next;
		free_object(dead);
		dead = o;
	}
	return n;
}

static bool is_over(struct soda_node_store *store)
{
	bool over;

	pthread_mutex_lock(&store->lock);
	over = store->stats.used > store->stats.capacity;
	pthread_mutex_unlock(&store->lock);
	return over;
}

/* Where all that is there is being filled, the budget is exceeded by that. */
static void make_room(struct soda_node_store *store, struct user *asker)
{
	while (is_over(store) && evict(store, asker))
		;
}

/* Asking and filling */

uint32_t soda_node_chunk(const struct soda_node_object *o, uint64_t offset, uint64_t bytes)
{
	uint64_t index = offset / o->name.chunk_bytes;

	if (offset % o->name.chunk_bytes || index >= o->chunks_n ||
	    bytes != bytes_of(o, (uint32_t)index))
		return UINT32_MAX;
	return (uint32_t)index;
}

static void begin_locked(struct soda_node_object *o, struct chunk *c)
{
	c->object = o;
	c->state = FILLING;
	take_locked(c);
	publish(c, SODA_STORE_FILLING);
}

static enum soda_node_answer ask_locked(struct soda_node_object *o, struct chunk *c,
					struct soda_node_waiter *w)
{
	switch ((enum chunk_state)c->state) {
	case READY:
		o->store->stats.hits++;
		if (c->ahead)
			use_ready_locked(c);
		return SODA_NODE_READY;
	case EMPTY:
		begin_locked(o, c);
		o->news.asked += bytes_of(o, index_of(c));
		return SODA_NODE_FILL;
	default:
		o->store->stats.waits++;
		w->next = c->waiters;
		c->waiters = w;
		return SODA_NODE_WAITS;
	}
}

enum soda_node_answer soda_node_ask(struct soda_node_object *o, uint32_t chunk,
				    struct soda_node_waiter *w)
{
	enum soda_node_answer answer;

	pthread_mutex_lock(&o->store->lock);
	answer = ask_locked(o, &o->chunks[chunk], w);
	pthread_mutex_unlock(&o->store->lock);
	if (answer == SODA_NODE_FILL)
		make_room(o->store, o->user);
	return answer;
}

/* The system has less memory than the budget says: so has the store from now on. */
static void settle_for_less(struct soda_node_store *store)
{
	bool tell;
	uint64_t capacity;

	pthread_mutex_lock(&store->lock);
	store->stats.limited++;
	if (store->stats.capacity > store->stats.used)
		store->stats.capacity = store->stats.used;
	store->stats.capacity -= store->stats.capacity / 16;
	if (store->stats.capacity < store->stats.pinned + LEAST)
		store->stats.capacity = store->stats.pinned + LEAST;
	capacity = store->stats.capacity;
	tell = !store->told_limit;
	store->told_limit = true;
	pthread_mutex_unlock(&store->lock);
	if (tell)
		soda_log_warning("the node's store goes on with %llu MiB, because the system gives "
				 "no memory for more: choose a smaller --store, or give the agent "
				 "more",
				 (unsigned long long)capacity >> 20);
}

static int write_chunk(struct soda_node_object *o, uint32_t index, const void *data)
{
	struct soda_node_store *store = o->store;
	uint64_t at = index * (uint64_t)o->name.chunk_bytes % SODA_WIRE_STORE_PART;
	int ret = -ENOMEM;

	for (int i = 0; i < WRITES_MAX; i++) {
		ret = store->memory->write(part_of(&o->chunks[index]), data, bytes_of(o, index),
					   at);
		if (ret != -ENOMEM && ret != -ENOSPC)
			break;
		settle_for_less(store);
		if (!evict(store, o->user))
			break;
	}
	return ret;
}

/* Counted, and said once. */
static void count_passed(struct soda_node_store *store, int err)
{
	bool tell;

	pthread_mutex_lock(&store->lock);
	store->stats.passed++;
	tell = !store->told_passed;
	store->told_passed = true;
	pthread_mutex_unlock(&store->lock);
	if (tell)
		soda_log_warning("the node's store cannot keep what its programs read (%s): each "
				 "keeps as much as its own page buffer has; give the agent more "
				 "memory, or choose a smaller --store",
				 soda_strerror(err));
}

/* Pages of a fill that failed half-way must not be taken for what is there. */
static void forget_part(struct soda_node_object *o, uint32_t index)
{
	uint64_t at = index * (uint64_t)o->name.chunk_bytes % SODA_WIRE_STORE_PART;
	int ret = o->store->memory->punch(part_of(&o->chunks[index]), at, bytes_of(o, index));

	if (ret)
		soda_log_error("the node's store cannot give memory back: %s", soda_strerror(ret));
}

int soda_node_filled(struct soda_node_object *o, uint32_t chunk, const void *data, int err)
{
	struct soda_node_store *store = o->store;
	struct chunk *c = &o->chunks[chunk];
	struct soda_node_waiter *waiters = NULL;
	int ret = err ? err : write_chunk(o, chunk, data);

	if (ret && !err) {
		forget_part(o, chunk);
		count_passed(store, ret);
	}
	pthread_mutex_lock(&store->lock);
	if (ret) {
		store->stats.fills_failed++;
		empty_locked(c);
	} else {
		store->stats.fills++;
		store->stats.bytes_filled += bytes_of(o, chunk);
		waiters = c->waiters;
		arrive_locked(c);
		c->waiters = NULL;
	}
	pthread_mutex_unlock(&store->lock);
	while (waiters) {
		struct soda_node_waiter *next = waiters->next;

		waiters->told(waiters, true);
		waiters = next;
	}
	return ret;
}

/* Reading ahead */

uint64_t soda_node_lacks(struct soda_node_object *o, uint64_t offset, uint64_t bytes)
{
	uint64_t lacks = 0;
	uint32_t first, n;

	if (!cut_range(o, offset, bytes, &first, &n))
		return 0;
	pthread_mutex_lock(&o->store->lock);
	for (uint32_t i = first; i < first + n; i++)
		lacks += o->chunks[i].state == EMPTY ? bytes_of(o, i) : 0;
	pthread_mutex_unlock(&o->store->lock);
	return lacks;
}

static void push_ahead_locked(struct chunk *c)
{
	struct soda_node_object *o = c->object;

	c->ringed = true;
	o->ahead[(o->ahead_first + o->ahead_n++) % AHEAD_MAX] = index_of(c);
}

static bool claim_locked(struct soda_node_object *o, uint32_t index)
{
	struct chunk *c = &o->chunks[index];

	if (c->state != EMPTY || (!c->ringed && o->ahead_n == AHEAD_MAX))
		return false;
	begin_locked(o, c);
	c->ahead = true;
	/* It may be there from an earlier time that nobody has looked at since. */
	if (!c->ringed)
		push_ahead_locked(c);
	return true;
}

bool soda_node_claim(struct soda_node_object *o, uint32_t chunk)
{
	bool claimed;

	pthread_mutex_lock(&o->store->lock);
	claimed = claim_locked(o, chunk);
	pthread_mutex_unlock(&o->store->lock);
	if (claimed)
		make_room(o->store, o->user);
	return claimed;
}

/* The oldest of the ring, which leaves it. */
static struct chunk *shift_ahead_locked(struct soda_node_object *o)
{
	struct chunk *c = &o->chunks[o->ahead[o->ahead_first]];

	o->ahead_first = (o->ahead_first + 1) % AHEAD_MAX;
	o->ahead_n--;
	c->ringed = false;
	return c;
}

/* What neither was touched nor has gone goes to the ring's end. */
static uint32_t harvest_locked(struct soda_node_object *o, uint64_t *offsets, uint32_t max)
{
	uint32_t left = o->ahead_n < AHEAD_LOOK ? o->ahead_n : AHEAD_LOOK, n = 0;

	for (; left && n < max; left--) {
		struct chunk *c = shift_ahead_locked(o);

		if (c->ahead && c->state == READY && take_touch(c)) {
			use_ready_locked(c);
			offsets[n++] = offset_of(c);
		} else if (c->ahead) {
			push_ahead_locked(c);
		}
	}
	return n;
}

uint32_t soda_node_touched(struct soda_node_object *o, uint64_t *offsets, uint32_t max)
{
	uint32_t n;

	pthread_mutex_lock(&o->store->lock);
	n = harvest_locked(o, offsets, max);
	pthread_mutex_unlock(&o->store->lock);
	return n;
}

void soda_node_take_news(struct soda_node_object *o, struct soda_node_news *news_p)
{
	pthread_mutex_lock(&o->store->lock);
	*news_p = o->news;
	o->news = (struct soda_node_news){ 0 };
	pthread_mutex_unlock(&o->store->lock);
}

/* Start, end */

static void *tell_again(void *arg)
{
	struct soda_node_store *store = arg;

	pthread_mutex_lock(&store->lock);
	while (!store->stop || store->again) {
		struct soda_node_waiter *w = store->again;

		if (!w) {
			pthread_cond_wait(&store->work, &store->lock);
			continue;
		}
		store->again = w->next;
		pthread_mutex_unlock(&store->lock);
		w->told(w, false);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* Connections need the others. */
static unsigned most_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur > DESCRIPTORS_MAX * 4)
		return DESCRIPTORS_MAX;
	return (unsigned)limit.rlim_cur / 4;
}

int soda_node_store_create(uint64_t capacity, const struct soda_node_memory *memory,
			   struct soda_node_store **store_p)
{
	struct soda_node_store *store;
	int ret;

	if (capacity < SODA_NODE_MIN)
		return -EINVAL;
	store = calloc(1, sizeof(*store));
	if (!store)
		return -ENOMEM;
	store->memory = memory;
	store->stats.capacity = capacity;
	store->descriptors_max = most_descriptors();
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->work, NULL);
	ret = -pthread_create(&store->thread, NULL, tell_again, store);
	if (ret) {
		pthread_cond_destroy(&store->work);
		pthread_mutex_destroy(&store->lock);
		free(store);
		return ret;
	}
	pthread_setname_np(store->thread, "soda-store");
	*store_p = store;
	return 0;
}

void soda_node_store_destroy(struct soda_node_store *store)
{
	struct user *u;

	if (!store)
		return;
	pthread_mutex_lock(&store->lock);
	store->stop = true;
	pthread_cond_signal(&store->work);
	pthread_mutex_unlock(&store->lock);
	soda_wait_join(store->thread, "the thread of the node's store to end");
	while (store->objects) {
		struct soda_node_object *o = store->objects;

		store->objects = o->next;
		free_object(o);
	}
	while ((u = store->users)) {
		store->users = u->next;
		free(u);
	}
	pthread_cond_destroy(&store->work);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

/* What has been touched and not been looked at is used, too; the ring has each chunk once. */
static uint64_t touched_yet_locked(const struct soda_node_object *o)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < o->ahead_n; i++) {
		const struct chunk *c = &o->chunks[o->ahead[(o->ahead_first + i) % AHEAD_MAX]];

		if (c->ahead && c->state == READY && is_touched(c))
			bytes += bytes_of(o, index_of(c));
	}
	return bytes;
}

void soda_node_stats(struct soda_node_store *store, struct soda_node_stats *stats_p)
{
	pthread_mutex_lock(&store->lock);
	*stats_p = store->stats;
	for (const struct soda_node_object *o = store->objects; o; o = o->next)
		stats_p->bytes_used += touched_yet_locked(o);
	stats_p->pinned_most = store->stats.capacity / PINS_PART;
	pthread_mutex_unlock(&store->lock);
}

/* Accounts */

struct sums {
	uint64_t used, ready, pinned; /* bytes; chunks that belong into lists; bytes */
	uint64_t pins, pins_of_chunks;
	uint32_t taken, ringed; /* of one object */
};

/* What holds of a chunk alone, while nobody has the lock. */
static const char *wrong_of_chunk(const struct soda_node_object *o, const struct chunk *c)
{
	if (c->state == CHOSEN)
		return "a chunk is chosen, and no eviction is under way";
	if (c->waiters && c->state != FILLING && c->state != EVICTING)
		return "a thread waits for a chunk that nobody fills or evicts";
	if (c->state != EMPTY && c->object != o)
		return "a chunk belongs to another object";
	if (c->ahead && !c->ringed)
		return "a chunk that was brought ahead is nowhere looked at";
	return NULL;
}

static const char *sum_object(const struct soda_node_object *o, struct sums *s)
{
	const char *wrong = NULL;

	s->taken = s->ringed = 0;
	for (uint32_t i = 0; i < o->chunks_n; i++) {
		const struct chunk *c = &o->chunks[i];

		wrong = wrong ? wrong : wrong_of_chunk(o, c);
		s->taken += c->state != EMPTY;
		s->used += c->state != EMPTY ? bytes_of(o, i) : 0;
		s->ready += c->state == READY && !c->pins;
		s->pinned += c->pins ? bytes_of(o, i) : 0;
		s->pins_of_chunks += c->pins;
		s->ringed += c->ringed;
	}
	for (const struct pin *p = o->pins; p; p = p->next)
		s->pins += p->n;
	return wrong;
}

/* How many chunks the list has; UINT64_MAX: one does not belong there. */
static uint64_t count_list(const struct user *u, const struct list *l)
{
	uint64_t n = 0;

	for (const struct chunk *c = l->oldest; c; c = c->next) {
		if (c->state != READY || c->pins || c->object->user != u || list_of(c) != l)
			return UINT64_MAX;
		n++;
	}
	return n == l->n ? n : UINT64_MAX;
}

static const char *check_user_locked(const struct soda_node_store *store, const struct user *u,
				     struct sums *all)
{
	struct sums s = { .used = 0 };
	unsigned objects = 0;

	for (const struct soda_node_object *o = store->objects; o; o = o->next) {
		const char *wrong;

		if (o->user != u)
			continue;
		objects++;
		wrong = sum_object(o, &s);
		if (wrong)
			return wrong;
		if (s.taken != o->taken)
			return "an object counts other chunks than are taken";
		if (s.ringed != o->ahead_n)
			return "an object looks at other chunks than are in its ring, or at one "
			       "twice";
	}
	if (count_list(u, &u->trial) == UINT64_MAX || count_list(u, &u->settled) == UINT64_MAX)
		return "a list has a chunk that does not belong there, or counts wrong";
	all->used += s.used;
	all->pinned += s.pinned;
	return s.used != u->used	    ? "a user counts other bytes than its chunks have"
	       : s.ready != ready_of(u)	    ? "READY chunks are not those of the list"
	       : objects != u->objects	    ? "a user counts other objects than there are"
	       : s.pinned != u->pinned	    ? "a user counts other bytes than are pinned"
	       : s.pins != s.pins_of_chunks ? "chunks are pinned by other ranges than there are"
					    : NULL;
}

/* Objects, their members and descriptors. */
static const char *check_objects_locked(const struct soda_node_store *store)
{
	uint64_t objects = 0, members = 0;
	unsigned descriptors = 0;

	for (const struct soda_node_object *o = store->objects; o; o = o->next) {
		objects++;
		members += (unsigned)__builtin_popcountll(o->members);
		descriptors += descriptors_of(o);
		if (!o->members && !o->taken)
			return "an object has neither members nor chunks, and was not freed";
	}
	return objects != store->stats.objects	 ? "the store counts other objects than there are"
	       : members != store->stats.members ? "the store counts other members than there are"
	       : descriptors > store->descriptors
		       ? "the store counts fewer descriptors than its objects have"
		       : NULL;
}

/* Also unlocks. */
static int check_locked(struct soda_node_store *store, struct soda_why *why)
{
	const char *wrong = check_objects_locked(store);
	struct sums all = { .used = 0 };

	for (const struct user *u = store->users; u && !wrong; u = u->next)
		wrong = check_user_locked(store, u, &all);
	if (!wrong && (all.used != store->stats.used || all.pinned != store->stats.pinned))
		wrong = "the store counts other bytes than its users";
	pthread_mutex_unlock(&store->lock);
	if (wrong)
		snprintf(why->text, sizeof(why->text), "%s", wrong);
	return wrong ? -EUCLEAN : 0;
}

int soda_node_check(struct soda_node_store *store, struct soda_why *why)
{
	pthread_mutex_lock(&store->lock);
	return check_locked(store, why);
}

int soda_node_check_now(struct soda_node_store *store, struct soda_why *why)
{
	return pthread_mutex_trylock(&store->lock) ? -EBUSY : check_locked(store, why);
}
