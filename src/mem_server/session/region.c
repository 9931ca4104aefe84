/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's regions: their slots, the data path, opening, closing, writing back. */
#include "mem_server/session/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"
#include "mem_server/files/content.h"
#include "mem_server/files/published.h"
#include "mem_server/store/handed.h"

#define SLOTS 65536u
#define OPEN 0x80000000u /* flag of a slot's state */
#define MODES (SODA_WIRE_READ_ONLY | SODA_WIRE_WRITABLE | SODA_WIRE_PRIVATE)
#define SEALS (SODA_WIRE_SEALED | SODA_WIRE_SEALED_BY_AGENT)

/* Slots, and the data path */

/* The slot's region, or NULL. The set's control lock is held. */
static struct soda_client_region *region_of(const struct soda_region_slot *slot)
{
	return atomic_load(&slot->state) & OPEN ? slot->region : NULL;
}

static void open_slot(struct soda_region_slot *slot, struct soda_client_region *region)
{
	slot->region = region;
	/* release: pairs with the acquire in take() */
	atomic_fetch_or_explicit(&slot->state, OPEN, memory_order_release);
}

/* Drop a hold. */
static void drop(struct soda_region_set *set, struct soda_region_slot *slot)
{
	/* release: pairs with the acquire in close_slot */
	uint32_t before = atomic_fetch_sub_explicit(&slot->state, 1, memory_order_release);

	if (before != 1)
		return;
	/* The last hold of a slot that is not OPEN: a thread may wait for it in close_slot. */
	pthread_mutex_lock(&set->lock);
	pthread_cond_broadcast(&set->released);
	pthread_mutex_unlock(&set->lock);
}

/* Take a hold. NULL: there is no region. */
static struct soda_client_region *take(struct soda_region_set *set, struct soda_region_slot *slot)
{
	if (atomic_fetch_add_explicit(&slot->state, 1, memory_order_acquire) & OPEN)
		return slot->region;
	drop(set, slot);
	return NULL;
}

/* Clear OPEN and wait until there is no hold. 0; -EBUSY after close_ms: OPEN stays cleared. */
static int close_slot(struct soda_region_set *set, struct soda_region_slot *slot)
{
	struct timespec until = soda_wait_until(set->pool->close_ms);
	int r = 0;

	atomic_fetch_and(&slot->state, ~OPEN);
	pthread_mutex_lock(&set->lock);
	while (!r && atomic_load_explicit(&slot->state, memory_order_acquire))
		r = -pthread_cond_timedwait(&set->released, &set->lock, &until);
	if (!atomic_load_explicit(&slot->state, memory_order_acquire))
		r = 0;
	pthread_mutex_unlock(&set->lock);
	return r ? -EBUSY : 0;
}

static struct soda_memory *memory_of(struct soda_client_region *region)
{
	struct soda_file *file = atomic_load(&region->file);

	return file ? &file->memory : &region->own;
}

/* Count a WRITE before asking whether it may be: forbid_writes() asks in the other order. */
static bool may_write(struct soda_client_region *region)
{
	atomic_fetch_add(&region->writes, 1);
	return atomic_load(&region->writable);
}

/* A WRITE has ended; forbid_writes() may wait for the last one. */
static void end_write(struct soda_region_set *set, struct soda_client_region *region)
{
	if (atomic_fetch_sub(&region->writes, 1) != 1 || atomic_load(&region->writable))
		return;
	pthread_mutex_lock(&set->lock);
	pthread_cond_broadcast(&set->released);
	pthread_mutex_unlock(&set->lock);
}

/* Refuse WRITEs from now on, and await the end of those under way. 0; -EBUSY: allowed again. */
static int forbid_writes(struct soda_region_set *set, struct soda_client_region *region)
{
	struct timespec until = soda_wait_until(set->pool->close_ms);
	int r = 0;

	atomic_store(&region->writable, false);
	pthread_mutex_lock(&set->lock);
	while (!r && atomic_load(&region->writes))
		r = -pthread_cond_timedwait(&set->released, &set->lock, &until);
	if (!atomic_load(&region->writes))
		r = 0;
	pthread_mutex_unlock(&set->lock);
	if (r)
		atomic_store(&region->writable, true);
	return r ? -EBUSY : 0;
}

