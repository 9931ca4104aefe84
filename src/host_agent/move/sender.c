/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/sender.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tracepoint.h"
#include "host_agent/core/agent.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/frozen.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/stripe.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/protect.h"

/*
 * New chunks fill half of the ring at most.  The other half is for chunks that senders took and put
 * back, so that there is always a place for these: all senders together hold some 3000 at a time
 * (64 channels and the thread, each with a batch under way and one just taken).
 */
enum { RING = 16384 };
_Static_assert(SODA_WRITEBACK_QUEUE <= RING / 2,
	       "the other half is for chunks that senders put back");

struct queue {
	struct soda_lock lock;
	/* guarded by lock */
	uint64_t chunks[RING];	     /* chunk id, and why << 32 */
	_Atomic uint32_t head, tail; /* changed with lock; read without it, too */
};

static struct queue queues[SODA_MEMBERS_MAX]; /* a chunk waits in its server's */
static _Atomic uint32_t queue_refused;
static _Atomic bool queue_doubt; /* see doubt_all() */

/*
 * Chunks that one copy's server has acknowledged, and that the relay's server gets next.  New
 * chunks are not sent while RELAYED_MOST are in relays; besides these all senders together have
 * some 17000 under way (1088 to each of 16 servers), so that a relay always has a place.
 */
enum { RELAY = 32768, RELAYED_MOST = 8192 };

struct relay {
	/* guarded by the queue's lock */
	struct soda_relayed chunks[RELAY];
	_Atomic uint32_t head, tail;
};

static struct relay relays[SODA_MEMBERS_MAX];
/* In all relays, and those that a sender has taken from there and not yet passed on. */
static _Atomic uint32_t relayed_n;

uint64_t soda_sender_queue_bytes(void)
{
	return soda_members() * (sizeof(queues[0]) + (soda_redundant() ? sizeof(relays[0]) : 0));
}

void soda_sender_queue_clear(const struct soda_link *link)
{
	struct queue *queue = &queues[link->index];

	soda_lock_init(&queue->lock, SODA_RANK_WRITEBACK);
	queue->head = queue->tail = 0;
	relays[link->index].head = relays[link->index].tail = 0;
	queue_doubt = false;
}

/* Of a slab with copies: that of the first one's server. */
static struct queue *queue_of(uint32_t id)
{
	const struct soda_region *r;

	if (soda_members() <= 1)
		return &queues[0];
	r = soda_region_of(id);
	if (soda_copies(r))
		return &queues[soda_copy_link(r, (uint32_t)soda_copies_next(r, 0))->index];
	return &queues[r->link->index];
}

/* As many of the chunks as have room there. */
static int put(struct queue *queue, const uint32_t *ids, int n, int why)
{
	int queued = 0;

	soda_lock_acquire(&queue->lock);
	while (queued < n && queue->tail - queue->head < SODA_WRITEBACK_QUEUE)
		queue->chunks[queue->tail++ % RING] = ids[queued++] | (uint64_t)why << 32;
	soda_lock_release(&queue->lock);
	return queued;
}

/* Neighbours in the array that go to the same server with one lock, until one has no room. */
static int put_all(const uint32_t *ids, int n, int why)
{
	int done = 0, to, got;

	if (soda_members() <= 1)
		return put(&queues[0], ids, n, why);
	for (int from = 0; from < n; from = to) {
		struct queue *queue = queue_of(ids[from]);

		for (to = from + 1; to < n && queue_of(ids[to]) == queue;)
			to++;
		got = put(queue, ids + from, to - from, why);
		done += got;
		if (got < to - from)
			break;
	}
	return done;
}

int soda_sender_queue_put(const uint32_t *ids, int n, int why)
{
	int queued = put_all(ids, n, why);

	if (queued < n)
		atomic_fetch_add(&queue_refused, 1);
	for (int i = queued; i < n; i++)
		soda_chunk_flags(&soda_agent.table[ids[i]], 0, SODA_CW_QUEUED);
	if (why == SODA_WB_EVICT)
		atomic_fetch_add(&soda_agent.buffer.sending, queued);
	return queued;
}

uint32_t soda_sender_queue_refused(void)
{
	return atomic_load(&queue_refused);
}

void soda_sender_queue_each(void (*fn)(uint32_t id, int why, void *arg), void *arg)
{
	for (struct queue *q = queues; q < queues + soda_members(); q++)
		for (uint32_t i = q->head; i != q->tail; i++)
			fn((uint32_t)q->chunks[i % RING], (int)(q->chunks[i % RING] >> 32), arg);
}

void soda_sender_relays_each(void (*fn)(uint32_t id, int why, void *arg), void *arg)
{
	for (struct relay *q = relays; q < relays + soda_members(); q++)
		for (uint32_t i = q->head; i != q->tail; i++)
			fn(q->chunks[i % RELAY].id, q->chunks[i % RELAY].why, arg);
}

bool soda_sender_relays_taken(void)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < soda_members(); k++)
		n += relays[k].tail - relays[k].head;
	return atomic_load(&relayed_n) > n;
}

static uint32_t waits(const _Atomic uint32_t *head, const _Atomic uint32_t *tail)
{
	uint32_t from = atomic_load_explicit(head, memory_order_relaxed);

	return atomic_load_explicit(tail, memory_order_relaxed) - from;
}

uint32_t soda_sender_queue_waits_for(const struct soda_link *link)
{
	const struct queue *queue = &queues[link->index];
	const struct relay *relay = &relays[link->index];
	uint32_t n = waits(&queue->head, &queue->tail);

	return soda_redundant() ? n + waits(&relay->head, &relay->tail) : n;
}

uint32_t soda_sender_queue_waiting(void)
{
	uint32_t sum = 0;

	for (uint32_t k = 0; k < soda_members(); k++)
		sum += soda_sender_queue_waits_for(&soda_agent.links[k]);
	return sum;
}

