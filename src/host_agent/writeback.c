/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/writeback.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/lock.h"
#include "common/log.h"
#include "host_agent/agent.h"
#include "host_agent/evict.h"
#include "host_agent/helper.h"
#include "host_agent/protect.h"
#include "host_agent/session.h"

enum { QUEUE = 8192, OPS = 64, PARTS_MAX = 8 };

struct op {
	uint32_t id;
	uint32_t mask; /* blocks that it carries */
	uint32_t bytes;
	uint16_t parts; /* WRITEs not answered yet */
	uint8_t why;
	bool used, failed; /* failed: refused, or */
	bool lost;	   /* not answered, as the connection failed */
};

static struct writeback {
	pthread_t thread;
	bool running; /* set before start */
	_Atomic bool stop;
	_Atomic uint32_t bell; /* futex: goes up when there is something to do */
	_Atomic uint32_t asleep;
	_Atomic uint32_t progress; /* futex: goes up with each answered batch */
	_Atomic uint32_t watchers; /* that wait for progress */
	_Atomic uint32_t answers;
	_Atomic int error;	   /* of the last refused WRITE */
	_Atomic uint32_t refusals; /* goes up after `error` is set */

	struct soda_lock lock;
	/* guarded by lock */
	uint64_t queue[QUEUE]; /* chunk id, and why << 32 */
	uint32_t head, tail;
	struct soda_conn *next_conn; /* from the keeper */
	_Atomic bool drop_conn;	     /* the keeper wants the connection gone */

	struct soda_conn *conn; /* used by the thread alone, set under lock */

	/* the thread's own */
	struct op ops[OPS];
	uint32_t ops_used;
	uint32_t gone[SODA_EVICT_BATCH];
	int gone_n;
} wb;

static void ring(void)
{
	atomic_fetch_add(&wb.bell, 1);
	if (atomic_load(&wb.asleep))
		soda_futex_wake(&wb.bell, 1);
}

static void tell_progress(void)
{
	atomic_fetch_add(&wb.progress, 1);
	if (atomic_load(&wb.watchers))
		soda_futex_wake(&wb.progress, INT32_MAX);
}

uint32_t soda_writeback_progress(void)
{
	return atomic_load(&wb.progress);
}

uint32_t soda_writeback_answers(void)
{
	return atomic_load(&wb.answers);
}

uint32_t soda_writeback_refusals(int *error_p)
{
	uint32_t n = atomic_load(&wb.refusals);

	*error_p = atomic_load(&wb.error);
	return n;
}

void soda_writeback_await(uint32_t seen, int64_t timeout_ns)
{
	atomic_fetch_add(&wb.watchers, 1);
	soda_futex_wait(&wb.progress, seen, timeout_ns);
	atomic_fetch_sub(&wb.watchers, 1);
}

int soda_writeback_queue(const uint32_t *ids, int n, int why)
{
	int queued = 0;

	soda_lock_acquire(&wb.lock);
	while (queued < n && wb.tail - wb.head < QUEUE)
		wb.queue[wb.tail++ % QUEUE] = ids[queued++] | (uint64_t)why << 32;
	soda_lock_release(&wb.lock);
	for (int i = queued; i < n; i++)
		soda_chunk_flags(&soda_agent.table[ids[i]], 0, SODA_CW_QUEUED);
	if (why == SODA_WB_EVICT)
		atomic_fetch_add(&soda_agent.buffer.sending, queued);
	ring();
	return queued;
}

static void leaves(int why)
{
	if (why == SODA_WB_EVICT)
		atomic_fetch_sub(&soda_agent.buffer.sending, 1);
}

/* The blocks could not be brought to the server: they are dirty again. */
static void restore(uint32_t id, uint32_t mask)
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
		     SODA_CHUNK_DIRTY;
		if (soda_chunk_swap(c, &w, to))
			return;
	}
}

static void drop_gone(struct soda_thread *t)
{
	int n = wb.gone_n;

	if (!n)
		return;
	wb.gone_n = 0;
	n = soda_evict_drop(t, wb.gone, n);
	soda_count(t, SODA_CNT_EVICTED_DIRTY, (uint64_t)n);
}

/* It is on the server; drop it if that was the point and nobody stored to it meanwhile. */
static void finish(struct soda_thread *t, struct op *op)
{
	struct soda_chunk *c = &soda_agent.table[op->id];
	uint32_t w;

	soda_count(t, SODA_CNT_BYTES_WRITTEN, op->bytes);
	soda_protect_learn(soda_region_of(op->id), op->mask);
	soda_chunk_flags(c, SODA_CW_BACKED, SODA_CW_SENDING);
	leaves(op->why);
	if (op->why != SODA_WB_EVICT)
		return;
	w = soda_chunk_load(c);
	while (soda_chunk_droppable(w)) {
		if (!soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
			continue;
		soda_replace_remove(&soda_agent.replacer, op->id);
		wb.gone[wb.gone_n++] = op->id;
		if (wb.gone_n == SODA_EVICT_BATCH)
			drop_gone(t);
		return;
	}
}

/* The connection failed it, not the server: it goes with the next one. */
static void queue_again(uint32_t id, int why)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	while (soda_chunk_state(w) == SODA_CHUNK_DIRTY && !(w & SODA_CW_QUEUED)) {
		if (soda_chunk_swap(c, &w, w | SODA_CW_QUEUED)) {
			soda_writeback_queue(&id, 1, why);
			return;
		}
	}
}

