/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What of the server's memory a client may reach: protection domains, one a client, so
 * that a key is worth nothing to anybody else, and registrations of whole regions, and of
 * parts of them in a static cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "transport/verbs/server/server.h"

struct soda_verbs_registration {
	struct soda_verbs_registration *next;
	uint16_t region_id;
	bool part; /* of the region, from this offset on */
	uint64_t offset;
	void *memory;
	uint64_t bytes;
	struct ibv_mr *mr;
};

/* Clients */

static struct soda_verbs_client *find_locked(struct soda_verbs_listener *l, uint64_t id,
					     const struct ibv_context *device)
{
	struct soda_verbs_client *c = l->clients;

	while (c && (c->id != id || c->pd->context != device))
		c = c->next;
	return c;
}

static struct soda_verbs_client *make_locked(struct soda_verbs_listener *l, uint64_t id,
					     struct ibv_context *device)
{
	struct soda_verbs_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->pd = ibv_alloc_pd(device);
	if (!c->pd) {
		free(c);
		return NULL;
	}
	c->id = id;
	c->next = l->clients;
	l->clients = c;
	return c;
}

int soda_verbs_client_get(struct soda_verbs_listener *l, uint64_t id, struct ibv_context *device,
			  struct soda_verbs_client **client_p)
{
	struct soda_verbs_client *c;

	pthread_mutex_lock(&l->clients_lock);
	c = find_locked(l, id, device);
	if (!c)
		c = make_locked(l, id, device);
	if (c)
		c->refs++;
	pthread_mutex_unlock(&l->clients_lock);
	*client_p = c;
	return c ? 0 : -ENOMEM;
}

void soda_verbs_client_put(struct soda_verbs_listener *l, struct soda_verbs_client *client)
{
	struct soda_verbs_client **at = &l->clients;

	if (!client)
		return;
	pthread_mutex_lock(&l->clients_lock);
	if (--client->refs == 0) {
		while (*at != client)
			at = &(*at)->next;
		*at = client->next;
		ibv_dealloc_pd(client->pd);
		free(client);
	}
	pthread_mutex_unlock(&l->clients_lock);
}

/* Keys */

static void *map_share(const struct soda_share *share, uint64_t bytes)
{
	int prot = PROT_READ | (share->writable ? PROT_WRITE : 0);
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, share->fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	return p;
}

/*
 * Kernels before 6.2 pin pages for writing whatever the access asked for, and refuse what
 * is mapped read-only.  A second one of the daemon's mapping, made before the memory was
 * sealed, may be written to, by this process; the client's key still only reads.
 */
static void *map_again(const struct soda_share *share, uint64_t bytes)
{
	void *p = share->memory ? mremap(share->memory, 0, bytes, MREMAP_MAYMOVE) : MAP_FAILED;

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	if (mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0)
		return p;
	munmap(p, bytes);
	return NULL;
}

static void end(struct soda_verbs_registration *r)
{
	soda_verbs_unregister(r->mr);
	munmap(r->memory, r->bytes);
	free(r);
}

static int make(struct ibv_pd *pd, const struct soda_share *share,
		struct soda_verbs_registration *r, struct soda_why *why)
{
	int access = IBV_ACCESS_REMOTE_READ, ret;

	if (share->writable)
		access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	r->bytes = share->bytes + share->dirty_bytes;
	r->memory = map_share(share, r->bytes);
	if (!r->memory) {
		ret = -errno;
		soda_why_set(why, "the server cannot map the region once more: %s",
			     soda_strerror(ret));
		return ret;
	}
	ret = soda_verbs_register(pd, r->memory, r->bytes, access, &r->mr, why);
	if (ret == -EFAULT && !share->writable) {
		munmap(r->memory, r->bytes);
		r->memory = map_again(share, r->bytes);
		if (r->memory)
			ret = soda_verbs_register(pd, r->memory, r->bytes, access, &r->mr, why);
	}
	if (ret < 0 && r->memory)
		munmap(r->memory, r->bytes);
	return ret;
}

/* Registered, and not yet in the list. */
static int create(struct ibv_pd *pd, uint16_t region_id, const struct soda_share *share, bool part,
		  struct soda_verbs_registration **r_p, struct soda_why *why)
{
	struct soda_verbs_registration *r = calloc(1, sizeof(*r));
	int ret = r ? make(pd, share, r, why) : -ENOMEM;

	if (ret < 0) {
		free(r);
		return ret;
	}
	r->region_id = region_id;
	r->part = part;
	r->offset = share->offset;
	*r_p = r;
	return 0;
}

static void insert(struct soda_verbs_keys *keys, struct soda_verbs_registration *r)
{
	r->next = keys->list;
	keys->list = r;
}

int soda_verbs_keys_add(struct soda_verbs_keys *keys, struct ibv_pd *pd, uint16_t region_id,
			const struct soda_share *share, struct soda_wire_key *key_p,
			struct soda_why *why)
{
	struct soda_verbs_registration *r;
	int ret = create(pd, region_id, share, false, &r, why);

	if (ret < 0)
		return ret;
	soda_verbs_keys_drop(keys, region_id);
	insert(keys, r);
	*key_p = (struct soda_wire_key){ .rkey = r->mr->rkey,
					 .dirty_at = share->dirty_bytes ? share->bytes : 0 };
	return 0;
}

int soda_verbs_keys_add_part(struct soda_verbs_keys *keys, struct ibv_pd *pd, uint16_t region_id,
			     const struct soda_share *share, struct soda_wire_key *key_p,
			     struct soda_why *why)
{
	struct soda_verbs_registration *r = keys->list;
	int ret;

	while (r && !(r->part && r->region_id == region_id && r->offset == share->offset &&
		      r->bytes == share->bytes))
		r = r->next;
	if (!r) {
		ret = create(pd, region_id, share, true, &r, why);
		if (ret < 0)
			return ret;
		insert(keys, r);
	}
	*key_p = (struct soda_wire_key){ .rkey = r->mr->rkey };
	return 0;
}

static bool within(const struct soda_verbs_registration *r, uint64_t offset, uint64_t bytes)
{
	return r->offset >= offset && r->bytes <= bytes && r->offset - offset <= bytes - r->bytes;
}

static void drop(struct soda_verbs_keys *keys, uint16_t region_id, bool parts, uint64_t offset,
		 uint64_t bytes)
{
	struct soda_verbs_registration **at = &keys->list, *r;

	while ((r = *at)) {
		if (r->region_id != region_id ||
		    (parts && !(r->part && within(r, offset, bytes)))) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		end(r);
	}
}

void soda_verbs_keys_drop(struct soda_verbs_keys *keys, uint16_t region_id)
{
	drop(keys, region_id, false, 0, 0);
}

void soda_verbs_keys_drop_parts(struct soda_verbs_keys *keys, uint16_t region_id, uint64_t offset,
				uint64_t bytes)
{
	drop(keys, region_id, true, offset, bytes);
}

void soda_verbs_keys_drop_all(struct soda_verbs_keys *keys)
{
	while (keys->list)
		soda_verbs_keys_drop(keys, keys->list->region_id);
}