/* A chunk that was queued for this reason is neither queued nor under way any more. */
static void leaves(int why)
{
	if (why == SODA_WB_EVICT)
		atomic_fetch_sub(&soda_agent.buffer.sending, 1);
}

/* The blocks to send: all, where the server may still hold content that was discarded. */
static uint32_t blocks_to_send(uint32_t id, uint32_t w)
{
	bool stale = atomic_load_explicit(&soda_region_of(id)->stale, memory_order_relaxed);

	return stale && !(w & SODA_CW_BACKED) ? soda_blocks_all() : soda_chunk_dirty(w);
}

/*
 * Make a chunk from the queue BUSY, if it is dirty and not under way.  Returns the blocks to send;
 * 0: nothing to send now; *again_p: the caller puts it back into the queue, because threads wait
 * for it to be sent.  A chunk that is not QUEUED any more has been discarded, or sent from another
 * place in the queue.
 */
static uint32_t begin(uint32_t id, bool *again_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	*again_p = false;
	while (w & SODA_CW_QUEUED) {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (w & SODA_CW_SENDING || (s == SODA_CHUNK_BUSY && soda_chunk_wait(c, 1000000))) {
			*again_p = true;
			return 0;
		}
		if (s == SODA_CHUNK_BUSY) {
			w = soda_chunk_load(c); /* another thread has opened it for a store */
		} else if (s != SODA_CHUNK_DIRTY) {
			if (soda_chunk_swap(c, &w, w & ~SODA_CW_QUEUED))
				return 0;
		} else if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
			return blocks_to_send(id, w);
		}
	}
	return 0;
}

/*
 * Write-protect the chunks, neighbours in one call, because each call flushes other cores' TLBs.
 * False: the runtime has ended, and has taken all pages away (soda_objects_end).
 */
static bool protect_batch(struct soda_outgoing *out, int n)
{
	for (int i = 0; i < n;) {
		int k = i + 1;
		struct soda_region *r = soda_region_of(out[i].id);
		uint64_t bytes = soda_region_chunk_bytes(r, out[i].id);

		while (k < n && out[k].id == out[k - 1].id + 1 && soda_region_of(out[k].id) == r)
			bytes += soda_region_chunk_bytes(r, out[k++].id);
		if (soda_agent.page_ops->protect(soda_chunk_address(out[i].id), bytes, true)) {
			if (atomic_load(&soda_agent.life) == SODA_LIFE_ENDED)
				return false;
			abort(); /* resident and registered: the kernel has no reason to refuse */
		}
		i = k;
	}
	return true;
}

/* By id. They are few, and mostly in order; qsort may allocate, which a signal handler may not. */
static void sort_outgoing(struct soda_outgoing *out, int n)
{
	for (int i = 1; i < n; i++) {
		struct soda_outgoing v = out[i];
		int k = i;

		for (; k > 0 && out[k - 1].id > v.id; k--)
			out[k] = out[k - 1];
		out[k] = v;
	}
}

static void put_back_here(struct queue *queue, uint32_t id, int why)
{
	soda_lock_acquire(&queue->lock);
	assert(queue->tail - queue->head < RING && "more chunks come back than were taken");
	queue->chunks[queue->tail++ % RING] = id | (uint64_t)why << 32;
	soda_lock_release(&queue->lock);
}

/*
 * Put a chunk that was taken back into the queue; it is QUEUED. leaves() is not called for it yet.
 */
static void put_back(uint32_t id, int why)
{
	put_back_here(queue_of(id), id, why);
}

/*
 * Whether a chunk that was taken from the queue is for another one now, as its copy here is stale;
 * then it is put there, or, while that has no room, back.  A chunk that is not QUEUED any more may
 * be of an object that is being freed, and goes nowhere.
 */
static bool move_on(struct queue *queue, uint32_t id, int why)
{
	const struct soda_region *r = soda_redundant() ? soda_region_of(id) : NULL;
	int first = r ? soda_copies_next(r, 0) : -1;
	struct queue *to;

	if (first < 0 || !(soda_chunk_load(&soda_agent.table[id]) & SODA_CW_QUEUED))
		return false;
	to = &queues[soda_copy_link(r, (uint32_t)first)->index];
	if (to == queue)
		return false;
	if (!put(to, &id, 1, why))
		put_back_here(queue, id, why);
	return true;
}

/*
 * Take up to max chunks from the queue; those that there is something to send of are BUSY, in out.
 */
static int pop(struct queue *queue, struct soda_outgoing *out, int max)
{
	uint64_t taken[SODA_SENDER_BATCH];
	int n = 0, k = 0;

	soda_lock_acquire(&queue->lock);
	while (n < max && queue->head != queue->tail)
		taken[n++] = queue->chunks[queue->head++ % RING];
	soda_lock_release(&queue->lock);
	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)taken[i];
		int why = (int)(taken[i] >> 32);
		bool again;

		if (move_on(queue, id, why))
			continue;
		out[k] = (struct soda_outgoing){ .id = id, .mask = begin(id, &again), .why = why };
		if (out[k].mask)
			k++;
		else if (again)
			put_back(id, why);
		else
			leaves(why);
	}
	return k;
}

/*
 * Reading a chunk's pages has failed with -EFAULT: there are dirty chunks that the program has
 * closed (mprotect). From now on readable() is asked of each chunk that is taken; not before, as
 * that costs a system call each time.
 */
static void doubt_all(void)
{
	atomic_store(&queue_doubt, true);
}

