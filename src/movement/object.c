/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects in FAM, in whose ranges lists are placed.  An object is a region of a client with pages,
 * which is a connection of its own (soda_mover.pages): the agent writes it, this process never maps
 * it, and others see it when it is published.  docs/internals/movement.md, Objects in FAM.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "movement/mover.h"
#include "wire/field.h"

enum { PAGE = SODA_WIRE_PAGE };

/* The connection for objects. NULL: *err_p, remembered. */
static struct soda_mover *pages_of(struct soda_mover *m, int *err_p)
{
	struct soda_mover *pages = NULL;

	*err_p = 0;
	pthread_mutex_lock(&m->pages_lock);
	if (!m->pages) {
		*err_p = soda_mover_connect(m->address, true, &pages);
		pthread_mutex_lock(&m->lock);
		m->pages = pages;
		pthread_mutex_unlock(&m->lock);
	}
	pages = m->pages;
	pthread_mutex_unlock(&m->pages_lock);
	return pages;
}

/* Enter it with a region id that no other has. False: there is none. */
static bool enter(struct soda_mover *m, struct soda_move_object *o)
{
	bool taken = true;

	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; taken && i <= UINT16_MAX; i++) {
		uint16_t id = ++m->last_region;

		taken = false;
		for (const struct soda_move_object *at = m->objects; at && !taken; at = at->next)
			taken = at->region == id;
		o->region = id;
	}
	if (!taken) {
		o->next = m->objects;
		m->objects = o;
	}
	pthread_mutex_unlock(&m->lock);
	return !taken;
}

static void leave(struct soda_move_object *o)
{
	struct soda_mover *m = o->mover;
	struct soda_move_object **at;

	pthread_mutex_lock(&m->lock);
	for (at = &m->objects; *at != o;)
		at = &(*at)->next;
	*at = o->next;
	pthread_mutex_unlock(&m->lock);
	free(o);
}

static int open_region(struct soda_move_object *o)
{
	struct soda_wire_open open = { .region_id = o->region, .bytes = o->bytes };
	uint8_t body[SODA_WIRE_OPEN_BYTES];
	struct soda_errand e = { .type = (enum soda_move_msg)SODA_MSG_OPEN,
				 .body = { { body, sizeof(body) } },
				 .body_n = 1,
				 .fd = -1 };
	int ret;

	soda_wire_put_open(body, &open);
	ret = soda_mover_run(o->mover, &e);
	if (ret == 0 && e.reply_bytes < SODA_WIRE_OPENED_BYTES)
		ret = soda_move_failed(-ENOTCONN, "the agent's answer makes no sense");
	return ret;
}

SODA_API int soda_move_object_alloc(struct soda_mover *m, uint64_t bytes,
				    struct soda_move_object **object_p)
{
	struct soda_move_object *o;
	struct soda_mover *pages;
	int saved = errno, ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	if (!bytes || bytes > SODA_MOVE_BYTES_MAX)
		return soda_move_failed(-EINVAL, "an object has 1 to %llu bytes",
					SODA_MOVE_BYTES_MAX);
	if (m->seals)
		return soda_move_failed(-ENOTSUP, "objects that an agent fills lie unsealed on the "
						  "memory server, and SODA_SEAL is on");
	pages = pages_of(m, &ret);
	o = pages ? calloc(1, sizeof(*o)) : NULL;
	if (pages && !o)
		ret = soda_move_failed(-ENOMEM, "no memory for an object");
	if (o) {
		*o = (struct soda_move_object){ .mover = pages, .bytes = bytes };
		if (!enter(pages, o)) {
			free(o);
			o = NULL;
			ret = soda_move_failed(-EBUSY, "there are 65,536 objects");
		}
	}
	if (o) {
		ret = open_region(o);
		if (ret < 0)
			leave(o);
		else
			*object_p = o;
	}
	errno = saved;
	return ret;
}

