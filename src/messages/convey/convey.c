/* SPDX-License-Identifier: BSD-3-Clause */
/* Conveyors: each is a job, and from convey_begin() until it is complete a phase of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <soda_convey.h>

#include "base/log.h"
#include "messages/job.h"
#include "messages/launch.h"

enum state { DORMANT, WORKING, ENDGAME, COMPLETE };

enum {
	IDLE_MOST =
		64, /* advances in a row without an item in this thread, before one that waits */
	IDLE_MS = 1,
};

struct soda_convey {
	struct soda_msg_job *job;
	enum state state;
	uint64_t options;
	bool elastic, told;
	bool full;	 /* the last push found no room */
	bool phase_over; /* of the job: it has been, or will have to be, begun anew */
	size_t bound;	 /* of an elastic one's items */
	size_t item_bytes, align;
	struct soda_message_run run; /* what is being pulled */
	size_t at;		     /* of the run: the next item */
	void *copy;		     /* of an item that is not aligned well enough */
	size_t copy_bytes;
	int64_t now[convey_CUMULATIVE], before[convey_CUMULATIVE];
};

static _Atomic unsigned made, alive;

/* Calls of this thread in a row that had nothing to do, of all its conveyors. */
static _Thread_local unsigned idle;

static int tell(struct soda_convey *c, int err)
{
	if (!c->told && !(c->options & convey_opt_QUIET))
		fprintf(stderr, "convey: %s\n", soda_msg_last_error());
	c->told = true;
	return err;
}

static int wrong_state(struct soda_convey *c, const char *function)
{
	static const char *const names[] = { "dormant", "working", "in its endgame", "complete" };

	return tell(c, soda_msg_failed(-EINVAL, "%s() of a conveyor that is %s", function,
				       names[c->state]));
}

static size_t largest_align(size_t bytes)
{
	size_t align = bytes ? bytes & -bytes : 1;

	return align > CONVEY_MAX_ALIGN ? CONVEY_MAX_ALIGN : align;
}

/* Life */

/* Routers in the ranks' processes have one address each, where those are listed. */
static int check_routing(void)
{
	const char *routing = getenv("SODA_MSG_ROUTING");

	if (!routing || strcmp(routing, "process") != 0 || !atomic_load(&alive) ||
	    (!getenv("SODA_MSG_AGENTS") && !getenv("SODA_MSG_HOSTS")))
		return 0;
	return soda_msg_failed(-EADDRINUSE, "where ranks route in their processes, at addresses "
					    "that are listed, there is one conveyor at a time: "
					    "have an agent route");
}

static int start_job(struct soda_convey *c)
{
	char name[SODA_WIRE_MAX_NAME + 1], own[sizeof(name) + 24];
	struct soda_msg_options how = { .job = own };
	struct soda_why why;
	int ret = check_routing();

	if (ret < 0)
		return ret;
	ret = soda_launch_name(name, &why);
	if (ret < 0)
		return soda_msg_failed(ret, "%s", why.text);
	snprintf(own, sizeof(own), "%s.convey%u", name, atomic_fetch_add(&made, 1));
	return soda_msg_start(&how, &c->job);
}

static struct soda_convey *new (size_t bound, bool elastic, uint64_t options)
{
	struct soda_convey *c = calloc(1, sizeof(*c));

	if (!c) {
		soda_msg_failed(-ENOMEM, "no memory for a conveyor");
		return NULL;
	}
	c->bound = bound;
	c->elastic = elastic;
	c->options = options;
	if (start_job(c) == 0) {
		atomic_fetch_add(&alive, 1);
		return c;
	}
	tell(c, 0);
	free(c);
	return NULL;
}

SODA_API struct soda_convey *soda_convey_new(size_t max_bytes, size_t n_local,
					     const convey_alc8r_t *alloc, uint64_t options)
{
	(void)max_bytes, (void)n_local, (void)alloc;
	return new (0, false, options);
}

SODA_API struct soda_convey *soda_convey_new_elastic(size_t item_bound, size_t max_bytes,
						     size_t n_local, const convey_alc8r_t *alloc,
						     uint64_t options)
{
	(void)max_bytes, (void)n_local, (void)alloc;
	return new (item_bound, true, options);
}

SODA_API int soda_convey_begin(struct soda_convey *c, size_t item_bytes, size_t align)
{
	size_t largest = largest_align(item_bytes);
	int ret = 0;

	if (c->state != DORMANT)
		return wrong_state(c, "convey_begin");
	if ((!item_bytes && !c->elastic) || item_bytes > SODA_MSG_BYTES_MAX)
		return tell(c,
			    soda_msg_failed(-EMSGSIZE, "items of %zu bytes: 1 to %u are possible",
					    item_bytes, SODA_MSG_BYTES_MAX));
	if (c->phase_over)
		ret = soda_msg_begin(c->job);
	if (ret < 0)
		return tell(c, ret);
	c->phase_over = false;
	c->item_bytes = item_bytes;
	c->align = align && !(align & (align - 1)) && align <= largest ? align : largest;
	c->now[convey_BEGINS]++;
	c->state = WORKING;
	return convey_OK;
}