int soda_region_acquire(struct soda_region_set *set, bool write, uint16_t id, uint64_t page_offset,
			uint32_t size, struct soda_span *span_p)
{
	struct soda_region_slot *slot = &set->slots[id];
	struct soda_client_region *region = take(set, slot);
	const struct soda_memory *memory;
	int r = -EINVAL;

	if (!region)
		return r;
	memory = memory_of(region);
	if (write && !may_write(region))
		r = -EACCES;
	else if (!soda_wire_check_range(page_offset, size, memory->backing_bytes))
		r = 0;
	if (r) {
		if (write)
			end_write(set, region);
		drop(set, slot);
		return r;
	}
	span_p->offset = page_offset * SODA_WIRE_PAGE;
	span_p->memory = memory->map + span_p->offset;
	span_p->bytes = size;
	span_p->hold = slot;
	return 0;
}

void soda_region_release(struct soda_region_set *set, const struct soda_span *span, bool write,
			 bool landed)
{
	struct soda_region_slot *slot = span->hold;
	const struct soda_file *file = atomic_load(&slot->region->file);

	if (landed && file && file->memory.dirty) {
		uint64_t last = (span->offset + span->bytes - 1) / SODA_DIRTY_UNIT;

		/*
		 * release: pairs with the acquire of take_dirty() in files.c, which then reads the
		 * data
		 */
		for (uint64_t i = span->offset / SODA_DIRTY_UNIT; i <= last; i++)
			__atomic_store_n(&file->memory.dirty[i], 1, __ATOMIC_RELEASE);
	}
	if (write)
		end_write(set, slot->region);
	drop(set, slot);
}

/* Opening and closing */

int soda_region_set_init(struct soda_region_set *set, struct soda_region_pool *pool,
			 const struct soda_file_user *user)
{
	*set = (struct soda_region_set){ .pool = pool, .user = user, .account.quota = pool->quota };
	set->slots = mmap(NULL, SLOTS * sizeof(*set->slots), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (set->slots == MAP_FAILED)
		return -ENOMEM;
	pthread_mutex_init(&set->control, NULL);
	pthread_mutex_init(&set->lock, NULL);
	soda_cond_init(&set->released);
	return 0;
}

void soda_region_set_destroy(struct soda_region_set *set)
{
	soda_account_forget(set->pool->store, &set->account);
	munmap(set->slots, SLOTS * sizeof(*set->slots));
	pthread_cond_destroy(&set->released);
	pthread_mutex_destroy(&set->lock);
	pthread_mutex_destroy(&set->control);
}

uint32_t soda_region_count(struct soda_region_set *set)
{
	uint32_t n;

	pthread_mutex_lock(&set->lock);
	n = set->count;
	pthread_mutex_unlock(&set->lock);
	return n;
}

const char *soda_region_kind(const struct soda_client_region *region)
{
	if (!region->file)
		return "anonymous";
	if (region->file->published)
		return "published";
	if (region->file->mode == SODA_WIRE_READ_ONLY)
		return "read_only";
	return region->file->mode == SODA_WIRE_WRITABLE ? "writable" : "private";
}

/* Make a string of a file name from a peer, if no part of it leads out of the directory. */
static int check_name(const char *name, size_t bytes, char out[SODA_WIRE_MAX_NAME + 1],
		      struct soda_why *why)
{
	if (!bytes || bytes > SODA_WIRE_MAX_NAME || memchr(name, 0, bytes)) {
		soda_server_why(why, "a file name has 1 to %u bytes, none of them 0",
				SODA_WIRE_MAX_NAME);
		return -EINVAL;
	}
	memcpy(out, name, bytes);
	out[bytes] = 0;
	for (const char *part = out; part; part = strchr(part, '/')) {
		part += part != out;
		if (*part == '/' && part == out)
			break;
		if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/'))
			break;
		if (!strchr(part, '/'))
			return 0;
	}
	soda_server_why(why, "%s: leaves the server's export directory", out);
	return -EACCES;
}

static bool is_anonymous(const struct soda_wire_open *open)
{
	return !(open->flags & ~SODA_WIRE_SEALED);
}

static int check_flags(const struct soda_wire_open *open, struct soda_why *why)
{
	uint32_t mode = open->flags & MODES;
	bool one = mode && !(mode & (mode - 1));
	bool create = open->flags & SODA_WIRE_CREATE;

	if (is_anonymous(open) && open->bytes && !open->name_bytes)
		return 0;
	if (open->flags == (SODA_WIRE_READ_ONLY | SODA_WIRE_PUBLISHED))
		return 0;
	if (one && !(open->flags & ~(MODES | SODA_WIRE_CREATE | SEALS)) &&
	    (!create || mode == SODA_WIRE_WRITABLE) &&
	    !(open->flags & SEALS && mode == SODA_WIRE_PRIVATE) &&
	    (open->flags & SEALS) != SODA_WIRE_SEALED_BY_AGENT)
		return 0;
	soda_server_why(why, open->flags
				     ? "exactly one of READ_ONLY, WRITABLE and PRIVATE is needed,"
				       " CREATE goes with WRITABLE only, PUBLISHED with READ_ONLY,"
				       " SEALED not with PRIVATE"
				     : "an anonymous region has a size and no name");
	return -EINVAL;
}

static int open_anonymous(struct soda_region_set *set, struct soda_client_region *region,
			  bool shares, struct soda_why *why)
{
	struct soda_store *store = set->pool->store;
	const struct soda_memory_options opt = {
		.bytes = region->bytes,
		.populate = shares,
		.unshared = !shares,
	};
	uint64_t cost = soda_store_cost(store, region->bytes, false);
	int r = soda_account_charge(store, &set->account, cost, why);

	if (r)
		return r;
	r = soda_memory_create(store, &opt, &region->own, why);
	if (r)
		soda_account_refund(store, &set->account, cost);
	return r;
}

/* Where the tenant's files are; name: which one is wanted. */
static int get_dirs(struct soda_region_set *set, const char *name,
		    struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX], struct soda_why *why)
{
	int n = soda_tenant_dirs(set->tenants, set->tenant, dirs);

	if (n < 0)
		soda_server_why(why,
				"%.100s: the server has no descriptors left to look for it in the "
				"directories of tenant %s: raise its limit (ulimit -n)",
				name, set->tenant->name);
	return n;
}