/* Whether the kernel can read n pages from `at` on for us; true also where it refuses to try. */
static bool pages_readable(char *at, uint32_t n)
{
	enum { TOGETHER = 32 };

	for (uint32_t k; n; n -= k, at += (size_t)k * SODA_WIRE_PAGE) {
		struct iovec from[TOGETHER];
		char bytes[TOGETHER];
		int saved = errno;
		long got;

		k = n < TOGETHER ? n : TOGETHER;
		for (uint32_t i = 0; i < k; i++)
			from[i] = (struct iovec){ at + (size_t)i * SODA_WIRE_PAGE, 1 };
		got = syscall(SYS_process_vm_readv, soda_agent.pid, &(struct iovec){ bytes, k }, 1,
			      from, k, 0);
		if (got < 0 && errno != EFAULT) {
			errno = saved;
			return true;
		}
		errno = saved;
		if (got != (long)k)
			return false;
	}
	return true;
}

/* Whether the kernel can read these blocks of the chunk for us. */
static bool readable(uint32_t id, uint32_t mask)
{
	uint32_t have = soda_region_chunk_bytes(soda_region_of(id), id);
	uint32_t block = 1u << soda_agent.block_shift;

	for (uint32_t at = 0; mask && at < have; at += block, mask >>= 1) {
		uint32_t bytes = have - at < block ? have - at : block;

		if (mask & 1 &&
		    !pages_readable(soda_chunk_address(id) + at, bytes / SODA_WIRE_PAGE))
			return false;
	}
	return true;
}

/*
 * A chunk that was installed writable on the guess that it would be stored to: compare it with what
 * was fetched; if it is the same it is CLEAN, and its mask 0.
 */
static void check_guess(struct soda_outgoing *out)
{
	struct soda_chunk *c = &soda_agent.table[out->id];
	struct soda_region *r = soda_region_of(out->id);
	int same;

	if (!(soda_chunk_load(c) & SODA_CW_AS_FETCHED))
		return;
	same = soda_guess_unchanged(out->id, soda_region_chunk_bytes(r, out->id));
	if (same < 0) {
		doubt_all();
		out->unreadable = true;
		return;
	}
	soda_guess_learn(r, !same);
	if (!same)
		return;
	out->mask = 0;
	soda_chunk_settle(c, SODA_CHUNK_CLEAN, 0, 0, SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
}

/*
 * True: the agent has a frozen copy of the chunk, or its object is sealed, and nobody has stored to
 * it since; so the server has all of it, and it is CLEAN, its mask 0.
 */
static bool check_frozen(struct soda_outgoing *out)
{
	if (!soda_frozen_has(out->id) && !atomic_load(&soda_region_of(out->id)->sealed))
		return false;
	out->mask = 0;
	soda_chunk_settle(&soda_agent.table[out->id], SODA_CHUNK_CLEAN, 0, 0,
			  SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
	return true;
}

/*
 * Take up to max chunks from the queue, at most SODA_SENDER_BATCH, ordered by address.  Those with
 * a mask are BUSY and write-protected, and the caller settles them; the others are CLEAN.  Returns
 * how many; 0 also where the chunks in the queue had nothing to send.  The caller sees to it that
 * leaves() is called for each.
 */
static int take(struct queue *queue, struct soda_outgoing *out, int max)
{
	int n = pop(queue, out, max < SODA_SENDER_BATCH ? max : SODA_SENDER_BATCH);

	if (!n)
		return 0;
	sort_outgoing(out, n);
	if (!protect_batch(out, n))
		return 0; /* they stay BUSY: nobody waits for them any more */
	for (int i = 0; i < n; i++) {
		out[i].unreadable = false;
		soda_protect_close(out[i].id);
		if (check_frozen(&out[i]))
			continue;
		out[i].unreadable = atomic_load_explicit(&queue_doubt, memory_order_relaxed) &&
				    !readable(out[i].id, out[i].mask);
		if (!out[i].unreadable)
			check_guess(&out[i]);
	}
	return n;
}

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
 * There is nothing more to send of the chunk, which was sent for this reason: if to be evicted, it
 * will be dropped, unless a thread has stored to it or holds it (soda_chunk_droppable); kept, if
 * only an agent has acknowledged it.
 */
static void drop_later(struct soda_sender *s, uint32_t id, int why)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	leaves(why);
	if (why != SODA_WB_EVICT)
		return;
	while (soda_chunk_droppable(w)) {
		if (!soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
			continue;
		if (soda_unacked_is(id)) {
			if (soda_kept_add(id))
				soda_count(s->t, SODA_CNT_EVICTED_DIRTY, 1);
			return;
		}
		soda_kept_forget(id);
		soda_replace_remove(&soda_agent.replacer, id);
		s->gone[s->gone_n++] = id;
		if (s->gone_n == SODA_DROP_MAX)
			soda_sender_drop(s);
		return;
	}
	soda_count(s->t, SODA_CNT_LOCAL_REFAULTS, soda_chunk_state(w) == SODA_CHUNK_DIRTY);
}

/* What was sent in the chunk's stead is not needed any more. */
static void free_copy(struct soda_sending *op)
{
	if (op->sealed)
		soda_sealing_slot_give(op->copy);
	else if (op->copy)
		soda_closed_free(op->copy, soda_region_chunk_bytes(soda_region_of(op->id), op->id));
	if (op->stripe)
		soda_stripe_give(op->stripe);
	op->sealed = false;
	op->stripe = op->copy = NULL;
}

static void finish(struct soda_sender *s, struct soda_sending *op)
{
	free_copy(op); /* first: once the chunk is not SENDING any more its object may be freed */
	if (soda_region_of(op->id)->sealed_file)
		soda_sealing_arrived(soda_region_of(op->id), op->id);
	soda_protect_learn(soda_region_of(op->id), op->mask);
	soda_unacked_note(op->id); /* before SENDING goes: soda_sync then asks unacked.h */
	soda_chunk_flags(&soda_agent.table[op->id], SODA_CW_BACKED, SODA_CW_SENDING);
	drop_later(s, op->id, op->why);
}

/*
 * The chunk, which stays SENDING, waits for the copy's server, with what was sealed of it: the
 * versions and tags are those of that.
 */
static void relay(uint32_t k, struct soda_sending *op)
{
	uint32_t server = soda_copy_link(soda_region_of(op->id), k)->index;
	struct relay *to = &relays[server];
	void *sealed = op->sealed ? op->copy : NULL;

	if (sealed && op->stripe) {
		soda_stripe_give(op->stripe);
		op->stripe = NULL;
	}
	if (!sealed)
		free_copy(op);

	atomic_fetch_add(&relayed_n, 1);
	soda_lock_acquire(&queues[server].lock);
	assert(to->tail - to->head < RELAY && "more chunks are relayed than can be under way");
	to->chunks[to->tail % RELAY] = (struct soda_relayed){
		.id = op->id,
		.mask = (uint16_t)op->mask,
		.why = op->why,
		.done = op->done,
		.from = op->from,
		.from_region = op->from_region,
		.kept_by = op->kept_by,
		.sealed = sealed,
	};
	to->tail++;
	soda_lock_release(&queues[server].lock);
}

/*
 * With erasure codes: the blocks of the chunk that are sent and that the copy in that place has;
 * all of a chunk may be sent, also what lies behind the object's end, which no piece has.
 */
static uint32_t blocks_for(const struct soda_region *r, uint32_t k, const struct soda_sending *op)
{
	uint32_t have = soda_region_chunk_bytes(r, op->id);
	uint32_t n = (have + (1u << soda_agent.block_shift) - 1) >> soda_agent.block_shift;

	return soda_stripe_blocks(r, soda_copy_piece(r, k), op->mask & ((1u << n) - 1));
}

/* Of the dirty blocks; with erasure codes, where parity is of all of it, of the chunk. */
static uint64_t cleaned(const struct soda_region *r, const struct soda_sending *op)
{
	uint64_t dirty = (uint64_t)__builtin_popcount(op->mask) << soda_agent.block_shift;
	uint64_t have = soda_region_chunk_bytes(r, op->id);

	return r->pieces || dirty > have ? have : dirty;
}

/* To the next copy's server, or, where there is none, the chunk is done. */
static void forward(struct soda_sender *s, struct soda_sending *op)
{
	const struct soda_region *r = soda_region_of(op->id);
	int next = soda_copies(r) ? soda_copies_next(r, op->done) : -1;

	/* one that has a piece of which nothing has changed is not written */
	while (next >= 0 && r->pieces && !blocks_for(r, (uint32_t)next, op)) {
		op->done |= 1u << next;
		next = soda_copies_next(r, op->done);
	}
	if (next >= 0) {
		relay((uint32_t)next, op);
		return;
	}
	soda_count(s->t, SODA_CNT_BYTES_CLEANED, cleaned(r, op));
	finish(s, op);
}

/* A server has the chunk, or its copy there has become stale. */
static void advance(struct soda_sender *s, struct soda_sending *op)
{
	if (op->kept && !op->failed && soda_region_of(op->id)->pieces) {
		op->kept_by |= 1u << op->copy_k;
	} else if (op->kept && !op->failed) {
		op->from = (uint8_t)(s->server + 1);
		op->from_region = op->there->id;
	}
	op->kept = false;
	op->done |= 1u << op->copy_k;
	forward(s, op);
}

/*
 * The blocks could not be brought to the server: they are dirty again, and `flag` replaces SENDING
 * in the same step, so that a thread that waits for the chunk never takes it for done.  Returns the
 * chunk's word from before.
 */
static uint32_t restore(uint32_t id, uint32_t mask, uint32_t flag)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c), to;

	for (;;) {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (s != SODA_CHUNK_CLEAN && s != SODA_CHUNK_DIRTY) {
			soda_chunk_wait(c, 1000000); /* BUSY: another thread opens it for a store */
			w = soda_chunk_load(c);
			continue;
		}
		/*
		 * From CLEAN to DIRTY without BUSY in between: the pages stay write-protected, and
		 * the fault of the next store to this dirty chunk opens them
		 */
		to = ((w | mask << SODA_CW_DIRTY_SHIFT) & ~(SODA_CW_STATE | SODA_CW_SENDING)) |
		     SODA_CHUNK_DIRTY | flag;
		if (soda_chunk_swap(c, &w, to))
			return w;
	}
}

