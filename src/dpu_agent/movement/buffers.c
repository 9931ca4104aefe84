/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/buffers.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/movement/memory.h"

enum { MODES = 0444, DEFAULT_COPIES = 2, DEFAULT_MODE = 0400 };

static int __attribute__((format(printf, 3, 4)))
refuse(struct soda_why *why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}

void soda_buffers_init(struct soda_buffers *all, uint64_t budget)
{
	*all = (struct soda_buffers){ .budget = budget };
	pthread_mutex_init(&all->lock, NULL);
	soda_cond_init(&all->appeared);
}

void soda_buffers_destroy(struct soda_buffers *all)
{
	assert(!all->list && !all->reserved.all);
	soda_shares_free(&all->reserved);
	pthread_cond_destroy(&all->appeared);
	pthread_mutex_destroy(&all->lock);
}

/* Memory */

static int make_copy(struct soda_copy *c, uint64_t bytes, struct soda_why *why)
{
	return soda_memory_make("soda-move", bytes, SODA_MEMORY_READ_ONLY, &c->fd, &c->memory, why);
}

static void unmake(struct soda_buffer *b)
{
	for (unsigned i = 0; i < b->copies_n; i++)
		soda_memory_unmake(b->copies[i].fd, b->copies[i].memory, b->bytes);
	if (b->stage)
		munmap(b->stage, soda_memory_pages(b->bytes));
	free(b->copies);
	pthread_cond_destroy(&b->changed);
	free(b);
}