/*
 * In the first of a tenant's directories that has the file; WRITABLE in those alone that it may
 * write to.  -ENOENT: in none.
 */
static int open_in(struct soda_region_set *set, const struct soda_tenant_dir *dirs, int n,
		   const struct soda_file_request *like, struct soda_file **file_p,
		   struct soda_why *why)
{
	struct soda_file_request req = *like;
	int r = -ENOENT;

	for (int i = 0; i < n && r == -ENOENT; i++) {
		if ((req.flags & SODA_WIRE_WRITABLE) && !dirs[i].writable)
			continue;
		req.dir = &dirs[i].fd;
		r = soda_files_open(set->pool->files, &req, file_p, why);
	}
	return r;
}

static int open_of_tenant(struct soda_region_set *set, const struct soda_file_request *asked,
			  struct soda_file **file_p, struct soda_why *why)
{
	struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX];
	int n = get_dirs(set, asked->name, dirs, why), r;
	struct soda_file_request req = *asked;
	bool writes = asked->flags & SODA_WIRE_WRITABLE, any = false;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		any = any || dirs[i].writable || !writes;
	/* made in the first directory only when none of them has it */
	req.flags &= ~SODA_WIRE_CREATE;
	r = open_in(set, dirs, n, &req, file_p, why);
	req.flags = asked->flags;
	if (r == -ENOENT && (req.flags & SODA_WIRE_CREATE))
		r = open_in(set, dirs, n, &req, file_p, why);
	for (int i = 0; i < n; i++)
		close(dirs[i].fd);
	if (any)
		return r;
	soda_server_why(why, "%.100s: tenant %s has no directory that it may %s", asked->name,
			set->tenant->name, writes ? "write to" : "read");
	return -EACCES;
}

static int open_file(struct soda_region_set *set, const struct soda_wire_open *open,
		     struct soda_client_region *region, bool shares, struct soda_why *why)
{
	const struct soda_file_request req = { .name = region->name,
					       .bytes = open->bytes,
					       .flags = open->flags,
					       .mark = open->mark,
					       .again = open->again,
					       .populate = shares,
					       .account = &set->account,
					       .user = set->user };
	struct soda_file *file;
	int r = set->tenant ? open_of_tenant(set, &req, &file, why)
			    : soda_files_open(set->pool->files, &req, &file, why);

	if (r)
		return r;
	region->file = file;
	region->bytes = file->bytes;
	region->writable = !(open->flags & SODA_WIRE_READ_ONLY);
	return 0;
}

