/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WRITEs of the agent's own into a client's region, for services: soda_agent_regions.  They travel
 * as the client's do, past the write list: the caller waits for the server's answers, so nothing is
 * owed to anybody, and where the connection is lost nothing is sent again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/wait.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/paging.h"

enum {
	PART = 1 << 20, /* of a transfer */
	WINDOW = 4,	/* transfers under way */
	FULL_NS = 1000000,
};

/* One call of write(), whose transfers end in other threads. */
struct placing {
	struct soda_session *session;
	struct soda_paging_region *region; /* held */
	uint8_t *data;
	uint64_t offset, bytes, posted;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned under_way; /* guarded by lock, and so `status` */
	int status;
};

static int refuse(struct soda_why *why, int err, const char *text)
{
	snprintf(why->text, sizeof(why->text), "%s", text);
	return err;
}

static int find_locked(struct soda_session *s, uint32_t id, uint64_t offset, uint64_t bytes,
		       struct soda_paging_region **r_p, struct soda_why *why)
{
	struct soda_paging_region *r =
		id <= UINT16_MAX ? soda_region_find_locked(s, (uint16_t)id) : NULL;
	uint64_t all;

	if (!s->up)
		return refuse(why, -ENOTCONN, "the memory server is not connected");
	if (!r)
		return refuse(why, -EINVAL, "there is no such region");
	if (!r->mr.writable)
		return refuse(why, -EACCES, "the region may not be written");
	all = (r->bytes + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE * SODA_WIRE_PAGE;
	if (!bytes || bytes % SODA_WIRE_PAGE || offset % SODA_WIRE_PAGE || offset > all ||
	    bytes > all - offset)
		return refuse(why, -EINVAL, "no pages of the region");
	if (soda_caches_frozen(r, offset, bytes))
		return refuse(why, -EACCES, "a part of the range is in the static cache");
	*r_p = r;
	return 0;
}

static int check(struct soda_session *s, uint32_t id, uint64_t offset, uint64_t bytes,
		 struct soda_why *why)
{
	struct soda_paging_region *r;
	int ret;

	pthread_mutex_lock(&s->lock);
	ret = find_locked(s, id, offset, bytes, &r, why);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* A transfer has ended. */
static void ended(struct soda_transfer *t, int status)
{
	struct placing *p = t->arg;

	pthread_mutex_lock(&p->lock);
	if (status < 0 && !p->status)
		p->status = status;
	p->under_way--;
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void ended_freed(struct soda_transfer *t, int status)
{
	ended(t, status);
	free(t);
}

/* The next part. The caller posts it, or undoes this by ended(). */
static struct soda_transfer next_part(struct placing *p)
{
	uint64_t left = p->bytes - p->posted;
	struct soda_transfer t = { .session = p->session,
				   .region = p->region,
				   .offset = p->offset + p->posted,
				   .bytes = left < PART ? (uint32_t)left : PART,
				   .write = true,
				   .memory = p->data + p->posted,
				   .ended = ended,
				   .arg = p };

	p->posted += t.bytes;
	pthread_mutex_lock(&p->lock);
	p->under_way++;
	pthread_mutex_unlock(&p->lock);
	return t;
}

/* Until no more than so many are under way: each ends, at the latest with its connection. */
static int await(struct placing *p, unsigned most)
{
	int status;

	pthread_mutex_lock(&p->lock);
	while (p->under_way > most)
		pthread_cond_wait(&p->changed, &p->lock);
	status = p->status;
	pthread_mutex_unlock(&p->lock);
	return status;
}

/* async: answers are collected by completers. */
static void post_all(struct placing *p)
{
	const struct timespec full = { .tv_nsec = FULL_NS };

	while (p->posted < p->bytes && await(p, WINDOW - 1) == 0) {
		struct soda_transfer part = next_part(p), *t = malloc(sizeof(*t));
		int ret = -ENOMEM;

		if (t) {
			*t = part;
			t->ended = ended_freed;
			while ((ret = soda_forward_own(t)) == -EAGAIN)
				nanosleep(&full,
					  NULL); /* the client's own, which have a time-out */
		}
		if (ret < 0) {
			free(t);
			ended(&part, ret);
		}
	}
}

/* Else this thread waits for the answers, on the channel that such an agent leaves unused. */
static void post_and_wait(struct placing *p)
{
	struct soda_channel *c =
		&soda_pager(p->session)->channels[soda_paging(p->session)->channels];
	struct soda_transfer t[WINDOW];

	while (p->posted < p->bytes && !p->status) {
		unsigned n = 0;
		int ret;

		while (n < WINDOW && p->posted < p->bytes)
			t[n++] = next_part(p);
		pthread_mutex_lock(&c->lock);
		ret = c->conn ? soda_forward_await(c, t, n)
			      : (pthread_mutex_unlock(&c->lock), -ENOTCONN);
		if (ret < 0) { /* some have not ended, and never will */
			p->status = p->status ? p->status : ret;
			p->under_way = 0;
		}
	}
}

static int write_region(struct soda_session *s, uint32_t id, uint64_t offset, uint8_t *data,
			uint64_t bytes)
{
	struct placing p = { .session = s, .data = data, .offset = offset, .bytes = bytes };
	struct soda_why ignored;
	int ret;

	pthread_mutex_lock(&s->lock);
	while ((ret = find_locked(s, id, offset, bytes, &p.region, &ignored)) == 0 &&
	       p.region->committing)
		pthread_cond_wait(&s->changed, &s->lock); /* which ends, with an error if need be */
	if (ret == 0) {
		p.region->holds++;
		p.region->placing++;
	}
	pthread_mutex_unlock(&s->lock);
	if (ret < 0)
		return ret;
	pthread_mutex_init(&p.lock, NULL);
	soda_cond_init(&p.changed);
	soda_caches_written(p.region, offset, bytes);
	if (soda_paging(s)->async)
		post_all(&p);
	else
		post_and_wait(&p);
	ret = await(&p, 0);
	soda_caches_written(p.region, offset, bytes);
	pthread_cond_destroy(&p.changed);
	pthread_mutex_destroy(&p.lock);
	pthread_mutex_lock(&s->lock);
	if (--p.region->placing == 0)
		pthread_cond_broadcast(&s->changed);
	soda_region_unhold_locked(s, p.region);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

const struct soda_agent_regions soda_paging_regions = { .check = check, .write = write_region };