SODA_API int soda_convey_reset(struct soda_convey *c)
{
	if (c->state != COMPLETE)
		return wrong_state(c, "convey_reset");
	for (unsigned i = 0; i < convey_CUMULATIVE; i++) {
		c->before[i] += c->now[i];
		c->now[i] = 0;
	}
	c->state = DORMANT;
	return convey_OK;
}

static void ignore(void *arg, const struct soda_message *msg)
{
	(void)arg, (void)msg;
}

/* A phase in which nobody pushed anything: its end, so that nobody finds it broken off. */
static int end_unused(struct soda_convey *c)
{
	int ret = soda_msg_finish(c->job);

	return ret < 0 ? ret : soda_msg_drain(c->job, ignore, NULL);
}

SODA_API int soda_convey_free(struct soda_convey *c)
{
	int ret = 0;

	if (!c)
		return convey_OK;
	if (c->state != DORMANT && c->state != COMPLETE)
		return wrong_state(c, "convey_free");
	if (!c->phase_over)
		ret = end_unused(c);
	if (ret < 0)
		tell(c, ret);
	soda_msg_end(c->job);
	atomic_fetch_sub(&alive, 1);
	free(c->copy);
	free(c);
	return ret < 0 ? ret : convey_OK;
}

/* Pushing */

static int push(struct soda_convey *c, size_t bytes, const void *item, int64_t pe)
{
	int ret;

	if (c->state != WORKING)
		return wrong_state(c, "convey_push");
	if (pe < 0 || pe >= (int64_t)soda_msg_ranks(c->job))
		return tell(c, soda_msg_failed(-EINVAL, "no PE %" PRId64 " of %u", pe,
					       soda_msg_ranks(c->job)));
	ret = soda_msg_push(c->job, (unsigned)pe, item, bytes);
	c->full = ret == -EAGAIN;
	if (c->full)
		return convey_FAIL;
	if (ret < 0)
		return tell(c, ret);
	c->now[convey_PUSHES]++;
	idle = 0;
	return convey_OK;
}

SODA_API int soda_convey_push(struct soda_convey *c, const void *item, int64_t pe)
{
	return push(c, c->item_bytes, item, pe);
}

SODA_API int soda_convey_epush(struct soda_convey *c, size_t bytes, const void *item, int64_t pe)
{
	if (!c->elastic || bytes > c->bound)
		return tell(c, soda_msg_failed(-EMSGSIZE, "an item of %zu bytes: %zu are possible",
					       bytes, c->elastic ? c->bound : c->item_bytes));
	return push(c, bytes, item, pe);
}

/* Pulling */

/* An item is there: convey_OK; convey_FAIL: none; or an error. */
static int look(struct soda_convey *c)
{
	int ret;

	if (c->at < c->run.count)
		return convey_OK;
	if (c->phase_over)
		return convey_FAIL;
	c->run.count = c->at = 0;
	ret = soda_msg_pull_many(c->job, &c->run);
	c->phase_over = ret == -ENODATA;
	if (ret == -EAGAIN || ret == -ENODATA)
		return convey_FAIL;
	if (ret == 0 && c->run.bytes != c->item_bytes && !c->elastic)
		ret = soda_msg_failed(-EIO, "PE %u sends items of %zu bytes, not of %zu",
				      c->run.from, c->run.bytes, c->item_bytes);
	if (ret < 0) {
		c->run.count = 0;
		return tell(c, ret);
	}
	return convey_OK;
}

/* The next item, which is one of `bytes`, if that is not SIZE_MAX. NULL: *ret_p says why. */
static const void *next(struct soda_convey *c, size_t bytes, int64_t *from, int *ret_p)
{
	const void *item;

	*ret_p = c->state == DORMANT ? wrong_state(c, "convey_pull") : look(c);
	if (*ret_p != convey_OK)
		return NULL;
	if (bytes != SIZE_MAX && c->run.bytes != bytes) {
		*ret_p = convey_FAIL;
		return NULL;
	}
	item = (const char *)c->run.data + c->at++ * c->run.bytes;
	if (from)
		*from = c->run.from;
	c->now[convey_PULLS]++;
	idle = 0;
	return item;
}