/* A transport that shares memory needs a descriptor; one of its publisher's may not have. */
static int open_published(struct soda_region_set *set, struct soda_client_region *region,
			  bool shares, struct soda_why *why)
{
	struct soda_file *file;
	int r = soda_published_open(set->pool->files, set->owner, region->name, &set->account,
				    &file, why);

	if (!r && shares && file->memory.fd < 0) {
		soda_files_close(set->pool->files, file, &set->account);
		soda_server_why(why,
				"%.80s was published by a client that shares no memory with the"
				" server: open it over tcp",
				region->name);
		r = -ENOTSUP;
	}
	if (r)
		return r;
	region->file = file;
	region->bytes = file->bytes;
	region->writable = false;
	return 0;
}

/* A region of a checked name, or of none. */
static int open_content(struct soda_region_set *set, const struct soda_wire_open *open,
			struct soda_client_region *region, bool shares, struct soda_why *why)
{
	if (is_anonymous(open))
		return open_anonymous(set, region, shares, why);
	if (open->flags & SODA_WIRE_PUBLISHED)
		return open_published(set, region, shares, why);
	return open_file(set, open, region, shares, why);
}

static int check_open_name(const struct soda_wire_open *open, const char *name,
			   char out[SODA_WIRE_MAX_NAME + 1], struct soda_why *why)
{
	if (is_anonymous(open))
		return 0;
	if (open->flags & SODA_WIRE_PUBLISHED)
		return soda_published_check(name, open->name_bytes, out, why);
	return check_name(name, open->name_bytes, out, why);
}

static void uncount_region(struct soda_region_set *set)
{
	pthread_mutex_lock(&set->pool->store->lock);
	soda_shares_put(&set->pool->regions, set->tenant ? set->tenant->number : 0, 1);
	pthread_mutex_unlock(&set->pool->store->lock);
}

uint32_t soda_region_pool_count(struct soda_region_pool *pool)
{
	uint32_t n;

	pthread_mutex_lock(&pool->store->lock);
	n = pool->regions.all;
	pthread_mutex_unlock(&pool->store->lock);
	return n;
}

static void free_region(struct soda_region_set *set, struct soda_client_region *region)
{
	struct soda_store *store = set->pool->store;

	if (region->file) {
		soda_files_close(set->pool->files, region->file, &set->account);
	} else {
		soda_memory_destroy(store, &region->own, &set->account);
	}
	free(region);
	uncount_region(set);
}

static void link_region(struct soda_region_set *set, struct soda_client_region *region)
{
	pthread_mutex_lock(&set->lock);
	region->next = set->list;
	set->list = region;
	set->count++;
	pthread_mutex_unlock(&set->lock);
	if (region->id >= set->slots_end)
		set->slots_end = region->id + 1u;
	open_slot(&set->slots[region->id], region);
	soda_count_add(SODA_COUNT_regions_opened, 1);
}

static void unlink_region(struct soda_region_set *set, struct soda_client_region *region)
{
	struct soda_client_region **at = &set->list;

	pthread_mutex_lock(&set->lock);
	while (*at != region)
		at = &(*at)->next;
	*at = region->next;
	set->count--;
	pthread_mutex_unlock(&set->lock);
}

static int count_region(struct soda_region_set *set, struct soda_why *why)
{
	struct soda_holder holder = soda_tenant_holder(set->tenants, set->tenant);
	struct soda_region_pool *pool = set->pool;
	bool full;
	int r = -EBUSY;

	pthread_mutex_lock(&pool->store->lock);
	full = pool->regions.all >= pool->max_regions;
	if (soda_shares_room(&pool->regions, pool->max_regions, holder, 1, 0))
		r = soda_shares_take(&pool->regions, holder.number, 1);
	pthread_mutex_unlock(&pool->store->lock);
	if (r == -EBUSY)
		soda_server_why(why,
				full ? "the server has its %u regions (--max-regions): use fewer,"
				       " larger ones"
				     : "of the server's %u regions (--max-regions) those that are"
				       " left are kept for other tenants: use fewer, larger ones",
				pool->max_regions);
	return r ? -ENOMEM : 0;
}

static int open_new(struct soda_region_set *set, const struct soda_wire_open *open,
		    const char *name, bool shares, struct soda_client_region **region_p,
		    struct soda_why *why)
{
	struct soda_client_region *region;
	int r = check_flags(open, why);

