/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/stream.h"

#include <string.h>

enum { WINDOW_START = 4, STRIDE_MAX = 64 };

void soda_streams_init(struct soda_streams *st)
{
	memset(st, 0, sizeof(*st));
	st->last = -1;
}

/* Whether id is on the stride, from the next expected chunk to the first one behind the window. */
static bool continues(const struct soda_stream *s, int64_t id)
{
	int64_t steps = s->stride ? (id - s->next) / s->stride : 0;

	return s->stride && id >= s->base && id < s->limit && (id - s->next) % s->stride == 0 &&
	       steps >= 0 && (s->ahead - id) / s->stride >= 0;
}

static struct soda_stream *oldest(struct soda_streams *st)
{
	struct soda_stream *o = &st->s[0];

	for (int i = 1; i < SODA_STREAMS; i++)
		if (!st->s[i].stride ||
		    (o->stride && st->turn - st->s[i].used > st->turn - o->used))
			o = &st->s[i];
	return o;
}

static uint32_t unconfirmed(const struct soda_stream *s)
{
	return s->stride ? (uint32_t)((s->ahead - s->next) / s->stride) : 0;
}

/* Plan the chunks from `ahead` to the window's end, within the object, and move `ahead` there. */
static struct soda_plan extend(struct soda_stream *s)
{
	struct soda_plan p = { .first = s->ahead, .stride = s->stride };
	int64_t have = (s->ahead - s->next) / s->stride;
	int64_t room = s->stride > 0 ? (s->limit - 1 - s->ahead) / s->stride + 1
				     : (s->ahead - s->base) / -s->stride + 1;

	if (s->ahead < s->base || s->ahead >= s->limit)
		room = 0;
	/* Only when half of the window is free, so that several requests travel together. */
	if (have * 2 <= s->window) {
		int64_t n = (int64_t)s->window - have;

		p.n = (uint32_t)(n < room ? n : room);
	}
	s->ahead += (int64_t)p.n * s->stride;
	return p;
}

static struct soda_plan advance(struct soda_streams *st, struct soda_stream *s, int64_t id,
				uint32_t window_max)
{
	s->used = st->turn;
	s->next = id + s->stride;
	if ((s->ahead - s->next) / s->stride < 0)
		s->ahead = s->next;
	s->window = s->window * 2 < window_max ? s->window * 2 : window_max;
	st->wasted /= 2;
	return extend(s);
}

static struct soda_plan begin(struct soda_streams *st, int64_t id, int64_t base, int64_t limit,
			      int32_t stride, uint32_t window_max)
{
	struct soda_stream *s = oldest(st);
	uint32_t useless = unconfirmed(s), window = WINDOW_START;
	struct soda_plan p;

	st->wasted += useless;
	if (st->wasted > 8)
		window = 1;
	*s = (struct soda_stream){
		.next = id + stride,
		.ahead = id + stride,
		.base = base,
		.limit = limit,
		.stride = stride,
		.window = window < window_max ? window : window_max,
		.used = st->turn,
	};
	p = extend(s);
	p.useless = useless;
	return p;
}

struct soda_plan soda_streams_note(struct soda_streams *st, int64_t id, int64_t base, int64_t limit,
				   uint32_t window_max, bool eager)
{
	struct soda_plan none = { 0 };
	int64_t delta;

	if (!window_max)
		return none;
	st->turn++;
	for (int i = 0; i < SODA_STREAMS; i++)
		if (continues(&st->s[i], id))
			return advance(st, &st->s[i], id, window_max);
	delta = st->last >= base && st->last < limit ? id - st->last : 0;
	if (delta && delta >= -STRIDE_MAX && delta <= STRIDE_MAX &&
	    (delta == st->last_delta || (eager && delta == 1))) {
		st->last = -1;
		st->last_delta = 0;
		return begin(st, id, base, limit, (int32_t)delta, window_max);
	}
	st->last = id;
	st->last_delta = delta;
	return none;
}

bool soda_streams_expect(const struct soda_streams *st, int64_t id)
{
	for (int i = 0; i < SODA_STREAMS; i++)
		if (continues(&st->s[i], id))
			return true;
	return false;
}

void soda_streams_cut(struct soda_streams *st, const struct soda_plan *plan, uint32_t done)
{
	int64_t end = plan->first + (int64_t)plan->n * plan->stride;

	for (int i = 0; i < SODA_STREAMS; i++) {
		struct soda_stream *s = &st->s[i];

		if (s->stride != plan->stride || s->ahead != end)
			continue;
		s->ahead = plan->first + (int64_t)done * plan->stride;
		if ((s->ahead - s->next) / s->stride < 0) /* it was another stream with that end */
			s->ahead = s->next;
	}
}