/* The connection failed: the chunk is sent again, over the next one. */
static void queue_again(struct soda_sending *op)
{
	uint32_t before;

	free_copy(op);
	before = restore(op->id, op->mask, SODA_CW_QUEUED);
	if (before & SODA_CW_QUEUED) /* stored to and queued meanwhile: the queue has it */
		leaves(op->why);
	else
		put_back(op->id, op->why);
}

/*
 * The server has refused the chunk: its copy there is stale, unless it is the last one.  Not if
 * that copy has begun anew meanwhile: then the rebuild brings it the chunk.
 */
static bool refused_by_copy(const struct soda_sender *s, const struct soda_sending *op)
{
	struct soda_region *r = soda_region_of(op->id);

	/* posted before the slab got copies: its region has refused it */
	if (!soda_copies(r) || op->there == r)
		return false;
	return atomic_load(&r->copy[op->copy_k]) != op->there || soda_copies_drop(r, op->copy_k);
}

/* The last answer of the chunk has come, or none will. */
static void op_ends(struct soda_sender *s, struct soda_sending *op)
{
	SODA_TP_WRITEBACK_DONE(op->id, op->bytes, op->failed);
	if (!op->failed && op->again) {
		op->from = 0;
		op->kept_by = 0;
		forward(s, op);
	} else if (!op->failed) {
		soda_count(s->t, SODA_CNT_BYTES_WRITTEN, op->bytes);
		advance(s, op);
	} else if (op->lost) {
		if (op->done)
			forward(s, op);
		else
			queue_again(op);
	} else if (refused_by_copy(s, op)) {
		advance(s, op);
	} else {
		free_copy(op);
		restore(op->id, op->mask, 0);
		leaves(op->why);
	}
	op->used = false;
	s->used--;
}