/* All pages now, as of copies. */
static int make_stage(struct soda_buffer *b, struct soda_why *why)
{
	void *memory = mmap(NULL, soda_memory_pages(b->bytes), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		return refuse(why, -ENOMEM, "the agent has no memory to stage it: %s",
			      soda_strerror(errno));
	b->stage = memory;
	return 0;
}

static int make_copies(struct soda_buffer *b, unsigned n, struct soda_why *why)
{
	int ret = 0;

	b->copies = calloc(n, sizeof(*b->copies));
	if (!b->copies)
		return refuse(why, -ENOMEM, "the agent has no memory for it");
	while (ret == 0 && b->copies_n < n)
		ret = make_copy(&b->copies[b->copies_n++], b->bytes, why);
	return ret;
}

/* Reserving */

static struct soda_buffer *find_locked(struct soda_buffers *all, uint32_t tenant, const char *name,
				       size_t name_bytes)
{
	struct soda_buffer *b = all->list;

	while (b && (b->tenant != tenant || strlen(b->name) != name_bytes ||
		     memcmp(b->name, name, name_bytes)))
		b = b->next;
	return b;
}

static int check_ask(const struct soda_wire_move_reserve *ask, const char *name, size_t name_bytes,
		     const struct soda_peer_info *owner, struct soda_why *why)
{
	if (!soda_wire_name_ok(name, name_bytes))
		return refuse(why, -EINVAL,
			      "a buffer's name has 1 to %u printable characters of ASCII, and no "
			      "space",
			      SODA_WIRE_MAX_NAME);
	if (!ask->bytes || ask->bytes > SODA_MOVE_BYTES_MAX || ask->copies > SODA_MOVE_COPIES)
		return refuse(why, -EINVAL, "a buffer has 1 to %llu bytes, and at most %d copies",
			      SODA_MOVE_BYTES_MAX, SODA_MOVE_COPIES);
	if (ask->mode & ~(uint32_t)MODES ||
	    ask->flags & ~(SODA_WIRE_MOVE_KEEP | SODA_WIRE_MOVE_STAGE))
		return refuse(why, -EINVAL, "mode %#o, flags %#x: not known", ask->mode,
			      ask->flags);
	if (!owner->local && !(ask->mode & 0004))
		return refuse(
			why, -EPERM,
			"who connects over the network is not known by a user, so that nobody "
			"could read this: let others read (0004), or connect by shm");
	return 0;
}

struct soda_holder soda_buffers_holder(const struct soda_buffers *all, uint32_t tenant)
{
	return (struct soda_holder){ tenant, all->tenants ? atomic_load(&all->tenants->there) : 0 };
}

static int take_locked(struct soda_buffers *all, uint32_t tenant, uint64_t bytes,
		       struct soda_why *why)
{
	uint64_t left =
		soda_shares_left(&all->reserved, all->budget, soda_buffers_holder(all, tenant));

	if (bytes > left)
		return refuse(why, -ENOSPC,
			      "%" PRIu64 " bytes are asked for, and %" PRIu64
			      " of the agent's %" PRIu64 " are free (--move-memory)%s",
			      bytes, left, all->budget,
			      left < all->budget - all->reserved.all
				      ? ", beside what is kept for other tenants"
				      : "");
	if (soda_shares_take(&all->reserved, tenant, bytes) < 0)
		return refuse(why, -ENOMEM, "the agent has no memory for it");
	return 0;
}

int soda_buffers_take(struct soda_buffers *all, uint32_t tenant, uint64_t bytes,
		      struct soda_why *why)
{
	int ret;

	pthread_mutex_lock(&all->lock);
	ret = take_locked(all, tenant, bytes, why);
	pthread_mutex_unlock(&all->lock);
	return ret;
}

void soda_buffers_give(struct soda_buffers *all, uint32_t tenant, uint64_t bytes)
{
	pthread_mutex_lock(&all->lock);
	soda_shares_put(&all->reserved, tenant, bytes);
	pthread_mutex_unlock(&all->lock);
}

/* Count the memory, and take the name by a buffer without copies: others find it in use. */
static int enter(struct soda_buffers *all, struct soda_buffer *b, uint64_t bytes,
		 struct soda_why *why)
{
	int ret = 0;

	pthread_mutex_lock(&all->lock);
	if (find_locked(all, b->tenant, b->name, strlen(b->name)))
		ret = refuse(why, -EEXIST, "another buffer has the name %.100s", b->name);
	else
		ret = take_locked(all, b->tenant, bytes, why);
	if (ret == 0) {
		b->next = all->list;
		all->list = b;
		all->n++;
	}
	pthread_mutex_unlock(&all->lock);
	return ret;
}

static void unlink_locked(struct soda_buffers *all, struct soda_buffer *b)
{
	struct soda_buffer **at = &all->list;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	all->n--;
}

static uint64_t reserved_bytes(const struct soda_wire_move_reserve *ask)
{
	uint64_t copies = ask->copies ? ask->copies : DEFAULT_COPIES;

	/* at most 2^40 * 65 */
	return soda_memory_pages(ask->bytes) * (copies + !!(ask->flags & SODA_WIRE_MOVE_STAGE));
}

int soda_buffer_reserve(struct soda_buffers *all, const struct soda_wire_move_reserve *ask,
			const char *name, size_t name_bytes, const struct soda_peer_info *owner,
			struct soda_buffer **buffer_p, struct soda_why *why)
{
	unsigned copies = ask->copies ? ask->copies : DEFAULT_COPIES;
	uint64_t bytes;
	struct soda_buffer *b;
	int ret = check_ask(ask, name, name_bytes, owner, why);

	if (ret < 0)
		return ret;
	b = calloc(1, sizeof(*b));
	if (!b)
		return refuse(why, -ENOMEM, "the agent has no memory for it");
	bytes = reserved_bytes(ask);
	*b = (struct soda_buffer){ .bytes = ask->bytes,
				   .mode = ask->mode ? ask->mode : DEFAULT_MODE,
				   .counted = bytes,
				   .keep = ask->flags & SODA_WIRE_MOVE_KEEP,
				   .known = owner->local,
				   .tenant = owner->tenant,
				   .uid = owner->uid,
				   .gid = owner->gid };
	memcpy(b->name, name, name_bytes);
	soda_cond_init(&b->changed);
	ret = enter(all, b, bytes, why);
	if (ret < 0) {
		unmake(b);
		return ret;
	}
	ret = make_copies(b, copies, why); /* without the lock: it may take long */
	if (ret == 0 && ask->flags & SODA_WIRE_MOVE_STAGE)
		ret = make_stage(b, why);
	pthread_mutex_lock(&all->lock);
	if (ret < 0) {
		unlink_locked(all, b);
		soda_shares_put(&all->reserved, b->tenant, bytes);
	} else {
		b->refs = 1;
		b->named = true;
		pthread_cond_broadcast(&all->appeared);
	}
	pthread_mutex_unlock(&all->lock);
	if (ret < 0) {
		unmake(b);
		return ret;
	}
	*buffer_p = b;
	return 0;
}

static int check_range(const struct soda_wire_move_range *ask, struct soda_why *why)
{
	if (!ask->bytes || ask->bytes > SODA_MOVE_BYTES_MAX || ask->copies > SODA_MOVE_COPIES)
		return refuse(why, -EINVAL, "a range has 1 to %llu bytes, and at most %d copies",
			      SODA_MOVE_BYTES_MAX, SODA_MOVE_COPIES);
	return 0;
}

int soda_buffer_range(struct soda_buffers *all, const struct soda_wire_move_range *ask,
		      uint32_t tenant, struct soda_buffer **buffer_p, struct soda_why *why)
{
	unsigned copies = ask->copies ? ask->copies : DEFAULT_COPIES;
	struct soda_buffer *b;
	int ret = check_range(ask, why);

	if (ret < 0)
		return ret;
	b = calloc(1, sizeof(*b));
	if (!b)
		return refuse(why, -ENOMEM, "the agent has no memory for it");
	*b = (struct soda_buffer){ .bytes = ask->bytes,
				   .counted = soda_memory_pages(ask->bytes) * copies,
				   .range = true,
				   .region = ask->region,
				   .at = ask->at,
				   .tenant = tenant,
				   .refs = 1,
				   .named = true };
	soda_cond_init(&b->changed);
	ret = soda_buffers_take(all, tenant, b->counted, why);
	if (ret == 0) {
		ret = make_copies(b, copies, why);
		if (ret < 0)
			soda_buffers_give(all, tenant, b->counted);
	}
	if (ret < 0)
		unmake(b);
	else
		*buffer_p = b;
	return ret;
}

/* Give a reference back, with the lock held, which is let go; the last one frees the buffer. */
static void put_unlock(struct soda_buffers *all, struct soda_buffer *b)
{
	bool last = --b->refs == 0;

	if (last)
		soda_shares_put(&all->reserved, b->tenant, b->counted);
	pthread_mutex_unlock(&all->lock);
	if (last)
		unmake(b);
}

void soda_buffer_end(struct soda_buffers *all, struct soda_buffer *b)
{
	pthread_mutex_lock(&all->lock);
	if (!b->range)
		unlink_locked(all, b);
	b->named = false;
	pthread_cond_broadcast(&b->changed);
	put_unlock(all, b);
}

/* Filling */

/* The last step that may be replaced, as far as readers are concerned. */
static uint64_t passed_locked(const struct soda_buffer *b)
{
	uint64_t passed = UINT64_MAX;

	if (!b->keep)
		return passed;
	for (const struct soda_buffer_reader *r = b->readers; r; r = r->next)
		if (r->passed < passed)
			passed = r->passed;
	return b->readers ? passed : b->passed;
}

/* A copy that may be filled: a free one, or the oldest step that may be replaced; or NULL. */
static struct soda_copy *choose_locked(const struct soda_buffer *b)
{
	uint64_t passed = passed_locked(b);
	struct soda_copy *best = NULL;

	for (struct soda_copy *c = b->copies; c < b->copies + b->copies_n; c++) {
		if (c->state == SODA_COPY_FREE)
			return c;
		if (c->state == SODA_COPY_COMPLETE && !c->holds && c->step <= passed &&
		    (!best || c->step < best->step))
			best = c;
	}
	return best;
}

int soda_buffer_fill(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy **copy_p)
{
	struct soda_copy *c;
	int ret = 0;

	pthread_mutex_lock(&all->lock);
	c = b->named ? choose_locked(b) : NULL;
	if (c) {
		c->state = SODA_COPY_FILLING;
		c->step = 0;
		b->refs++;
		*copy_p = c;
	} else {
		ret = b->named ? -ENOSPC : -EPIPE;
	}
	pthread_mutex_unlock(&all->lock);
	return ret;
}

uint64_t soda_buffer_publish(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy *c)
{
	uint64_t step;

	pthread_mutex_lock(&all->lock);
	assert(c->state == SODA_COPY_FILLING);
	step = ++b->steps;
	c->step = step;
	c->state = SODA_COPY_COMPLETE;
	pthread_cond_broadcast(&b->changed);
	put_unlock(all, b);
	return step;
}

uint64_t soda_buffer_stored(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy *c)
{
	uint64_t step;

	pthread_mutex_lock(&all->lock);
	assert(c->state == SODA_COPY_FILLING && b->range);
	step = ++b->steps;
	c->state = SODA_COPY_FREE;
	put_unlock(all, b);
	return step;
}

void soda_buffer_abandon(struct soda_buffers *all, struct soda_buffer *b, struct soda_copy *c)
{
	pthread_mutex_lock(&all->lock);
	assert(c->state == SODA_COPY_FILLING);
	c->state = SODA_COPY_FREE;
	put_unlock(all, b);
}

/* Reading */

static bool in_group(const struct soda_peer_info *who, gid_t gid)
{
	for (unsigned i = 0; i < who->groups_n; i++)
		if (who->groups[i] == gid)
			return true;
	return who->gid == gid;
}

/* As for a file: the class that fits first decides. */
static bool may_read(const struct soda_buffer *b, const struct soda_peer_info *who)
{
	if (!who->local)
		return b->mode & 0004;
	if (!who->uid)
		return true;
	if (b->known && who->uid == b->uid)
		return b->mode & 0400;
	if (b->known && in_group(who, b->gid))
		return b->mode & 0040;
	return b->mode & 0004;
}

/* The buffer of a name that is ready to be opened; its memory may still be in the making. */
static struct soda_buffer *find_ready_locked(struct soda_buffers *all, uint32_t tenant,
					     const char *name, size_t name_bytes)
{
	struct soda_buffer *b = find_locked(all, tenant, name, name_bytes);

	return b && b->named ? b : NULL;
}

int soda_buffer_open(struct soda_buffers *all, const char *name, size_t name_bytes,
		     const struct soda_peer_info *who, uint32_t timeout_ms,
		     struct soda_buffer_reader *reader, struct soda_why *why)
{
	struct timespec until = soda_wait_until(timeout_ms);
	struct soda_buffer *b;
	int ret = 0;

	if (!soda_wire_name_ok(name, name_bytes))
		return refuse(why, -EINVAL, "no buffer can have this name");
	pthread_mutex_lock(&all->lock);
	all->seekers++;
	while (!(b = find_ready_locked(all, who->tenant, name, name_bytes)))
		if (pthread_cond_timedwait(&all->appeared, &all->lock, &until))
			break;
	all->seekers--;
	b = find_ready_locked(all, who->tenant, name, name_bytes);
	if (!b) {
		ret = refuse(why, -ENOENT, "no buffer has the name %.*s",
			     (int)(name_bytes < 100 ? name_bytes : 100), name);
	} else if (!may_read(b, who)) {
		ret = refuse(why, -EACCES, "the buffer %.100s is not for this user to read%s",
			     b->name, who->local ? "" : ", who is not known over the network");
	} else {
		*reader = (struct soda_buffer_reader){ .next = b->readers,
						       .buffer = b,
						       .passed = b->passed };
		b->readers = reader;
		b->refs++;
	}
	pthread_mutex_unlock(&all->lock);
	return ret;
}

/* The copy of the oldest complete step above `after`, or NULL. */
static struct soda_copy *oldest_locked(const struct soda_buffer *b, uint64_t after)
{
	struct soda_copy *best = NULL;

	for (struct soda_copy *c = b->copies; c < b->copies + b->copies_n; c++)
		if (c->state == SODA_COPY_COMPLETE && c->step > after &&
		    (!best || c->step < best->step))
			best = c;
	return best;
}

int soda_buffer_next(struct soda_buffers *all, struct soda_buffer_reader *reader, uint64_t after,
		     uint32_t timeout_ms, struct soda_wire_move_found *found_p)
{
	struct timespec until = soda_wait_until(timeout_ms);
	struct soda_buffer *b = reader->buffer;
	struct soda_wire_move_found found = { 0 };
	struct soda_copy *c;
	int ret = 0;

	pthread_mutex_lock(&all->lock);
	/* what is asked past of is not waited for; a number that nobody had yet passes nothing */
	if (after > reader->passed && after <= b->steps)
		reader->passed = after;
	while (!(c = oldest_locked(b, after)) && b->named)
		if (pthread_cond_timedwait(&b->changed, &all->lock, &until))
			break;
	c = oldest_locked(b, after);
	found.ended = !b->named;
	if (c && reader->held & 1ull << (c - b->copies)) {
		ret = -EBUSY;
	} else if (c) {
		found.step = c->step;
		found.copy = (uint32_t)(c - b->copies);
		found.ended = 0;
		reader->held |= 1ull << found.copy;
		c->holds++;
	}
	pthread_mutex_unlock(&all->lock);
	if (ret == 0)
		*found_p = found;
	return ret;
}

static struct soda_copy *held_locked(const struct soda_buffer_reader *reader, uint64_t step)
{
	struct soda_buffer *b = reader->buffer;

	for (unsigned i = 0; b && i < b->copies_n; i++)
		if (reader->held & 1ull << i && b->copies[i].step == step)
			return &b->copies[i];
	return NULL;
}

const struct soda_copy *soda_buffer_held(struct soda_buffers *all,
					 const struct soda_buffer_reader *reader, uint64_t step)
{
	const struct soda_copy *c;

	pthread_mutex_lock(&all->lock);
	c = held_locked(reader, step);
	pthread_mutex_unlock(&all->lock);
	return c;
}

int soda_buffer_release(struct soda_buffers *all, struct soda_buffer_reader *reader, uint64_t step)
{
	struct soda_copy *c;

	pthread_mutex_lock(&all->lock);
	c = held_locked(reader, step);
	if (c) {
		reader->held &= ~(1ull << (c - reader->buffer->copies));
		c->holds--;
		if (step > reader->passed)
			reader->passed = step;
	}
	pthread_mutex_unlock(&all->lock);
	return c ? 0 : -EINVAL;
}

void soda_buffer_close(struct soda_buffers *all, struct soda_buffer_reader *reader)
{
	struct soda_buffer *b = reader->buffer;
	struct soda_buffer_reader **at;

	if (!b)
		return;
	pthread_mutex_lock(&all->lock);
	for (unsigned i = 0; i < b->copies_n; i++)
		if (reader->held & 1ull << i)
			b->copies[i].holds--;
	for (at = &b->readers; *at != reader;)
		at = &(*at)->next;
	*at = reader->next;
	if (!b->readers && reader->passed > b->passed)
		b->passed = reader->passed;
	*reader = (struct soda_buffer_reader){ 0 };
	put_unlock(all, b);
}