/* The item itself, or a copy that is aligned. NULL: no memory. */
static void *aligned(struct soda_convey *c, const void *item)
{
	size_t bytes = (c->run.bytes + CONVEY_MAX_ALIGN - 1) / CONVEY_MAX_ALIGN * CONVEY_MAX_ALIGN;

	if (!((uintptr_t)item & (c->align - 1)))
		return (void *)(uintptr_t)item;
	if (bytes > c->copy_bytes) {
		free(c->copy);
		c->copy = aligned_alloc(CONVEY_MAX_ALIGN, bytes);
		c->copy_bytes = c->copy ? bytes : 0;
	}
	if (!c->copy) {
		c->at--;
		soda_msg_failed(-ENOMEM, "no memory for an item of %zu bytes", c->run.bytes);
		return NULL;
	}
	return memcpy(c->copy, item, c->run.bytes);
}

SODA_API int soda_convey_pull(struct soda_convey *c, void *item, int64_t *from)
{
	int ret;
	const void *found = next(c, c->item_bytes, from, &ret);

	if (found)
		memcpy(item, found, c->item_bytes);
	return ret;
}

SODA_API void *soda_convey_apull(struct soda_convey *c, int64_t *from)
{
	int ret;
	const void *found = next(c, c->item_bytes, from, &ret);

	return found ? aligned(c, found) : NULL;
}

SODA_API int soda_convey_epull(struct soda_convey *c, convey_item_t *result)
{
	const void *found;
	int64_t from;
	void *data;
	int ret;

	if (!c->elastic)
		return tell(c, soda_msg_failed(-EINVAL, "convey_epull() of a conveyor that is not "
							"elastic"));
	found = next(c, SIZE_MAX, &from, &ret);
	if (!found)
		return ret;
	data = aligned(c, found);
	if (!data)
		return tell(c, -ENOMEM);
	*result = (convey_item_t){ .bytes = c->run.bytes, .data = data, .from = from };
	return convey_OK;
}

SODA_API int soda_convey_unpull(struct soda_convey *c)
{
	if (c->state == DORMANT)
		return wrong_state(c, "convey_unpull");
	if (!c->at)
		return convey_FAIL;
	c->at--;
	c->now[convey_UNPULLS]++;
	return convey_OK;
}

/* Progress */

/* Nothing to do for a while: others of this machine may be. */
static void rest(struct soda_convey *c)
{
	if (++idle < IDLE_MOST)
		return;
	soda_msg_wait(c->job, SODA_MSG_PULL | (c->full ? SODA_MSG_PUSH : 0), IDLE_MS);
}

SODA_API int soda_convey_advance(struct soda_convey *c, bool done)
{
	int ret;

	if (c->state == DORMANT || (c->state != WORKING && !done))
		return wrong_state(c, "convey_advance");
	c->now[convey_ADVANCES]++;
	if (done && c->state == WORKING) {
		ret = soda_msg_finish(c->job);
		if (ret < 0)
			return tell(c, ret);
		c->state = ENDGAME;
	}
	ret = look(c);
	if (ret == convey_FAIL && c->phase_over) {
		c->state = COMPLETE;
		return convey_DONE;
	}
	if (ret < 0)
		return ret;
	ret = soda_msg_progress(c->job);
	if (ret < 0)
		return tell(c, ret);
	rest(c);
	return convey_OK;
}

/* Questions */

SODA_API size_t soda_convey_item_size(struct soda_convey *c)
{
	return c->state == DORMANT ? 0 : c->item_bytes;
}

SODA_API uint64_t soda_convey_features(struct soda_convey *c)
{
	return convey_STEADY | (c->elastic ? convey_ELASTIC : 0);
}

SODA_API int64_t soda_convey_statistic(struct soda_convey *c, int which)
{
	bool all = which >= convey_CUMULATIVE;
	int what = all ? which - convey_CUMULATIVE : which;
	struct soda_msg_stats stats;

	if (what < 0 || what >= convey_CUMULATIVE || what == convey_SYNCS)
		return -1;
	soda_msg_get_stats(c->job, &stats);
	if (what == convey_COMMS)
		return (int64_t)stats.sent_calls;
	if (what == convey_BYTES)
		return (int64_t)stats.sent_bytes;
	return c->now[what] + (all ? c->before[what] : 0);
}

SODA_API const char *soda_convey_error_string(struct soda_convey *c, int error)
{
	const char *last = soda_msg_last_error();

	(void)c;
	return error < 0 && *last ? last : soda_strerror(error);
}

static int64_t launched(bool ranks)
{
	struct soda_launch launch;
	struct soda_why why;
	int ret = soda_launch_find(&launch, &why);

	if (ret < 0)
		return soda_msg_failed(ret, "%s", why.text);
	return ranks ? launch.ranks : launch.rank;
}

SODA_API int64_t soda_convey_pe(void)
{
	return launched(false);
}

SODA_API int64_t soda_convey_pes(void)
{
	return launched(true);
}

SODA_API struct soda_msg_job *soda_convey_job(struct soda_convey *c)
{
	return c->job;
}