/* soda_sync of the chunk's object will fail with err. */
static void count_refusal(uint32_t id, int err)
{
	struct soda_region *r = soda_region_of(id);

	atomic_store(&r->unsent_error, err);
	atomic_fetch_add(&r->unsent, 1);
}

/*
 * The program has closed the data, and we found no way to read it all the same: log that, not again
 * for the same object, and let soda_sync of the object fail.
 */
static void say_unreadable(const struct soda_sender *s, uint32_t id)
{
	static _Atomic uint32_t last;
	const struct soda_region *r = soda_region_of(id);

	count_refusal(id, -EFAULT);
	if (atomic_load(&soda_agent.life) == SODA_LIFE_ENDED)
		return;
	if (atomic_exchange(&last, r->id) != r->id)
		soda_log_error("dirty data of %s is not written back to %s: it cannot be read, as "
			       "the program has closed it (mprotect) and /proc/self/mem does not "
			       "give it; it stays in memory until it is open again",
			       r->name[0] ? r->name
			       : r->file  ? r->file
					  : "an object",
			       soda_conn_peer(s->conn));
}

/* The chunk is not sent: DIRTY as it was, and no longer QUEUED. */
static void refuse(const struct soda_outgoing *out)
{
	struct soda_chunk *c = &soda_agent.table[out->id];

	soda_chunk_settle(c, SODA_CHUNK_DIRTY, soda_chunk_dirty(soda_chunk_load(c)), 0,
			  SODA_CW_QUEUED);
	leaves(out->why);
}

/* Bytes of a chunk, from .. to. */
struct run {
	uint32_t from, to;
};

/* The next run of blocks in the mask, which loses them; empty behind the object's end. */
static struct run next_run(const struct soda_region *r, uint32_t id, uint32_t *mask_p)
{
	uint32_t first = (uint32_t)__builtin_ctz(*mask_p), have = soda_region_chunk_bytes(r, id);
	uint32_t len = (uint32_t)__builtin_ctz(~(*mask_p >> first));
	struct run run = { first << soda_agent.block_shift, (first + len)
								    << soda_agent.block_shift };

	*mask_p &= ~(((1u << len) - 1) << first);
	run.to = run.to < have ? run.to : have;
	return run;
}

/* Where the chunk's content is read for its WRITEs. */
static char *base_of(const struct soda_sending *op)
{
	return op->copy ? op->copy : soda_chunk_address(op->id);
}

/* Whether all of the chunk, which is a whole one, is sent: parity is of what is sent alone. */
static bool is_whole(const struct soda_region *r, const struct soda_sending *op)
{
	return op->mask == soda_blocks_all() &&
	       soda_region_chunk_bytes(r, op->id) == soda_chunk_bytes();
}

/* Whether a copy gets the same blocks after this one, or what is computed from them. */
static bool goes_on(const struct soda_sender *s, const struct soda_region *r,
		    const struct soda_sending *op)
{
	if (r->pieces && !(r->parities && soda_conn_codes(s->conn) && is_whole(r, op)))
		return false;
	return soda_copies(r) && soda_copies_next(r, op->done | 1u << op->copy_k) >= 0;
}

/* The WRITE of a run; where an agent has its data, or is to keep them, it says so. */
static int post_run(struct soda_sender *s, struct soda_sending *op, const struct soda_region *there,
		    uint64_t offset, uint32_t bytes, const char *data)
{
	uint64_t cookie = (uint64_t)(op - s->ops);

	if (op->from) {
		const struct soda_link *link = &soda_agent.links[op->from - 1];
		const struct soda_wire_origin origin = {
			.client_id = atomic_load(&link->client_id),
			.secret = atomic_load(&link->secret),
			.region_id = op->from_region,
		};

		return soda_conn_post_again(s->conn, &there->mr, offset, bytes, &origin, cookie);
	}
	op->bytes += bytes;
	if (op->kept)
		return soda_conn_post_kept(s->conn, &there->mr, offset, bytes, data, cookie);
	return soda_conn_post_write(s->conn, &there->mr, offset, bytes, data, cookie);
}

/*
 * A WRITE for each run of the blocks in the mask; byte `before` of the chunk lies at `offset` of
 * `there`. As post_runs().
 */
static int post_blocks(struct soda_sender *s, struct soda_sending *op,
		       const struct soda_region *there, uint32_t mask, uint64_t offset,
		       uint32_t before)
{
	const struct soda_region *r = soda_region_of(op->id);
	bool keeps = soda_agent.agent[0] && soda_conn_keeps(s->conn);
	int n = 0;

	op->from = keeps ? op->from : 0;
	op->kept = keeps && !op->from && goes_on(s, r, op);
	while (mask) {
		struct run run = next_run(r, op->id, &mask);
		int ret;

		if (run.from >= run.to)
			break;
		ret = post_run(s, op, there, offset + run.from - before, run.to - run.from,
			       base_of(op) + run.from);
		if (ret)
			return ret;
		n++;
	}
	return n;
}

/* Which sessions' kept WRITEs are the chunk's pieces of data. False: not all are kept. */
static bool find_pieces(const struct soda_region *r, const struct soda_sending *op,
			struct soda_wire_code *code)
{
	uint32_t found = 0;

	for (uint32_t left = op->kept_by; left; left &= left - 1) {
		uint32_t k = (uint32_t)__builtin_ctz(left), piece = soda_copy_piece(r, k);
		const struct soda_region *there = atomic_load(&r->copy[k]);
		const struct soda_link *link;

		if (piece >= r->pieces || !there)
			continue;
		link = soda_copy_link(r, k);
		code->from[piece] = (struct soda_wire_origin){
			.client_id = atomic_load(&link->client_id),
			.secret = atomic_load(&link->secret),
			.region_id = there->id,
		};
		found |= 1u << piece;
	}
	return found == (1u << r->pieces) - 1;
}