	if (r)
		return r;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	region->id = open->region_id;
	region->bytes = open->bytes;
	region->sealed = open->flags & SODA_WIRE_SEALED;
	region->by_agent = open->flags & SODA_WIRE_SEALED_BY_AGENT;
	region->writable = true;
	r = check_open_name(open, name, region->name, why);
	if (!r)
		r = count_region(set, why);
	if (r) {
		free(region);
		return r;
	}
	r = open_content(set, open, region, shares, why);
	if (r) {
		uncount_region(set);
		free(region);
		return r;
	}
	*region_p = region;
	return 0;
}

static int hand_out(struct soda_region_set *set, struct soda_client_region *region,
		    struct soda_why *why)
{
	int r = soda_memory_hand_out(set->pool->store, memory_of(region),
				     soda_tenant_holder(set->tenants, set->tenant), why);

	if (r)
		free_region(set, region);
	return r;
}

static void describe(struct soda_client_region *region, bool shares,
		     struct soda_wire_opened *opened_p, struct soda_share *share_p)
{
	struct soda_memory *memory = memory_of(region);
	int fd = region->file && region->file->published ? region->file->published->fd : memory->fd;

	*opened_p = (struct soda_wire_opened){ .bytes = region->bytes };
	if (region->file) {
		opened_p->file_id = soda_file_id(region->file);
		opened_p->generation = region->file->generation;
	}
	*share_p = (struct soda_share){ .fd = -1 };
	if (shares)
		*share_p = (struct soda_share){ .fd = fd,
						.bytes = memory->backing_bytes,
						.dirty_bytes = memory->dirty_bytes,
						.memory = memory->map,
						.writable = region->writable };
}

int soda_region_open(struct soda_region_set *set, const struct soda_wire_open *open,
		     const char *name, bool shares, struct soda_wire_opened *opened_p,
		     struct soda_share *share_p, struct soda_why *why)
{
	struct soda_client_region *region;
	int r = -EBUSY;

	pthread_mutex_lock(&set->control);
	if (region_of(&set->slots[open->region_id]))
		soda_server_why(why, "region id %u is in use", open->region_id);
	else
		r = open_new(set, open, name, shares, &region, why);
	if (!r && shares)
		r = hand_out(set, region, why);
	if (!r) {
		describe(region, shares, opened_p, share_p);
		link_region(set, region);
	}
	pthread_mutex_unlock(&set->control);
	return r;
}

static struct soda_client_region *find(struct soda_region_set *set, uint16_t id,
				       struct soda_why *why)
{
	struct soda_client_region *region = region_of(&set->slots[id]);

	if (!region)
		soda_server_why(why, "there is no region %u", id);
	return region;
}

static int sync_region(struct soda_client_region *region, struct soda_why *why)
{
	if (!region->file || region->file->mode != SODA_WIRE_WRITABLE)
		return 0;
	return soda_file_sync(region->file, why);
}

/*
 * What was not synced of a sealed file may be blocks without their tags, so that only its client's
 * own sync changes the file.
 */
static int sync_closed(struct soda_client_region *region, struct soda_why *why)
{
	return region->sealed ? 0 : sync_region(region, why);
}

int soda_region_close(struct soda_region_set *set, uint16_t id, struct soda_why *why)
{
	struct soda_client_region *region;
	int r = -EINVAL;

	pthread_mutex_lock(&set->control);
	region = find(set, id, why);
	if (region) {
		r = close_slot(set, &set->slots[id]);
		if (r)
			soda_server_why(why, "region %u has requests under way", id);
		else
			r = sync_closed(region, why);
		if (r) {
			open_slot(&set->slots[id], region);
		} else {
			unlink_region(set, region);
			free_region(set, region);
		}
	}
	pthread_mutex_unlock(&set->control);
	return r;
}

int soda_region_sync(struct soda_region_set *set, uint16_t id, struct soda_why *why)
{
	struct soda_client_region *region;
	int r;

	pthread_mutex_lock(&set->control);
	region = find(set, id, why);
	r = region ? sync_region(region, why) : -EINVAL;
	pthread_mutex_unlock(&set->control);
	return r;
}

static int discard_locked(struct soda_region_set *set, const struct soda_wire_discard *d,
			  struct soda_why *why)
{
	struct soda_client_region *region = find(set, d->region_id, why);

	if (!region)
		return -EINVAL;
	if (region->file) {
		soda_server_why(why, "region %u is a file's: its content is kept", d->region_id);
		return -EACCES;
	}
	if (soda_wire_check_discard(d, region->bytes)) {
		soda_server_why(why, "not whole pages of region %u", d->region_id);
		return -EINVAL;
	}
	return soda_memory_discard(set->pool->store, &region->own, d->offset, d->bytes);
}

