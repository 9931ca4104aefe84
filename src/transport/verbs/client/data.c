/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rings of a data connection: posts, completions, waiting.  See data.h.
 *
 * Async-signal-safe after create, but in daemons (memory.h).
 */
#include <errno.h>
#include <string.h>

#include "base/lock.h"
#include "transport/api/memory.h"
#include "transport/api/rawsys.h"
#include "transport/verbs/client/data.h"

static struct soda_vdata *data(const struct soda_conn *conn)
{
	return (struct soda_vdata *)(uintptr_t)conn;
}

/* Its data stay in the slot for the caller to use. */
static bool stays(const struct soda_vdata *c, const struct soda_vrequest *r)
{
	return c->in_place && !r->write && !r->direct && r->bytes <= c->slot_bytes;
}

/* Slots */

static void free_slots(struct soda_vdata *c)
{
	while (c->freed != c->completed) {
		const struct soda_vpiece *p = &c->pieces[c->freed & (c->slots - 1)];

		if ((int32_t)(p->request - c->released) >= 0 &&
		    stays(c, soda_vdata_request(c, p->request)))
			break;
		c->freed++;
	}
}

/* The data of what was reported last have been used by now. */
static void release_reported(struct soda_vdata *c)
{
	if (c->released == c->done)
		return;
	c->released = c->done;
	free_slots(c);
}

/* A key to what a READ wants of a two-sided peer: it asks nobody. */
static void use_key(const struct soda_vdata *c, const struct soda_post *p, struct soda_vrequest *r)
{
	const struct soda_static_map *s =
		soda_vdata_keyed(c) ? soda_mr_keyed(p->mr, p->offset, p->bytes) : NULL;

	r->asks = !s;
	if (!s)
		return;
	r->rkey = s->rkey;
	r->offset = p->offset - s->offset;
}

static int data_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct soda_vdata *c = data(conn);
	struct soda_vrequest *r = soda_vdata_request(c, c->posted);
	uint64_t unit = p->offset / SODA_DIRTY_UNIT;

	if (!p->mr->keyed && !soda_vdata_two_sided(c))
		return -EINVAL;
	release_reported(c);
	*r = (struct soda_vrequest){ .cookie = p->cookie,
				     .offset = p->offset,
				     .data = p->data,
				     .bytes = p->bytes,
				     .rkey = p->mr->rkey,
				     .region_id = p->mr->region_id,
				     .write = p->write,
				     .asks = soda_vdata_two_sided(c),
				     .told = p->has };
	if (p->has)
		r->has = *p->has;
	if (r->asks && !p->write)
		use_key(c, p, r);
	if (c->reach && !soda_vdata_two_sided(c))
		r->direct = soda_verbs_reach_key(c->reach, p->data, p->bytes, &r->lkey);
	if (p->write && p->mr->dirty_at && !soda_vdata_two_sided(c)) {
		r->marks_at = p->mr->dirty_at + unit;
		r->marks = (uint8_t)((p->offset + p->bytes - 1) / SODA_DIRTY_UNIT - unit + 1);
	}
	c->posted++;
	return 0;
}

/* Completions */

static void take(struct soda_vdata *c, const struct soda_vrequest *r, const struct soda_vpiece *p,
		 const uint8_t *slot)
{
	if (c->reach) /* a daemon: it counts */
		soda_payload_copy(r->data + p->offset, slot, p->bytes);
	else
		memcpy(r->data + p->offset, slot, p->bytes);
}

/* Everything before piece `end` is here; the last of it came with this status. */
static void settle(struct soda_vdata *c, uint32_t end, int status)
{
	while (c->completed != end && c->completed != c->sent) {
		const struct soda_vpiece *p = &c->pieces[c->completed & (c->slots - 1)];
		struct soda_vrequest *r = soda_vdata_request(c, p->request);

		if (!r->status)
			r->status = status;
		if (!r->write && !r->direct && !r->status && !stays(c, r))
			take(c, r, p, soda_vdata_slot(c, c->completed));
		if (p->offset + p->bytes == r->bytes) {
			r->slot = c->completed & (c->slots - 1);
			c->answered++;
		}
		c->completed++;
	}
	free_slots(c);
}

static void reap(struct soda_vdata *c)
{
	struct ibv_wc wc;
	uint32_t end;
	int n, status;

	while ((n = ibv_poll_cq(c->link.cq, 1, &wc)) > 0)
		if (!c->failed && soda_vdata_completed(c, &wc, &end, &status))
			settle(c, end, status);
	if (n < 0 && !c->failed)
		c->failed = -EIO;
}

static int report(struct soda_vdata *c, struct soda_done *done, int max)
{
	int n = 0;

	for (; n < max && c->done != c->answered; n++) {
		const struct soda_vrequest *r = soda_vdata_request(c, c->done++);

		done[n] = (struct soda_done){ .cookie = r->cookie,
					      .bytes = r->bytes,
					      .status = r->status,
					      .data = stays(c, r) && !r->status
							      ? soda_vdata_slot(c, r->slot)
							      : NULL };
	}
	return n;
}