SODA_API int soda_move_object_range(struct soda_move_object *o, uint64_t at, uint64_t bytes,
				    unsigned copies, struct soda_move_buffer **buffer_p)
{
	struct soda_wire_move_range ask = { o->region, copies, at, bytes };
	uint8_t body[SODA_WIRE_MOVE_RANGE_BYTES];
	struct soda_errand e = { .type = SODA_MSG_MOVE_RANGE,
				 .body = { { body, sizeof(body) } },
				 .body_n = 1,
				 .fd = -1 };
	struct soda_move_buffer *b;
	int saved = errno, ret = soda_mover_check(o->mover);

	if (ret < 0)
		return ret;
	if (!bytes || at % PAGE || at > o->bytes || bytes > o->bytes - at ||
	    (bytes % PAGE && at + bytes != o->bytes))
		return soda_move_failed(-EINVAL,
					"a range of an object begins at a multiple of %d bytes,"
					" and has such a size, or ends with the object",
					PAGE);
	b = malloc(sizeof(*b));
	if (!b)
		return soda_move_failed(-ENOMEM, "no memory for a range");
	soda_wire_put_move_range(body, &ask);
	ret = soda_mover_make_buffer(o->mover, &e, bytes, o, b);
	if (ret < 0)
		free(b);
	else
		*buffer_p = b;
	errno = saved;
	return ret;
}

/* One of the object's ranges; with_tickets: whose lists have not all ended. */
static struct soda_move_buffer *find_range(struct soda_move_object *o, bool with_tickets)
{
	struct soda_move_buffer *b;

	pthread_mutex_lock(&o->mover->lock);
	b = o->mover->buffers;
	while (b && (b->object != o || (with_tickets && !b->tickets)))
		b = b->next;
	pthread_mutex_unlock(&o->mover->lock);
	return b;
}

/* Nothing is placed in it any more. False: that was so. */
static bool seal(struct soda_move_object *o)
{
	bool was;

	pthread_mutex_lock(&o->mover->lock);
	was = o->sealed;
	o->sealed = true;
	pthread_mutex_unlock(&o->mover->lock);
	return !was;
}

/* Publishing has failed. */
static void unseal(struct soda_move_object *o)
{
	pthread_mutex_lock(&o->mover->lock);
	o->sealed = false;
	pthread_mutex_unlock(&o->mover->lock);
}

static bool is_torn(struct soda_move_object *o)
{
	bool torn;

	pthread_mutex_lock(&o->mover->lock);
	torn = o->torn;
	pthread_mutex_unlock(&o->mover->lock);
	return torn;
}

static int run_publish(struct soda_move_object *o, const char *name)
{
	uint8_t id[SODA_WIRE_REGION_BYTES];
	struct soda_errand e = { .type = (enum soda_move_msg)SODA_MSG_PUBLISH,
				 .body = { { id, sizeof(id) },
					   { (void *)(uintptr_t)name, strlen(name) } },
				 .body_n = 2,
				 .fd = -1 };

	soda_wire_put(id, o->region, sizeof(id));
	return soda_mover_run(o->mover, &e);
}

SODA_API int soda_move_object_publish(struct soda_move_object *o, const char *name)
{
	struct soda_move_buffer *b;
	int saved = errno, ret = soda_mover_check(o->mover);

	if (ret < 0)
		return ret;
	if (!name || !soda_wire_name_ok(name, strlen(name)))
		return soda_move_failed(-EINVAL,
					"an object's name has 1 to %u printable characters of"
					" ASCII, and no space",
					SODA_MOVE_NAME_MAX);
	if (!seal(o))
		return soda_move_failed(-EALREADY, "the object has been published, or is being");
	while ((b = find_range(o, true)))
		soda_mover_await_tickets(b);
	ret = is_torn(o) ? soda_move_failed(-EIO,
					    "a list could not be written to the object as a whole:"
					    " free it, and begin anew")
			 : run_publish(o, name);
	if (ret < 0) /* so that it can be tried by another name */
		unseal(o);
	errno = saved;
	return ret;
}

SODA_API int soda_move_object_free(struct soda_move_object *o)
{
	uint8_t id[SODA_WIRE_REGION_BYTES];
	struct soda_errand e = { .type = (enum soda_move_msg)SODA_MSG_CLOSE,
				 .body = { { id, sizeof(id) } },
				 .body_n = 1,
				 .fd = -1 };
	struct soda_move_buffer *b;
	int saved = errno, ret = o ? soda_mover_check(o->mover) : 0;

	if (ret < 0 || !o)
		return ret;
	while ((b = find_range(o, false)))
		soda_move_end(b);
	soda_wire_put(id, o->region, sizeof(id));
	ret = soda_mover_run(o->mover, &e);
	leave(o);
	errno = saved;
	return ret;
}

void soda_mover_objects_free(struct soda_mover *m)
{
	while (m->objects) {
		struct soda_move_object *next = m->objects->next;

		free(m->objects);
		m->objects = next;
	}
}
