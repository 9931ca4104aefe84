/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/sender.h"

#include <errno.h>

#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/progress.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/owed.h"
#include "host_agent/pages/closed_pages.h"
#include "host_agent/pages/drop.h"
#include "host_agent/pages/protect.h"

enum { ANSWERS = 32 }; /* looked at together: this is on the stack of a signal handler, too */

void soda_sender_drop(struct soda_sender *s)
{
	int n = s->gone_n;

	if (!n)
		return;
	s->gone_n = 0;
	n = soda_drop_chunks(s->gone, n);
	soda_count(s->t, SODA_CNT_EVICTED_DIRTY, (uint64_t)n);
}

/*
 * The server has it as it is; drop it if that was the point.  A store meanwhile was its next use:
 * it stays, and what a fetch would have cost is saved.
 */
static void drop_later(struct soda_sender *s, uint32_t id, int why)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	soda_outgoing_leaves(why);
	if (why != SODA_WB_EVICT)
		return;
	while (soda_chunk_droppable(w)) {
		if (!soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
			continue;
		soda_replace_remove(&soda_agent.replacer, id);
		s->gone[s->gone_n++] = id;
		if (s->gone_n == SODA_DROP_MAX)
			soda_sender_drop(s);
		return;
	}
	soda_count(s->t, SODA_CNT_LOCAL_REFAULTS, soda_chunk_state(w) == SODA_CHUNK_DIRTY);
}

static void finish(struct soda_sender *s, const struct soda_sending *op)
{
	soda_count(s->t, SODA_CNT_BYTES_WRITTEN, op->bytes);
	soda_protect_learn(soda_region_of(op->id), op->mask);
	soda_owed_note(op->id); /* before SENDING goes, which soda_sync waits for */
	soda_chunk_flags(&soda_agent.table[op->id], SODA_CW_BACKED, SODA_CW_SENDING);
	drop_later(s, op->id, op->why);
}

/*
 * The blocks could not be brought to the server: they are dirty again, with SENDING replaced by
 * `flag` in one step, so that whoever waits for the chunk at no time takes it for done.  The word
 * before.
 */
static uint32_t restore(uint32_t id, uint32_t mask, uint32_t flag)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c), to;

	for (;;) {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (s != SODA_CHUNK_CLEAN && s != SODA_CHUNK_DIRTY) {
			soda_chunk_wait(c, 1000000); /* a store is being let in */
			w = soda_chunk_load(c);
			continue;
		}
		/* CLEAN -> DIRTY without the step over BUSY: the pages stay write-protected, which
		   a store to a dirty chunk copes with */
		to = ((w | mask << SODA_CW_DIRTY_SHIFT) & ~(SODA_CW_STATE | SODA_CW_SENDING)) |
		     SODA_CHUNK_DIRTY | flag;
		if (soda_chunk_swap(c, &w, to))
			return w;
	}
}

/* The connection failed it, not the server: it goes with the next one. */
static void queue_again(const struct soda_sending *op)
{
	uint32_t before = restore(op->id, op->mask, SODA_CW_QUEUED);

	if (before & SODA_CW_QUEUED) /* stored to and queued meanwhile: it has a place */
		soda_outgoing_leaves(op->why);
	else
		soda_outgoing_return(op->id, op->why);
}

static void op_ends(struct soda_sender *s, struct soda_sending *op)
{
	if (!op->failed) {
		finish(s, op);
	} else if (op->lost) {
		queue_again(op);
	} else {
		restore(op->id, op->mask, 0);
		soda_outgoing_leaves(op->why);
	}
	soda_closed_free(op->copy, soda_region_chunk_bytes(soda_region_of(op->id), op->id));
	op->used = false;
	s->used--;
}

/* For soda_sync of the chunk's object. */
static void count_refusal(uint32_t id, int err)
{
	struct soda_region *r = soda_region_of(id);

	atomic_store(&r->unsent_error, err);
	atomic_fetch_add(&r->unsent, 1);
}

/*
 * Data that the program has closed, and that the kernel does not let us read past that: said once
 * for an object, and for who waits for it.
 */
static void say_unreadable(const struct soda_sender *s, uint32_t id)
{
	static _Atomic uint32_t last;
	const struct soda_region *r = soda_region_of(id);

	count_refusal(id, -EFAULT);
	if (atomic_exchange(&last, r->id) != r->id)
		soda_log_error("dirty data of %s is not written back to %s: it cannot be read, as "
			       "the program has closed it (mprotect) and /proc/self/mem does not "
			       "give it; it stays in memory until it is open again",
			       r->name[0] ? r->name
			       : r->file  ? r->file
					  : "an object",
			       soda_conn_peer(s->conn));
}

/* As it was, and in the queue no more. */
static void refuse(const struct soda_outgoing *out)
{
	struct soda_chunk *c = &soda_agent.table[out->id];

	soda_chunk_settle(c, SODA_CHUNK_DIRTY, soda_chunk_dirty(soda_chunk_load(c)), 0,
			  SODA_CW_QUEUED);
	soda_outgoing_leaves(out->why);
}