/* Completions in, requests out, answers reported: how many. */
static int turn(struct soda_vdata *c, struct soda_done *done, int max)
{
	reap(c);
	soda_vdata_pump(c);
	return report(c, done, max);
}

static int flush(struct soda_vdata *c, bool polling)
{
	int ret = 0;

	if (c->flushed == c->posted)
		return c->failed;
	c->flushed = c->posted;
	c->polling = polling;
	if (!polling)
		ret = soda_verbs_link_arm(&c->link);
	reap(c);
	soda_vdata_pump(c);
	/* answers that are here and not reported make the descriptor readable, too */
	if (!polling && c->done != c->answered && !c->poked) {
		soda_verbs_link_poke(&c->link, true);
		c->poked = true;
	}
	return c->done != c->answered ? 0 : c->failed ? c->failed : ret;
}

static int data_flush(struct soda_conn *conn, bool polling)
{
	int before = soda_verbs_uncancel(), ret = flush(data(conn), polling);

	soda_verbs_recancel(before);
	return ret;
}

/* Waiting */

/* Look busily for an answer, for at most spin_ns. */
static int look(struct soda_vdata *c, struct soda_done *done, int max, int64_t spin_ns)
{
	int n = 0;

	if (spin_ns <= 0 || !soda_spin_begin(&c->spin, (uint64_t)spin_ns))
		return 0;
	do {
		for (int i = 0; i < 8; i++)
			soda_cpu_relax();
		n = turn(c, done, max);
	} while (n == 0 && !c->failed && soda_spin_again(&c->spin));
	if (n || c->failed)
		soda_spin_end(&c->spin, n > 0);
	return n;
}

static int64_t until(uint64_t deadline_ns, int64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns <= 0)
		return timeout_ns;
	now = soda_now_ns();
	return now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
}

static int await(struct soda_vdata *c, struct soda_done *done, int max, int64_t timeout_ns,
		 int64_t spin_ns)
{
	uint64_t deadline_ns = timeout_ns > 0 ? soda_now_ns() + (uint64_t)timeout_ns : 0;
	int n = look(c, done, max, timeout_ns < 0 || spin_ns < timeout_ns ? spin_ns : timeout_ns);
	int64_t left;
	int ended;

	for (;;) {
		int ret = n || c->failed ? 0 : soda_verbs_link_arm(&c->link);

		if (n == 0)
			n = turn(c, done, max); /* what came before it was armed */
		if (n)
			return n;
		if (atomic_load_explicit(&c->conn.aborted, memory_order_acquire))
			return -ECONNABORTED;
		if (c->failed || ret < 0)
			return c->failed ? c->failed : ret;
		left = until(deadline_ns, timeout_ns);
		ended = soda_verbs_link_sleep(&c->link, left);
		n = turn(c, done, max);
		if (n || ended < 0)
			return n ? n : ended;
		if (left == 0)
			return 0;
	}
}

/* Nothing is under way: is the peer there? */
static int idle(struct soda_vdata *c)
{
	soda_verbs_link_drain(&c->link);
	if (c->failed)
		return c->failed;
	return soda_verbs_link_ended(&c->link) ? -ECONNRESET : 0;
}

/* Whoever waits on the descriptor now is told of what comes, not of what is here. */
static int top_up(struct soda_vdata *c, struct soda_done *done, int n, int max)
{
	if (!c->failed && soda_verbs_link_arm(&c->link) == 0)
		n += turn(c, done + n, max - n);
	return n;
}

static int data_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		     int64_t spin_ns)
{
	struct soda_vdata *c = data(conn);
	int before = soda_verbs_uncancel(), n;

	release_reported(c);
	if (c->poked)
		soda_verbs_link_poke(&c->link, false);
	c->poked = false;
	n = turn(c, done, max);
	if (n == 0 && c->done == c->flushed)
		n = idle(c);
	else if (n == 0)
		n = await(c, done, max, timeout_ns, spin_ns);
	if (n > 0 && n < max && c->done != c->flushed)
		n = top_up(c, done, n, max);
	soda_verbs_recancel(before);
	return n;
}

static int data_fd(const struct soda_conn *conn)
{
	return data(conn)->link.fd;
}

static int data_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	return soda_verbs_link_device(&data(conn)->link, name);
}

static void data_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = data(conn)->link.end_fd, .events = POLLIN };
}

static void data_abort(struct soda_conn *conn)
{
	soda_verbs_link_abort(&data(conn)->link);
}

const struct soda_conn_ops soda_vdata_ops = {
	.close = soda_vdata_close,
	.abort = data_abort,
	.fd = data_fd,
	.device = data_device,
	.reach_keyed = soda_vdata_reach_keyed,
	.end_poll = data_end_poll,
	.post = data_post,
	.flush = data_flush,
	.poll = data_poll,
};