/* Fill op->code of a piece of parity, if the agent can compute it. How many bytes; 0: it cannot. */
static uint32_t encode(const struct soda_sender *s, const struct soda_region *r,
		       struct soda_sending *op)
{
	struct soda_wire_code code = { .data_n = r->pieces };

	if (!op->kept_by || !soda_conn_codes(s->conn) || !find_pieces(r, op, &code))
		return 0;
	code.parity = (uint8_t)(soda_copy_piece(r, op->copy_k) - r->pieces);
	code.last = soda_copies_next(r, op->done | 1u << op->copy_k) < 0;
	return soda_wire_put_code(op->code, &code);
}

/*
 * With erasure codes: of parity the whole piece, computed from what the pages hold now, or by the
 * agent from what they held; of data the dirty blocks in the piece.  As post_runs().
 */
static int post_piece(struct soda_sender *s, struct soda_sending *op, const struct soda_region *r,
		      const struct soda_region *there)
{
	uint32_t bytes = soda_stripe_piece_bytes(r), piece = soda_copy_piece(r, op->copy_k);
	uint64_t offset = soda_stripe_offset_of(r, op->id);
	int ret;

	if (op->coded) {
		ret = soda_conn_post_coded(s->conn, &there->mr, offset, bytes, op->code,
					   op->code_bytes, (uint64_t)(op - s->ops));
		return ret ? ret : 1;
	}
	if (!op->stripe)
		return post_blocks(s, op, there, soda_stripe_blocks(r, piece, op->mask), offset,
				   piece * bytes);
	op->bytes += bytes;
	ret = soda_conn_post_write(s->conn, &there->mr, offset, bytes,
				   soda_stripe_piece(r, piece, op->stripe),
				   (uint64_t)(op - s->ops));
	return ret ? ret : 1;
}

/* Post the WRITEs of the chunk's dirty blocks. Returns how many, or the connection's error. */
static int post_runs(struct soda_sender *s, struct soda_sending *op)
{
	struct soda_region *r = soda_region_of(op->id);
	const struct soda_region *there = soda_copy_to_write(r, &soda_agent.links[s->server]);

	op->there = there;
	if (!there)
		return 0;
	if (!r->pieces)
		return post_blocks(s, op, there, op->mask, soda_stripe_offset_of(r, op->id), 0);
	/* the place may have got a piece on another server since */
	return there == atomic_load(&r->copy[op->copy_k]) ? post_piece(s, op, r, there) : 0;
}

/* An unused entry; there is one, because no more chunks are taken than there are entries free. */
static struct soda_sending *free_op(struct soda_sender *s)
{
	struct soda_sending *op = s->ops;

	while (op->used)
		op++;
	return op;
}

/*
 * A copy of a chunk that the program has closed.  NULL: it cannot be read, or the runtime has
 * ended: then what was read may be the zeros of the mapping that took the pages' place
 * (soda_objects_end).
 */
static void *copy_closed(uint32_t id)
{
	uint32_t bytes = soda_region_chunk_bytes(soda_region_of(id), id);
	void *copy = soda_closed_copy(soda_chunk_address(id), bytes);

	/* asked after the read: the runtime has ended before it takes the pages away */
	if (copy && atomic_load(&soda_agent.life) == SODA_LIFE_ENDED) {
		soda_closed_free(copy, bytes);
		copy = NULL;
	}
	return copy;
}

/*
 * The chunk's data for its parity. 0; -EAGAIN: all places are taken, and the chunk waits in the
 * relay; -EFAULT: nobody can read the chunk, which stays dirty, and is not sent.
 */
static int take_stripe(struct soda_sender *s, struct soda_sending *op, const struct soda_region *r)
{
	op->stripe = soda_stripe_take(s->server);
	if (!op->stripe) {
		relay(op->copy_k, op);
		op->used = false;
		s->used--;
		s->put_back++;
		return -EAGAIN;
	}
	if (!op->copy && soda_stripe_read(r, op->id, op->stripe)) {
		doubt_all();
		op->copy = copy_closed(op->id);
	} else if (!op->copy) {
		return 0;
	}
	if (op->copy) {
		soda_stripe_copy(r, op->id, op->copy, op->stripe);
		return 0;
	}
	say_unreadable(s, op->id);
	free_copy(op);
	restore(op->id, op->mask, 0);
	leaves(op->why);
	op->used = false;
	s->used--;
	return -EFAULT;
}

/*
 * Post the WRITEs of a chunk that is SENDING. 0, or the connection's error: it waits again.  0 also
 * where its copy here has become stale meanwhile: then it goes to another server.
 */
static int post_op(struct soda_sender *s, struct soda_sending *op)
{
	const struct soda_region *r = soda_region_of(op->id);
	int k = soda_copies(r) ? soda_copy_on(r, &soda_agent.links[s->server]) : 0;
	int n;

	op->copy_k = (uint8_t)(k < 0 ? 0 : k);
	if (r->pieces && k >= 0 && !blocks_for(r, (uint32_t)k, op)) {
		op_ends(s, op); /* nothing of its piece has changed */
		soda_progress_tell();
		return 0;
	}
	if (r->pieces && k >= 0 && soda_copy_piece(r, (uint32_t)k) >= r->pieces) {
		op->code_bytes = (uint8_t)encode(s, r, op);
		op->coded = op->code_bytes;
		n = op->coded ? 0 : take_stripe(s, op, r);
		if (n)
			return n < 0 ? 0 : n;
	}
	n = r->pieces && k < 0 ? 0 : post_runs(s, op);
	if (n > 0) {
		op->parts = (uint16_t)n;
		return 0;
	}
	op->failed = op->lost = true;
	op_ends(s, op);
	return n;
}

/*
 * Post the WRITEs of a BUSY, write-protected chunk. 0, or the connection's error: the chunk is
 * queued again.  copy: its content, where the chunk itself may not be read, or what of it was
 * sealed, else NULL; freed at the end.
 */