/* Runs of dirty blocks as WRITEs, each whole pages. Returns how many were posted. */
static int post_runs(struct soda_sender *s, struct soda_sending *op)
{
	struct soda_region *r = soda_region_of(op->id);
	uint64_t offset = soda_region_offset(r, op->id);
	uint32_t have = soda_region_chunk_bytes(r, op->id), mask = op->mask;
	char *base = op->copy ? op->copy : soda_chunk_address(op->id);
	int n = 0;

	while (mask) {
		uint32_t first = (uint32_t)__builtin_ctz(mask);
		uint32_t len = (uint32_t)__builtin_ctz(~(mask >> first));
		uint32_t from = first << soda_agent.block_shift;
		uint32_t to = (first + len) << soda_agent.block_shift;
		int ret;

		mask &= ~(((1u << len) - 1) << first);
		if (from >= have)
			break;
		to = to < have ? to : have;
		ret = soda_conn_post_write(s->conn, &r->mr, offset + from, to - from, base + from,
					   (uint64_t)(op - s->ops));
		if (ret)
			return ret;
		op->bytes += to - from;
		n++;
	}
	return n;
}

/* There is one: not more are taken from the queue. */
static struct soda_sending *free_op(struct soda_sender *s)
{
	struct soda_sending *op = s->ops;

	while (op->used)
		op++;
	return op;
}

/*
 * A chunk that we made BUSY and write-protected goes out. 0, or the connection's error.  copy: of
 * one that may not be read, or NULL.
 */
static int send_chunk(struct soda_sender *s, const struct soda_outgoing *out, void *copy)
{
	struct soda_sending *op = free_op(s);
	int n;

	*op = (struct soda_sending){
		.id = out->id,
		.mask = out->mask,
		.why = (uint8_t)out->why,
		.used = true,
		.copy = copy,
	};
	s->used++;
	soda_chunk_settle(&soda_agent.table[out->id], SODA_CHUNK_CLEAN, 0, SODA_CW_SENDING,
			  SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
	n = post_runs(s, op);
	if (n > 0) {
		op->parts = (uint16_t)n;
		return 0;
	}
	op->failed = op->lost = true;
	op_ends(s, op);
	return n;
}

/* One that the program has closed. As above; *refused_p: it does not go. */
static int send_closed(struct soda_sender *s, const struct soda_outgoing *out, bool *refused_p)
{
	uint32_t bytes = soda_region_chunk_bytes(soda_region_of(out->id), out->id);
	void *copy = soda_closed_copy(soda_chunk_address(out->id), bytes);

	if (copy)
		return send_chunk(s, out, copy);
	say_unreadable(s, out->id);
	refuse(out);
	*refused_p = true;
	return 0;
}

/* The server has refused the object, and would refuse this. */
static bool has_no_place(const struct soda_outgoing *out)
{
	return atomic_load_explicit(&soda_region_of(out->id)->refused, memory_order_relaxed);
}

int soda_sender_send(struct soda_sender *s)
{
	struct soda_outgoing out[SODA_OUTGOING_MAX];
	int n = soda_outgoing_take(out, (int)(s->max - s->used)), err = 0;
	bool tell = false;

	for (int i = 0; i < n; i++) {
		int ret = 0;

		if (out[i].mask && has_no_place(&out[i])) {
			count_refusal(out[i].id, -EIO);
			refuse(&out[i]);
			tell = true;
		} else if (out[i].unreadable) {
			ret = send_closed(s, &out[i], &tell);
		} else if (out[i].mask) {
			ret = send_chunk(s, &out[i], NULL);
		} else {
			drop_later(s, out[i].id, out[i].why);
			tell = true;
		}
		err = err ? err : ret;
	}
	if (tell)
		soda_progress_tell();
	if (!err && s->used)
		err = soda_conn_flush(s->conn, false);
	return err ? err : n;
}

static void answered(struct soda_sender *s, const struct soda_done *done, int n)
{
	for (int i = 0; i < n; i++) {
		struct soda_sending *op = &s->ops[done[i].cookie];

		if (done[i].status && !op->failed) {
			op->failed = true;
			count_refusal(op->id, done[i].status);
			soda_log_error(
				"write-back of %u bytes to %s failed: %s; the data stays in memory",
				op->bytes, soda_conn_peer(s->conn), soda_strerror(done[i].status));
		}
		if (--op->parts == 0)
			op_ends(s, op);
	}
}

int soda_sender_collect(struct soda_sender *s, int64_t timeout_ns)
{
	struct soda_done done[ANSWERS];
	int n = soda_conn_poll(s->conn, done, ANSWERS, timeout_ns, 0);

	if (n < 0)
		return n;
	if (!n) {
		soda_sender_drop(s); /* no answer to batch them with: others wait for them */
		return 0;
	}
	answered(s, done, n);
	/* Dropping in batches is cheaper; waiting for a full one would starve a fault. */
	if (s->gone_n >= SODA_DROP_MAX / 2 || s->used < s->max / 4 ||
	    atomic_load(&soda_agent.buffer.waiters))
		soda_sender_drop(s);
	soda_progress_answered();
	return n;
}

void soda_sender_lose(struct soda_sender *s, int err)
{
	if (err == -EFAULT)
		soda_outgoing_doubt();
	for (uint32_t i = 0; i < s->max; i++) {
		struct soda_sending *op = &s->ops[i];

		if (!op->used)
			continue;
		op->failed = op->lost = true;
		op_ends(s, op);
	}
	soda_sender_drop(s);
	soda_writeback_ring();
}