int soda_region_discard(struct soda_region_set *set, const struct soda_wire_discard *d,
			struct soda_why *why)
{
	int r;

	pthread_mutex_lock(&set->control);
	r = discard_locked(set, d, why);
	pthread_mutex_unlock(&set->control);
	if (!r)
		soda_count_add(SODA_COUNT_bytes_discarded, d->bytes);
	return r;
}

int soda_region_share(struct soda_region_set *set, uint16_t id, struct soda_share *share_p,
		      struct soda_why *why)
{
	struct soda_wire_opened opened;
	struct soda_client_region *region;
	int r = -EINVAL;

	pthread_mutex_lock(&set->control);
	region = find(set, id, why);
	if (region)
		r = soda_memory_hand_out(set->pool->store, memory_of(region),
					 soda_tenant_holder(set->tenants, set->tenant), why);
	if (!r)
		describe(region, true, &opened, share_p);
	pthread_mutex_unlock(&set->control);
	return r;
}

unsigned soda_region_list(struct soda_region_set *set, uint16_t from, struct soda_wire_listed *list,
			  unsigned max)
{
	unsigned n = 0;

	pthread_mutex_lock(&set->control);
	for (uint32_t id = from; id < set->slots_end && n < max; id++) {
		struct soda_client_region *region = region_of(&set->slots[id]);

		if (!region)
			continue;
		list[n] = (struct soda_wire_listed){ .region_id = region->id,
						     .flags = region->sealed ? SODA_WIRE_SEALED : 0,
						     .bytes = region->bytes };
		if (region->file) {
			list[n].flags = region->file->mode |
					(region->file->published ? SODA_WIRE_PUBLISHED : 0) |
					(region->by_agent ? SEALS : 0);
			list[n].file_id = soda_file_id(region->file);
			list[n].generation = region->file->generation;
		}
		n++;
	}
	pthread_mutex_unlock(&set->control);
	return n;
}

int soda_region_name(struct soda_region_set *set, uint16_t id, const char *name, size_t bytes,
		     struct soda_why *why)
{
	struct soda_client_region *region;
	int r = -EINVAL;

	if (bytes > SODA_WIRE_MAX_NAME || memchr(name, 0, bytes)) {
		soda_server_why(why, "a name has at most %u bytes, none of them 0",
				SODA_WIRE_MAX_NAME);
		return r;
	}
	pthread_mutex_lock(&set->control);
	region = find(set, id, why);
	if (region) {
		pthread_mutex_lock(&set->lock);
		memcpy(region->name, name, bytes);
		region->name[bytes] = 0;
		pthread_mutex_unlock(&set->lock);
		r = 0;
	}
	pthread_mutex_unlock(&set->control);
	return r;
}

/* Whether the region has that name already: 1; 0: it is anonymous; -EINVAL: neither. */
static int check_unpublished(struct soda_client_region *region, const char *name,
			     struct soda_why *why)
{
	const struct soda_file *file = atomic_load(&region->file);

	if (!file)
		return 0;
	if (file->published && !strcmp(file->published->name, name))
		return 1;
	if (file->published)
		soda_server_why(why, "region %u is published already, as %.100s", region->id,
				file->published->name);
	else
		soda_server_why(why, "region %u is a file's: others open that by its own name",
				region->id);
	return -EINVAL;
}

static int publish_anonymous(struct soda_region_set *set, struct soda_client_region *region,
			     const char *name, struct soda_why *why)
{
	struct soda_file *file;
	int r = forbid_writes(set, region);

	if (r) {
		soda_server_why(why, "region %u has WRITEs under way", region->id);
		return r;
	}
	r = soda_published_add(set->pool->files, set->owner, name, &region->own, region->bytes,
			       &file, why);
	if (r) {
		atomic_store(&region->writable, true);
		return r;
	}
	pthread_mutex_lock(&set->lock);
	strcpy(region->name, name);
	atomic_store(&region->file, file); /* region->own stays for READs that have looked before */
	pthread_mutex_unlock(&set->lock);
	return 0;
}

static int publish_locked(struct soda_region_set *set, uint16_t id, const char *name,
			  struct soda_wire_opened *opened_p, struct soda_why *why)
{
	struct soda_client_region *region = find(set, id, why);
	struct soda_share ignored;
	int r = region ? check_unpublished(region, name, why) : -EINVAL;