static void op_ends(struct soda_thread *t, struct op *op)
{
	if (op->failed) {
		restore(op->id, op->mask);
		leaves(op->why);
		if (op->lost)
			queue_again(op->id, op->why);
	} else {
		finish(t, op);
	}
	op->used = false;
	wb.ops_used--;
}

/* The connection is lost: nothing that is in flight will be answered. */
static void lost(struct soda_thread *t)
{
	struct soda_conn *conn;

	for (int i = 0; i < OPS; i++) {
		if (wb.ops[i].used) {
			wb.ops[i].failed = wb.ops[i].lost = true;
			op_ends(t, &wb.ops[i]);
		}
	}
	drop_gone(t);
	soda_lock_acquire(&wb.lock);
	conn = wb.conn;
	wb.conn = NULL;
	soda_lock_release(&wb.lock);
	soda_conn_close(conn);
	tell_progress();
}

/* Runs of dirty blocks as WRITEs, each whole pages. Returns how many were posted. */
static int post_runs(struct op *op, int slot)
{
	struct soda_region *r = soda_region_of(op->id);
	uint64_t offset = soda_region_offset(r, op->id);
	uint32_t have = soda_region_chunk_bytes(r, op->id), mask = op->mask;
	char *base = soda_chunk_address(op->id);
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
		ret = soda_conn_post_write(wb.conn, &r->mr, offset + from, to - from, base + from,
					   (uint64_t)slot);
		if (ret)
			return ret;
		op->bytes += to - from;
		n++;
	}
	return n;
}

static int free_slot(void)
{
	for (int i = 0; i < OPS; i++)
		if (!wb.ops[i].used)
			return i;
	return -1;
}

/* A chunk that we made BUSY and write-protected goes out. 0, or the connection's error. */
static int send_chunk(struct soda_thread *t, uint32_t id, uint32_t mask, int why)
{
	int slot = free_slot(), n;
	struct op *op = &wb.ops[slot];

	*op = (struct op){ .id = id, .mask = mask, .why = (uint8_t)why, .used = true };
	wb.ops_used++;
	soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_CLEAN, 0, SODA_CW_SENDING,
			  SODA_CW_QUEUED);
	n = post_runs(op, slot);
	if (n > 0) {
		op->parts = (uint16_t)n;
		return 0;
	}
	op->failed = op->lost = true;
	op_ends(t, op);
	return n;
}

/* What of the chunk must travel: all of it where the server may hold what was discarded. */
static uint32_t blocks_to_send(uint32_t id, uint32_t w)
{
	bool stale = atomic_load_explicit(&soda_region_of(id)->stale, memory_order_relaxed);

	return stale && !(w & SODA_CW_BACKED) ? soda_blocks_all() : soda_chunk_dirty(w);
}

/* Dirty and not in flight: ours. 0: not to be sent now. */
static uint32_t begin(uint32_t id, bool *again_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	*again_p = false;
	for (;;) {
		if (w & SODA_CW_SENDING) {
			*again_p = true;
			return 0;
		}
		if (soda_chunk_state(w) == SODA_CHUNK_BUSY && !soda_chunk_wait(c, 1000000)) {
			w = soda_chunk_load(c); /* a store was let in */
			continue;
		}
		if (soda_chunk_state(w) != SODA_CHUNK_DIRTY) {
			if (soda_chunk_swap(c, &w, w & ~SODA_CW_QUEUED))
				return 0;
		} else if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
			return blocks_to_send(id, w);
		}
	}
}

struct outgoing {
	uint32_t id, mask;
	int why;
};

/* Neighbours share one call: a protection change flushes other cores' TLBs each time. */
static void protect_batch(struct outgoing *out, int n)
{
	for (int i = 0; i < n;) {
		int k = i + 1;
		struct soda_region *r = soda_region_of(out[i].id);
		uint64_t bytes = soda_region_chunk_bytes(r, out[i].id);

		while (k < n && out[k].id == out[k - 1].id + 1 && soda_region_of(out[k].id) == r)
			bytes += soda_region_chunk_bytes(r, out[k++].id);
		if (soda_agent.pager->protect(soda_chunk_address(out[i].id), bytes, true))
			abort(); /* resident, registered, ours: the kernel has no reason to refuse
				  */
		i = k;
	}
}

static int by_id(const void *a, const void *b)
{
	const struct outgoing *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int pop_batch(struct outgoing *out, int max)
{
	uint64_t taken[OPS];
	int n = 0, k = 0;

	soda_lock_acquire(&wb.lock);
	while (n < max && wb.head != wb.tail)
		taken[n++] = wb.queue[wb.head++ % QUEUE];
	soda_lock_release(&wb.lock);
	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)taken[i];
		int why = (int)(taken[i] >> 32);
		bool again;

		out[k] = (struct outgoing){ id, begin(id, &again), why };
		if (out[k].mask) {
			k++;
			continue;
		}
		leaves(why);
		if (again)
			soda_writeback_queue(&id, 1, why);
	}
	return k;
}

