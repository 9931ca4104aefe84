/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that the store has: each a map and memfds that processes map, made when the first one
 * joins, gone when nobody has joined and nothing is left of it.
 */
#include "dpu_agent/store/node_store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

/* In the simulation stores have few chunks. */
enum {
#ifdef SODA_SIMULATION
	MAP_PART = 0,
#else
	MAP_PART = 4, /* a file whose map would take more than this part of it is not taken */
#endif
	PARTS_MAX = SODA_WIRE_STORE_MAP,
};

/* Of `chunks`, and of `ahead` behind them: pages of it come as they are touched. */
static size_t private_bytes(const struct soda_node_object *o)
{
	return o->chunks_n * sizeof(*o->chunks) + SODA_NODE_AHEAD_MAX * sizeof(*o->ahead);
}

static uint64_t part_bytes(const struct soda_node_object *o, unsigned part)
{
	uint64_t left = o->name.bytes - part * SODA_WIRE_STORE_PART;

	return left < SODA_WIRE_STORE_PART ? left : SODA_WIRE_STORE_PART;
}

void soda_node_free_object(struct soda_node_object *o)
{
	for (unsigned i = 0; o->parts && i < o->parts_n; i++) {
		soda_node_unmap_view(o->parts[i].view, part_bytes(o, i));
		if (o->parts[i].fd >= 0)
			close(o->parts[i].fd);
	}
	if (o->map)
		munmap(o->map, soda_store_map_bytes(o->chunks_n));
	if (o->map_fd >= 0)
		close(o->map_fd);
	if (o->chunks)
		munmap(o->chunks, private_bytes(o));
	free(o->parts);
	free(o);
}

static void put_user_locked(struct soda_node_store *store, struct soda_node_user *u)
{
	struct soda_node_user **link = &store->users;

	if (--u->objects)
		return;
	while (*link != u)
		link = &(*link)->next;
	*link = u->next;
	store->users_n--;
	free(u);
}

struct soda_node_object *soda_node_drop_locked(struct soda_node_object *o)
{
	struct soda_node_object **link = &o->store->objects;

	if (o->members || o->taken)
		return NULL;
	while (*link != o)
		link = &(*link)->next;
	*link = o->next;
	o->store->stats.objects--;
	o->store->descriptors -= soda_node_descriptors(o);
	put_user_locked(o->store, o->user);
	return o;
}

/* Whether nobody has joined it, and nobody is at work on a chunk of it. */
static bool is_idle_locked(const struct soda_node_object *o)
{
	if (o->members)
		return false;
	for (uint32_t i = 0; i < o->chunks_n; i++)
		if (o->chunks[i].state != SODA_NODE_CHUNK_READY &&
		    o->chunks[i].state != SODA_NODE_CHUNK_EMPTY)
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
		if (o->chunks[i].state != SODA_NODE_CHUNK_READY)
			continue;
		soda_node_unlink_locked(&o->chunks[i]);
		soda_node_end_ahead_locked(&o->chunks[i]);
		o->chunks[i].state = SODA_NODE_CHUNK_EMPTY;
		soda_node_give_locked(&o->chunks[i]);
	}
	return o ? soda_node_drop_locked(o) : NULL;
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
	bool folios = soda_node_folios_allowed(SODA_NODE_FOLIOS, o->name.chunk_bytes);

	o->parts = malloc(o->parts_n * sizeof(*o->parts));
	if (!o->parts)
		return -ENOMEM;
	for (unsigned i = 0; i < o->parts_n; i++)
		o->parts[i] = (struct soda_node_part){ .fd = -1 };
	for (unsigned i = 0; i < o->parts_n; i++) {
		struct soda_node_part *part = &o->parts[i];

		part->fd = make_memory("soda-store", part_bytes(o, i));
		if (part->fd < 0)
			return part->fd;
		if (folios)
			part->view =
				soda_node_map_view(part->fd, part_bytes(o, i), o->name.chunk_bytes);
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
			soda_node_free_object(idle);
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
	ret = reserve_descriptors(store, soda_node_descriptors(o));
	if (ret) {
		soda_node_free_object(o);
		return ret;
	}
	ret = o->chunks ? make_parts(o) : -ENOMEM;
	if (!ret)
		ret = make_map(o);
	if (!ret) {
		*object_p = o;
		return 0;
	}
	give_descriptors(store, soda_node_descriptors(o));
	soda_node_free_object(o);
	return ret;
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

	while (o && (o->name.uid != name->uid || o->name.tenant != name->tenant ||
		     o->name.server != name->server || o->name.file_id != name->file_id ||
		     o->name.generation != name->generation || o->name.bytes != name->bytes ||
		     o->name.chunk_bytes != name->chunk_bytes))
		o = o->next;
	return o;
}

/* The user's struct, with one object more; NULL: no memory. */
static struct soda_node_user *get_user_locked(struct soda_node_store *store,
					      const struct soda_node_name *name)
{
	struct soda_node_user *u = store->users;

	while (u && (u->uid != name->uid || u->tenant != name->tenant))
		u = u->next;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return NULL;
		*u = (struct soda_node_user){ .uid = name->uid,
					      .tenant = name->tenant,
					      .next = store->users };
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
	o->user = get_user_locked(store, &o->name);
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
	o->joined[member_p->number] = 1;
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
		give_descriptors(store, soda_node_descriptors(made));
		soda_node_free_object(made);
	}
	return joined ? 0 : refuse(store, -EBUSY, why, "too many have joined with this file");
}

void soda_node_join_again(const struct soda_node_member *member, struct soda_node_member *again_p)
{
	struct soda_node_object *o = member->object;

	*again_p = *member;
	pthread_mutex_lock(&o->store->lock);
	o->joined[member->number]++;
	pthread_mutex_unlock(&o->store->lock);
}

void soda_node_leave(struct soda_node_member *member)
{
	struct soda_node_object *o = member->object;
	struct soda_node_store *store = o ? o->store : NULL;
	struct soda_node_pin *pins;

	if (!o)
		return;
	member->object = NULL;
	pthread_mutex_lock(&store->lock);
	if (--o->joined[member->number]) {
		pthread_mutex_unlock(&store->lock);
		return;
	}
	memset((void *)soda_store_member(o->map, o->chunks_n, member->number), 0, SODA_WIRE_PAGE);
	o->members &= ~(1ull << member->number);
	store->stats.members--;
	pins = soda_node_take_pins_locked(o, member->number, 0, o->chunks_n);
	o = soda_node_drop_locked(o);
	pthread_mutex_unlock(&store->lock);
	soda_node_free_pins(pins);
	if (o)
		soda_node_free_object(o);
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
	return part < o->parts_n ? o->parts[part].fd : -EINVAL;
}