	if (!r)
		r = publish_anonymous(set, region, name, why);
	if (r < 0)
		return r;
	describe(region, false, opened_p, &ignored);
	return 0;
}

int soda_region_publish(struct soda_region_set *set, uint16_t id, const char *name, size_t bytes,
			struct soda_wire_opened *opened_p, struct soda_why *why)
{
	char text[SODA_WIRE_MAX_NAME + 1];
	int r = soda_published_check(name, bytes, text, why);

	if (r)
		return r;
	pthread_mutex_lock(&set->control);
	r = publish_locked(set, id, text, opened_p, why);
	pthread_mutex_unlock(&set->control);
	return r;
}

static bool is_written_to_file(const struct soda_client_region *region)
{
	const struct soda_file *file = atomic_load(&region->file);

	return file && file->mode == SODA_WIRE_WRITABLE;
}

/* files: also those that are written to one. The caller has the control lock. */
static unsigned close_those(struct soda_region_set *set, const char *owner, bool files)
{
	struct soda_client_region *region, *next;
	struct soda_why why = { "" };
	unsigned lost = 0;

	for (region = set->list; region; region = next) {
		next = region->next;
		if (!files && is_written_to_file(region))
			continue;
		while (close_slot(set, &set->slots[region->id]))
			soda_log_warning("%s: region %u: a request has not ended within %u ms;"
					 " the region is freed when it has",
					 owner, region->id, set->pool->close_ms);
		if (sync_closed(region, &why)) {
			soda_log_error("%s: changes to file %s are lost: %s", owner, region->name,
				       why.text);
			lost++;
		}
		unlink_region(set, region);
		free_region(set, region);
	}
	return lost;
}

unsigned soda_region_close_all(struct soda_region_set *set, const char *owner)
{
	unsigned lost;

	pthread_mutex_lock(&set->control);
	lost = close_those(set, owner, true);
	pthread_mutex_unlock(&set->control);
	return lost;
}

bool soda_region_close_unwritten(struct soda_region_set *set, const char *owner)
{
	bool left;

	pthread_mutex_lock(&set->control);
	close_those(set, owner, false);
	left = set->list;
	pthread_mutex_unlock(&set->control);
	return left;
}

static int content_of_tenant(struct soda_region_set *set, const struct soda_file_request *like,
			     struct soda_wire_content *content_p, struct soda_why *why)
{
	struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX];
	int n = get_dirs(set, like->name, dirs, why), r = n < 0 ? n : -ENOENT;
	struct soda_file_request req = *like;

	for (int i = 0; i < n && r == -ENOENT; i++) {
		req.dir = &dirs[i].fd;
		r = soda_content_of_name(set->pool->files, &req, content_p, why);
	}
	for (int i = 0; i < n; i++)
		close(dirs[i].fd);
	return r;
}

static int content_of_name(struct soda_region_set *set, const struct soda_wire_open *ask,
			   const char *name, struct soda_wire_content *content_p,
			   struct soda_why *why)
{
	char checked[SODA_WIRE_MAX_NAME + 1];
	const struct soda_file_request req = { .name = checked,
					       .bytes = ask->bytes,
					       .flags = SODA_WIRE_READ_ONLY |
							(ask->flags & SODA_WIRE_SEALED_BY_AGENT),
					       .user = set->user };
	int r = check_name(name, ask->name_bytes, checked, why);

	if (r)
		return r;
	return set->tenant ? content_of_tenant(set, &req, content_p, why)
			   : soda_content_of_name(set->pool->files, &req, content_p, why);
}

int soda_region_content(struct soda_region_set *set, const struct soda_wire_open *ask,
			const char *name, struct soda_wire_content *content_p, struct soda_why *why)
{
	struct soda_client_region *region;
	struct soda_file *file;
	int r = -EINVAL;

	if (!ask->region_id)
		return content_of_name(set, ask, name, content_p, why);
	pthread_mutex_lock(&set->control); /* so that nobody closes it */
	region = region_of(&set->slots[ask->region_id]);
	file = region ? atomic_load(&region->file) : NULL;
	if (file)
		r = soda_content_of_file(set->pool->files, file, content_p, why);
	else
		soda_server_why(why, "region %u is not open, or no file's", ask->region_id);
	pthread_mutex_unlock(&set->control);
	return r;
}