static int send_batch(struct soda_thread *t)
{
	struct outgoing out[OPS];
	int n = pop_batch(out, (int)(OPS - wb.ops_used)), err = 0;

	if (!n)
		return 0;
	qsort(out, (size_t)n, sizeof(out[0]), by_id);
	protect_batch(out, n);
	for (int i = 0; i < n; i++) {
		int ret = send_chunk(t, out[i].id, out[i].mask, out[i].why);

		err = err ? err : ret;
	}
	return err;
}

static void answered(struct soda_thread *t, const struct soda_done *done, int n)
{
	for (int i = 0; i < n; i++) {
		struct op *op = &wb.ops[done[i].cookie];

		if (done[i].status && !op->failed) {
			op->failed = true;
			atomic_store(&wb.error, done[i].status);
			atomic_fetch_add(&wb.refusals, 1);
			soda_log_error(
				"write-back of %u bytes to %s failed: %s; the data stays in memory",
				op->bytes, soda_conn_peer(wb.conn), soda_strerror(done[i].status));
		}
		if (--op->parts == 0)
			op_ends(t, op);
	}
}

static void idle(uint32_t seen)
{
	atomic_store(&wb.asleep, 1);
	if (atomic_load(&wb.bell) == seen)
		soda_futex_wait(&wb.bell, seen, 200000000);
	atomic_store(&wb.asleep, 0);
}

static void adopt_connection(struct soda_thread *t)
{
	if (atomic_load(&wb.drop_conn)) {
		lost(t);
		atomic_store(&wb.drop_conn, false);
		tell_progress();
	}
	soda_lock_acquire(&wb.lock);
	if (!wb.conn && wb.next_conn) {
		wb.conn = wb.next_conn;
		wb.next_conn = NULL;
	}
	soda_lock_release(&wb.lock);
}

static void turn(struct soda_thread *t)
{
	struct soda_done done[OPS * PARTS_MAX];
	uint32_t seen = atomic_load(&wb.bell);
	int n;

	adopt_connection(t);
	if (!wb.conn) {
		idle(seen);
		return;
	}
	n = send_batch(t);
	if (!n && !wb.ops_used) {
		drop_gone(t);
		idle(seen);
		return;
	}
	if (!n)
		n = soda_conn_flush(wb.conn, false);
	if (!n)
		n = soda_conn_poll(wb.conn, done, OPS * PARTS_MAX, 100000000, 0);
	if (n < 0) {
		soda_session_report(n);
		lost(t);
		return;
	}
	answered(t, done, n);
	/* Dropping in batches is cheaper; waiting for a full one would starve a fault. */
	if (wb.gone_n >= SODA_EVICT_BATCH / 2 || wb.ops_used < OPS / 4 ||
	    atomic_load(&soda_agent.buffer.waiters))
		drop_gone(t);
	if (n) {
		atomic_fetch_add(&wb.answers, 1);
		tell_progress();
	}
}

static void *run(void *arg)
{
	struct soda_thread *t = soda_thread_internal();

	while (!atomic_load(&wb.stop))
		turn(t);
	lost(t);
	return NULL;
}

int soda_writeback_start(void)
{
	int ret;

	memset(&wb, 0, sizeof(wb));
	soda_lock_init(&wb.lock, SODA_RANK_WRITEBACK);
	ret = soda_helper_start(&wb.thread, "soda-writeback", run);
	wb.running = !ret;
	return ret;
}

void soda_writeback_stop(void)
{
	if (!wb.running)
		return;
	atomic_store(&wb.stop, true);
	ring();
	pthread_join(wb.thread, NULL);
	soda_conn_close(wb.next_conn);
	wb.running = false;
}

void soda_writeback_connect(struct soda_conn *conn)
{
	soda_lock_acquire(&wb.lock);
	wb.next_conn = conn;
	soda_lock_release(&wb.lock);
	ring();
}

void soda_writeback_disconnect(void)
{
	struct soda_conn *unused;

	soda_lock_acquire(&wb.lock);
	unused = wb.next_conn;
	wb.next_conn = NULL;
	if (wb.conn) /* the thread may be blocked in it */
		soda_conn_abort(wb.conn);
	soda_lock_release(&wb.lock);
	soda_conn_close(unused);
	atomic_store(&wb.drop_conn, true);
	ring();
	while (atomic_load(&wb.drop_conn) && !atomic_load(&wb.stop)) {
		uint32_t seen = atomic_load(&wb.progress);

		if (atomic_load(&wb.drop_conn))
			soda_writeback_await(seen, 10000000);
	}
}

void soda_writeback_forget(void (*fn)(struct soda_conn *conn))
{
	fn(wb.conn);
	fn(wb.next_conn);
}