static int send_chunk(struct soda_sender *s, const struct soda_outgoing *out, void *copy)
{
	struct soda_sending *op = free_op(s);

	*op = (struct soda_sending){
		.id = out->id,
		.mask = out->mask,
		.why = (uint8_t)out->why,
		.used = true,
		.copy = copy,
		.sealed = copy && copy == out->sealed,
	};
	s->used++;
	SODA_TP_WRITEBACK(out->id, out->mask);
	soda_chunk_settle(&soda_agent.table[out->id], SODA_CHUNK_CLEAN, 0, SODA_CW_SENDING,
			  SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
	return post_op(s, op);
}

/* Seal a chunk that the program has closed. As soda_sealing_seal(); -EFAULT: nobody can read it. */
static int64_t seal_closed(struct soda_sender *s, const struct soda_outgoing *out)
{
	struct soda_region *r = soda_region_of(out->id);
	void *copy = copy_closed(out->id);
	int64_t n = copy ? soda_sealing_seal(s->station, r, out->id, out->mask, copy, out->sealed)
			 : -EFAULT;

	if (copy)
		soda_closed_free(copy, soda_region_chunk_bytes(r, out->id));
	return n;
}

/*
 * Seal the blocks of a BUSY chunk that are to be sent, if its object is sealed.  0, also where it
 * is unreadable, and is not sealed; -EAGAIN: there is no place for them now, or the sealed file is
 * being committed; -EIO.
 */
static int seal(struct soda_sender *s, struct soda_outgoing *out)
{
	struct soda_region *r = soda_region_of(out->id);
	int64_t n = -EFAULT;

	if (!r->sealing)
		return 0;
	out->sealed = soda_sealing_slot_take();
	if (!out->sealed)
		return -EAGAIN;
	if (r->parities) /* of all of the chunk's ciphertext, and nobody keeps the old one */
		out->mask = soda_blocks_all();
	if (!out->unreadable)
		n = soda_sealing_seal(s->station, r, out->id, out->mask,
				      soda_chunk_address(out->id), out->sealed);
	if (n == -EFAULT) {
		doubt_all();
		out->unreadable = true;
		n = seal_closed(s, out);
	}
	if (n >= 0) {
		soda_count(s->t, SODA_CNT_BYTES_SEALED, (uint64_t)n);
		return 0;
	}
	soda_sealing_slot_give(out->sealed);
	out->sealed = NULL;
	return n == -EFAULT ? 0 : (int)n;
}

/*
 * Through an agent that computes parity the pieces of data cost the chunk's bytes, and parity
 * nothing: send all of a chunk of which otherwise the dirty blocks and parity would be more.
 */
static void widen(const struct soda_sender *s, struct soda_outgoing *out)
{
	const struct soda_region *r = soda_region_of(out->id);
	uint32_t dirty = (uint32_t)__builtin_popcount(out->mask) << soda_agent.block_shift;

	if (r->parities && soda_conn_codes(s->conn) &&
	    dirty + r->parities * soda_stripe_piece_bytes(r) > soda_chunk_bytes())
		out->mask = soda_blocks_all();
}

/* A chunk that could not be sealed yet is DIRTY again, and waits in the queue. */
static void put_off(const struct soda_outgoing *out)
{
	struct soda_chunk *c = &soda_agent.table[out->id];

	put_back(out->id, out->why); /* first: once it is not BUSY its object may be freed */
	soda_chunk_settle(c, SODA_CHUNK_DIRTY, soda_chunk_dirty(soda_chunk_load(c)), 0, 0);
}

/*
 * send_chunk() of a chunk that the program has closed.  *refused_p: it could not be copied; it
 * stays dirty, and is not sent.
 */
static int send_closed(struct soda_sender *s, const struct soda_outgoing *out, bool *refused_p)
{
	void *copy = soda_region_of(out->id)->sealing ? NULL : copy_closed(out->id);

	if (copy)
		return send_chunk(s, out, copy);
	say_unreadable(s, out->id);
	refuse(out);
	*refused_p = true;
	return 0;
}

/* The server has refused to open the object, so it would refuse the chunk's WRITEs. */
static bool has_no_place(const struct soda_outgoing *out)
{
	return atomic_load_explicit(&soda_region_of(out->id)->refused, memory_order_relaxed);
}

/*
 * How many the relay of that server had, in `out`; at most max and SODA_SENDER_BATCH.  They count
 * as relayed until the caller has found another place for each.
 */
static int take_relayed(uint32_t server, struct soda_relayed *out, uint32_t max)
{
	struct relay *from = &relays[server];
	uint32_t n = 0;

	if (from->head == from->tail)
		return 0;
	max = max < SODA_SENDER_BATCH ? max : SODA_SENDER_BATCH;
	soda_lock_acquire(&queues[server].lock);
	while (n < max && from->head != from->tail)
		out[n++] = from->chunks[from->head++ % RELAY];
	soda_lock_release(&queues[server].lock);
	return (int)n;
}

/*
 * A chunk from the relay of the sender's server: where its copy there is not written any more, it
 * goes on without; with `post`, else its WRITEs are posted. 0, or the connection's error.
 */
static int send_relayed(struct soda_sender *s, const struct soda_relayed *in, bool post)
{
	struct soda_region *r = soda_region_of(in->id);
	int k = soda_copy_on(r, &soda_agent.links[s->server]);
	struct soda_sending *op, gone = { .id = in->id,
					  .mask = in->mask,
					  .why = in->why,
					  .done = in->done,
					  .from = in->from,
					  .from_region = in->from_region,
					  .kept_by = in->kept_by,
					  .sealed = in->sealed,
					  .copy = in->sealed };
	bool closed;

	if (k < 0 || !soda_copy_is_written(soda_copies(r), (uint32_t)k)) {
		forward(s, &gone);
		soda_progress_tell();
		return 0;
	}
	if (!post) {
		relay((uint32_t)k, &gone);
		return 0;
	}
	closed = !in->sealed && atomic_load_explicit(&queue_doubt, memory_order_relaxed) &&
		 !readable(in->id, in->mask);
	op = free_op(s);
	*op = gone;
	op->used = true;
	s->used++;
	if (closed)
		op->copy = copy_closed(in->id);
	if (!closed || op->copy)
		return post_op(s, op);
	say_unreadable(s, in->id);
	op->failed = true;
	restore(op->id, op->mask, 0);
	leaves(op->why);
	op->used = false;
	s->used--;
	return 0;
}

/*
 * Asked of what was taken from a queue or relay.  A server counts as away before what was lost on
 * one of its connections goes back there (soda_sender_lose): over another one of the same epoch it
 * could overtake the lost WRITE, which the server may have still.  A new epoch drains the old one.
 */
static bool may_post(const struct soda_sender *s)
{
	return soda_server_up(&soda_agent.links[s->server].server);
}

/*
 * What waits in the relay of the sender's server.  How many, without those that wait there again as
 * there is no place for their parity, or the server is away: the caller would try that for as long.
 * Or the connection's error.
 */
static int send_all_relayed(struct soda_sender *s)
{
	struct soda_relayed *in = s->relayed;
	int n = take_relayed(s->server, in, s->max - s->used), err = 0;
	bool goes = may_post(s);

	s->put_back = 0;
	for (int i = 0; i < n; i++) {
		int ret = send_relayed(s, &in[i], goes && !err);

		s->put_back += !goes;
		atomic_fetch_sub(&relayed_n, 1);
		err = err ? err : ret;
	}
	return err ? err : n - (int)s->put_back;
}

void soda_sender_reroute(struct soda_sender *s)
{
	struct queue *queue = &queues[s->server];
	uint32_t n = waits(&queue->head, &queue->tail);
	struct soda_relayed *in = s->relayed;
	int got;

	for (uint32_t left = waits(&relays[s->server].head, &relays[s->server].tail); left;
	     left = left > (uint32_t)got ? left - (uint32_t)got : 0) {
		got = take_relayed(s->server, in, left);
		if (!got)
			break;
		for (int i = 0; i < got; i++) {
			send_relayed(s, &in[i], false);
			atomic_fetch_sub(&relayed_n, 1);
		}
	}
	for (; n; n--) {
		uint64_t taken;

		soda_lock_acquire(&queue->lock);
		taken = queue->head != queue->tail ? queue->chunks[queue->head++ % RING] : 0;
		soda_lock_release(&queue->lock);
		if (!taken)
			break;
		if (!move_on(queue, (uint32_t)taken, (int)(taken >> 32)))
			put_back_here(queue, (uint32_t)taken, (int)(taken >> 32));
	}
	soda_sender_drop(s);
}

/* How many new chunks the sender may take; where objects are sealed, as many as have places. */
static int room(const struct soda_sender *s)
{
	uint32_t n = s->max - s->used, places;

	if (soda_redundant() && atomic_load(&relayed_n) >= RELAYED_MOST)
		return 0;
	if (!soda_sealing_on())
		return (int)n;
	places = soda_sealing_slots_free();
	return (int)(n < places ? n : places);
}

int soda_sender_send(struct soda_sender *s)
{
	struct soda_outgoing *out = s->out;
	int relayed = soda_redundant() ? send_all_relayed(s) : 0;
	int n = relayed < 0 ? 0 : take(&queues[s->server], out, room(s)), later = 0;
	int err = relayed < 0 ? relayed : 0;
	bool tell = false, goes = may_post(s);

	for (int i = 0; i < n; i++) {
		bool nowhere = out[i].mask && has_no_place(&out[i]);
		int ret = 0, sealed = goes || !out[i].mask ? 0 : -EAGAIN;

		if (out[i].mask && !nowhere && !sealed) {
			widen(s, &out[i]);
			sealed = seal(s, &out[i]);
		}
		if (sealed == -EAGAIN) {
			put_off(&out[i]);
			later++;
		} else if (nowhere || sealed) {
			count_refusal(out[i].id, -EIO);
			refuse(&out[i]);
			tell = true;
		} else if (out[i].unreadable && !out[i].sealed) {
			ret = send_closed(s, &out[i], &tell);
		} else if (out[i].mask) {
			ret = send_chunk(s, &out[i], out[i].sealed);
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
	return err ? err : n + relayed - later;
}

static void answered(struct soda_sender *s, const struct soda_done *done, int n)
{
	for (int i = 0; i < n; i++) {
		struct soda_sending *op = &s->ops[done[i].cookie];

		if (done[i].status == -ENOENT && (op->from || op->coded)) {
			op->again = true;
		} else if (done[i].status && !op->failed) {
			op->failed = true;
			if (!soda_copies_spare(soda_region_of(op->id)))
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
	struct soda_done *done = s->done;
	int n = soda_conn_poll(s->conn, done, SODA_SENDER_ANSWERS, timeout_ns, 0);

	if (n < 0)
		return n;
	if (!n) {
		soda_sender_drop(s); /* not later: a store to such a chunk waits until it is gone */
		return 0;
	}
	answered(s, done, n);
	/*
	 * Dropping in batches is cheaper, but a fault that waits for a credit must not wait for a
	 * full batch.
	 */
	if (s->gone_n >= SODA_DROP_MAX / 2 || s->used < s->max / 4 ||
	    atomic_load(&soda_agent.buffer.waiters))
		soda_sender_drop(s);
	soda_progress_answered();
	return n;
}

void soda_sender_lose(struct soda_sender *s, int err)
{
	if (err == -EFAULT)
		doubt_all();
	for (uint32_t i = 0; i < s->max; i++) {
		struct soda_sending *op = &s->ops[i];

		if (!op->used)
			continue;
		op->failed = op->lost = true;
		op_ends(s, op);
	}
	soda_sender_drop(s);
}
