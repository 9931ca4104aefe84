/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand READs, and installing the answers to all READs. */
#include "host_agent/move/fetch.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tracepoint.h"
#include "base/failure.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/gather.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/stripe.h"
#include "host_agent/pages/install.h"
#include "host_agent/pages/shared.h"

enum { REFUSALS = 64 };

enum { MAPPED_MOST = 4 << 20 };

static char *slot_of(struct soda_fetch_channel *ch, uint32_t number)
{
	return ch->slots + (number % ch->slots_n) * soda_chunk_bytes();
}

static void count_fetch(struct soda_thread *t, const struct soda_install *in, uint32_t bytes)
{
	soda_count(t, SODA_CNT_BYTES_FETCHED, bytes);
	soda_count(t, in->ahead ? SODA_CNT_PREFETCHED : SODA_CNT_FETCHES, 1);
}

/* The chunk is resident, under way, or was never written: it need not be fetched. */
static uint64_t is_here(uint32_t id)
{
	enum soda_chunk_state state = soda_chunk_state(soda_chunk_load(&soda_agent.table[id]));

	return state != SODA_CHUNK_REMOTE && state != SODA_CHUNK_LOST && state != SODA_CHUNK_SHARED;
}

/*
 * Which chunks around the one that this process asks for it need not ask for: an agent that fetches
 * ahead of us is told, and leaves those out.  Reads the states of 128 chunks, 2 KiB of the chunk
 * table, without a lock: a state that changes meanwhile makes the hint worse, not wrong.
 */
static void look_around(const struct soda_region *r, uint32_t id,
			struct soda_wire_residency *hint_p)
{
	uint32_t behind = r->first + r->chunks - 1 - id, before = id - r->first;

	*hint_p = (struct soda_wire_residency){ 0 };
	for (uint32_t i = 0; i < 64 && i < behind; i++)
		hint_p->after |= is_here(id + 1 + i) << i;
	for (uint32_t i = 0; i < 64 && i < before; i++)
		hint_p->before |= is_here(id - 1 - i) << i;
}

int soda_channel_post(struct soda_thread *t, struct soda_fetch_channel *ch, struct soda_region *r,
		      struct soda_install in)
{
	struct soda_fetch_request *q = &ch->req[ch->slots_n ? ch->tail % ch->slots_n : 0];
	const struct soda_region *from = soda_copy_to_read(r, soda_channel_link(ch));
	uint32_t bytes = soda_stripe_bytes_of(r, in.id);
	struct soda_wire_residency hint;
	bool placed, protect;
	int ret;

	if (!soda_channel_usable(ch) || !from)
		return -ENOTCONN;
	if (soda_channel_refuses(r))
		return -EIO;
	if (soda_channel_outstanding(ch) >= ch->slots_n)
		return -EAGAIN;
	if (soda_conn_asks(ch->conn)) {
		look_around(r, in.id, &hint);
		soda_conn_tell(ch->conn, &hint);
	}
	placed = !in.shared && !r->sealing && soda_conn_installs(ch->conn) &&
		 soda_install_by_peer(r, &in, &protect);
	if (in.shared && !in.late && !soda_shared_mends(r, in.id))
		ret = soda_conn_post_stored(ch->conn, &from->mr, soda_region_offset(r, in.id),
					    bytes, slot_of(ch, ch->tail), in.id);
	else if (placed)
		ret = soda_conn_post_install(ch->conn, &from->mr, soda_region_offset(r, in.id),
					     bytes, slot_of(ch, ch->tail),
					     soda_chunk_address(in.id), protect, in.id);
	else
		ret = soda_conn_post_read(ch->conn, &from->mr, soda_stripe_offset_of(r, in.id),
					  bytes, slot_of(ch, ch->tail), in.id);
	if (ret && ret != -EAGAIN && ret != -EINVAL)
		soda_channel_break(ch, ret);
	if (ret)
		return ret;
	*q = (struct soda_fetch_request){ .in = in, .bytes = bytes, .placed = placed };
	atomic_store_explicit(&soda_agent.table[in.id].channel, (uint16_t)(ch - soda_channels),
			      memory_order_release);
	ch->tail++;
	SODA_TP_FETCH(in.id, bytes, in.ahead);
	/* counted now: the peer's install may wake a thread that then looks at the counters */
	if (placed)
		count_fetch(t, &in, bytes);
	return 0;
}

/* Where the data of request k lie. */
static const char *data_of(struct soda_fetch_channel *ch, uint32_t k, const struct soda_done *done)
{
	return done->data ? done->data : slot_of(ch, k);
}

/*
 * Whether the answers to requests k - 1 and k, done[0] and done[1], can be installed in one call.
 */
static bool adjacent(struct soda_fetch_channel *ch, uint32_t k, const struct soda_done done[2])
{
	const struct soda_fetch_request *a = &ch->req[(k - 1) % ch->slots_n],
					*b = &ch->req[k % ch->slots_n];

	return !done[1].status && !done[1].installed && !b->copying && !b->withdrawn &&
	       b->in.id == a->in.id + 1 && a->in.block < 0 && b->in.block < 0 &&
	       a->bytes == soda_chunk_bytes() &&
	       data_of(ch, k, &done[1]) == data_of(ch, k - 1, &done[0]) + a->bytes &&
	       soda_region_of(a->in.id) == soda_region_of(b->in.id);
}

/*
 * Count the next `run` chunks: before they are installed, which may wake a thread that looks at the
 * counters.
 */
static void count_arrived(struct soda_thread *t, struct soda_fetch_channel *ch, uint32_t k,
			  uint32_t run)
{
	for (; run; k++, run--) {
		const struct soda_fetch_request *q = &ch->req[k % ch->slots_n];

		if (!q->placed)
			count_fetch(t, &q->in, q->bytes);
	}
}

/* The peer has installed the chunk of this request. */
static void settle_arrived(struct soda_thread *t, const struct soda_fetch_request *q)
{
	soda_count(t, SODA_CNT_INSTALLED, 1);
	soda_install_settle(&q->in);
}

/*
 * A chunk of the node's store: the agent has it there, or has no store for it and sends the data.
 * One that has been evicted again meanwhile is asked for again by the fault.
 */
static int settle_shared(struct soda_thread *t, struct soda_fetch_channel *ch, uint32_t k,
			 const struct soda_done *done)
{
	const struct soda_fetch_request *q = &ch->req[k % ch->slots_n];
	struct soda_region *r = soda_region_of(q->in.id);
	const void *data = done->stored ? NULL : data_of(ch, k, done);
	int ret;

	soda_count(t, SODA_CNT_STORE_ASKS, 1);
	soda_count(t, SODA_CNT_STORE_BYTES_ASKED, q->bytes);
	if (data)
		count_fetch(t, &q->in, q->bytes);
	ret = soda_shared_arrived(t, r, &q->in, data);
	soda_install_cancel(q->in.id); /* SHARED again, and its credit is given back */
	return ret == -ENOENT ? 0 : ret;
}

void soda_fetch_damaged(struct soda_region *r, uint32_t id, const char *peer)
{
	soda_log_error("%llu bytes at offset %llu of %s are not what was sent to %s: they were "
		       "changed, or are older, there or on the way; they are not used, and every "
		       "touch of them is an error",
		       (unsigned long long)soda_region_chunk_bytes(r, id),
		       (unsigned long long)(r->before + soda_region_offset(r, id)),
		       r->name[0] ? r->name : "an object", peer);
	atomic_store(&r->damaged, true);
	atomic_fetch_add(&r->unwritten, 1);
	soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_LOST, 0, 0, SODA_CW_BACKED);
	soda_buffer_give(&soda_agent.buffer, 1);
}

/*
 * What has come is not what this process has sealed last, or an agent that seals says so of what it
 * has.  -ENOTCONN: that copy of the slab is not read any more, and the chunk is REMOTE again, to be
 * asked for at the other copy's server; -EIO: nobody has it any more, and the chunk is LOST.
 */
static int settle_damaged(const struct soda_fetch_channel *ch, struct soda_region *r, uint32_t id)
{
	const struct soda_link *link = soda_channel_link(ch);
	int k = soda_copies(r) ? soda_copy_on(r, link) : -1;
	bool spare = k >= 0 && soda_copies_drop(r, (uint32_t)k);

	if (spare || !soda_copy_to_read(r, link)) {
		soda_log_error(
			"%u bytes at offset %llu of %s are not what was sent to %s: the copy "
			"there is given up, and they are read from the other one",
			soda_region_chunk_bytes(r, id),
			(unsigned long long)(r->before + soda_region_offset(r, id)),
			r->name[0] ? r->name : "an object", link->server.address);
		soda_install_cancel(id);
		return -ENOTCONN;
	}
	soda_fetch_damaged(r, id, link->server.address);
	return -EIO;
}

static int open_in(struct soda_fetch_channel *ch, const struct soda_region *r, uint32_t id,
		   const void *sealed, void *plain)
{
	return soda_sealing_open((uint32_t)(ch - soda_channels), r, id, sealed, plain);
}

/*
 * A READ from a copy that the server, which is an agent that seals, cannot open: others may be
 * right.  Whatever else a server refuses a READ for says nothing of what it has.
 */
static bool is_refused_copy(const struct soda_region *r, int status)
{
	return status == -EIO && soda_copies(r);
}

/*
 * What is copied is as the server has it: of a sealed object ciphertext, which is opened, in the
 * request's slot, to see that it is what was sent (a piece of a stripe is no such thing); -EBADMSG:
 * it is not, and has been settled.
 */
static void settle_copying(struct soda_fetch_channel *ch, uint32_t k, const struct soda_done *done)
{
	const struct soda_fetch_request *q = &ch->req[k % ch->slots_n];
	struct soda_region *r = soda_region_of(q->in.id);
	int state = done->status ? done->status : 1;
	bool damaged = is_refused_copy(r, done->status);

	if (!done->status)
		memcpy(q->copying->to, data_of(ch, k, done), q->bytes);
	if (!done->status && r->sealing && !r->pieces)
		damaged = open_in(ch, r, q->in.id, q->copying->to, slot_of(ch, k));
	if (damaged && !r->pieces) {
		settle_damaged(ch, r, q->in.id);
		state = -EBADMSG;
	}
	q->copying->state = state;
}

/*
 * Open the chunks of sealed objects among the next n answers, in their slots: other memory, which
 * the peer may share, could change between the check and the use.  Returns a bit for each answer
 * that is not what was sealed; its status is set, and its chunk settled; *err_p: the last of them.
 */
static uint64_t open_sealed(struct soda_thread *t, struct soda_fetch_channel *ch,
			    struct soda_done *done, int n, int *err_p)
{
	uint64_t damaged = 0;

	for (int i = 0; i < n; i++) {
		uint32_t k = ch->head + (uint32_t)i;
		const struct soda_fetch_request *q = &ch->req[k % ch->slots_n];
		struct soda_region *r = soda_region_of(q->in.id);

		if (done[i].status || q->copying || q->withdrawn || !r->sealing)
			continue;
		if (done[i].data)
			memcpy(slot_of(ch, k), done[i].data, q->bytes);
		done[i].data = NULL;
		if (open_in(ch, r, q->in.id, slot_of(ch, k), slot_of(ch, k))) {
			*err_p = settle_damaged(ch, r, q->in.id);
			done[i].status = -EBADMSG;
			damaged |= 1ull << i;
		} else {
			soda_count(t, SODA_CNT_BYTES_OPENED, q->bytes);
		}
	}
	return damaged;
}

/*
 * The last refusals, by chunk; of two chunks with one place the later.  A writer takes the place by
 * its id, and gives it back with the id: who reads the same id before and after has what is its
 * own. Two writers at once may mix what they say: both are refusals of that moment.
 */
static struct {
	_Atomic uint32_t id; /* UINT32_MAX: none, or being written */
	_Atomic int err;
	_Atomic uint64_t at_ns; /* 0: there was none */
} refusals[REFUSALS];

static void note_refusal(uint32_t id, int err)
{
	uint32_t i = id % REFUSALS;

	atomic_store(&refusals[i].id, UINT32_MAX);
	atomic_store(&refusals[i].err, err);
	atomic_store(&refusals[i].at_ns, soda_now_ns());
	atomic_store(&refusals[i].id, id);
}

int soda_fetch_refused(uint32_t id, uint64_t since_ns)
{
	uint32_t i = id % REFUSALS;
	bool ours = atomic_load(&refusals[i].id) == id;
	int err = atomic_load(&refusals[i].err);
	uint64_t at_ns = atomic_load(&refusals[i].at_ns);

	return ours && at_ns >= since_ns && at_ns && atomic_load(&refusals[i].id) == id ? err : 0;
}

/*
 * The server has refused a READ.  -ENOTCONN where its copy of the slab has become stale since, and
 * its region was closed, or it is given up: the other copy's server is asked.
 */
static int refused(struct soda_fetch_channel *ch, uint32_t id, int status)
{
	struct soda_region *r = soda_region_of(id);

	if (soda_copies(r) && !soda_copy_to_read(r, soda_channel_link(ch)))
		status = -ENOTCONN;
	else if (is_refused_copy(r, status))
		return settle_damaged(ch, r, id);
	else
		soda_log_error("fetch of chunk %u from %s refused: %s", id,
			       soda_conn_peer(ch->conn), soda_strerror(status));
	if (status != -ENOTCONN)
		note_refusal(id, status); /* before the chunk is REMOTE, and asked for again */
	soda_install_cancel(id);
	return status;
}

/* Install the next n answers, neighbours in one call. */
static int install_arrived(struct soda_thread *t, struct soda_fetch_channel *ch,
			   struct soda_done *done, int n)
{
	struct soda_install *in = ch->room->in;
	int err = 0;
	uint64_t damaged = soda_sealing_on() ? open_sealed(t, ch, done, n, &err) : 0;

	for (int i = 0; i < n;) {
		uint32_t k = ch->head + (uint32_t)i, run = 0;
		struct soda_fetch_request *q = &ch->req[k % ch->slots_n];
		int ret;

		if (q->withdrawn) {
			soda_channel_forget_late(ch);
			i++;
			continue;
		}
		if (q->copying || damaged >> i & 1) {
			if (q->copying)
				settle_copying(ch, k, &done[i]);
			i++;
			continue;
		}
		if (done[i].status) {
			err = refused(ch, q->in.id, done[i].status);
			i++;
			continue;
		}
		if (done[i].installed) {
			settle_arrived(t, q);
			i++;
			continue;
		}
		if (q->in.shared) {
			ret = settle_shared(t, ch, k, &done[i]);
			err = ret ? ret : err;
			i++;
			continue;
		}
		do {
			in[run] = ch->req[(k + run) % ch->slots_n].in;
			run++;
		} while (i + (int)run < n && adjacent(ch, k + run, &done[i + (int)run - 1]));
		count_arrived(t, ch, k, run);
		ret = soda_install_run(soda_region_of(in[0].id), in, run, data_of(ch, k, &done[i]));
		if (ret)
			err = ret;
		i += (int)run;
	}
	ch->head += (uint32_t)n;
	return err;
}

/*
 * Of READs ahead one call collects at most half of the answers that are outstanding: the program's
 * fault on a chunk of the other half makes the stream fetch on, while chunks are still under way.
 */
static int most_at_once(const struct soda_fetch_channel *ch)
{
	uint32_t n = soda_channel_outstanding(ch);

	return (int)(soda_channel_for_ahead(ch) ? (n + 1) / 2 : n);
}

int soda_channel_collect(struct soda_thread *t, struct soda_fetch_channel *ch, int max,
			 int64_t timeout_ns, int64_t spin_ns, int *install_err)
{
	struct soda_done *done;
	int n;

	if (!soda_channel_usable(ch))
		return -ENOTCONN;
	assert(!ch->room->collects && "an answer is installed without another one");
	ch->room->collects = true;
	done = ch->room->done;
	n = soda_conn_poll(ch->conn, done, max < SODA_COLLECT_MAX ? max : SODA_COLLECT_MAX,
			   timeout_ns, spin_ns);
	if (n < 0)
		soda_channel_break(ch, n);
	else if (n)
		*install_err = install_arrived(t, ch, done, n);
	ch->room->collects = false;
	return n;
}

static int collect(struct soda_thread *t, struct soda_fetch_channel *ch, int64_t timeout_ns,
		   int64_t spin_ns, int *install_err)
{
	return soda_channel_collect(t, ch, most_at_once(ch), timeout_ns, spin_ns, install_err);
}

static bool fetching(uint32_t id)
{
	return soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) == SODA_CHUNK_FETCHING;
}

enum { MOVED = 1 };

/* Whether the slab can be read from another server that is UP. */
static bool elsewhere(const struct soda_region *r, const struct soda_link *link)
{
	const struct soda_link *other = soda_copies_source(r, link);

	return other != link && soda_server_up(&other->server);
}

/*
 * Whether a READ from that server that is late may be asked for at another one: few may, so that a
 * machine that is slow as a whole is not burdened with twice the READs; but each may that has taken
 * so long as a server may be silent.  Of the node's store then also at the same one: who fills the
 * chunk there may ask a server that is away, and the data can be had all the same.
 */
static bool may_hedge(const struct soda_thread *t, const struct soda_region *r,
		      const struct soda_link *link, uint64_t since_ns)
{
	const struct soda_link *other = soda_copies_source(r, link);

	if (!elsewhere(r, link) && !r->shared)
		return false;
	if (soda_now_ns() - since_ns >= SODA_SILENT_MS * SODA_MS_NS)
		return true;
	return elsewhere(r, link) &&
	       (!atomic_load(&other->late) &&
		t->hedged * SODA_HEDGE_SHARE <= t->reads + SODA_HEDGE_SPARE * SODA_HEDGE_SHARE);
}

/*
 * The channel's request for the chunk is late: its answer will be ignored, and the caller, whose
 * the FETCHING chunk is from now on, asks elsewhere.  false: there is no such request, or none that
 * another one would be of use for.
 */
static bool withdraw(struct soda_thread *t, struct soda_fetch_channel *ch,
		     const struct soda_region *r, uint32_t id)
{
	struct soda_link *link = soda_channel_link(ch);

	for (uint32_t k = ch->head; k != ch->tail; k++) {
		struct soda_fetch_request *q = &ch->req[k % ch->slots_n];

		if (q->in.id != id || q->withdrawn || q->placed || q->copying)
			continue;
		if (q->in.late && !elsewhere(r, link))
			return false;
		q->withdrawn = true;
		q->withdrawn_ns = soda_now_ns();
		atomic_fetch_add(&link->late, 1);
		atomic_store_explicit(&soda_agent.table[id].channel, SODA_CHANNEL_NONE,
				      memory_order_relaxed);
		t->hedged++;
		soda_link_want_collector(link);
		return true;
	}
	return false;
}

/*
 * Collect until the chunk has settled. The lock is held.  If the chunk is FETCHING and nothing is
 * under way here, our answer has come and another thread fetches the chunk anew on its own channel:
 * the thread faults again and then waits for that one.  MOVED: the answer is late, and the chunk is
 * the caller's, to be asked for at another copy's server.
 */
static int collect_chunk(struct soda_thread *t, struct soda_fetch_channel *ch,
			 const struct soda_region *r, uint32_t id, uint64_t deadline_ns,
			 int64_t spin_ns)
{
	const int64_t look_ns =
		soda_redundant() ? SODA_HEDGE_MS * SODA_MS_NS : SODA_COLLECT_LOOK_MS * SODA_MS_NS;
	uint64_t began = soda_redundant() ? soda_now_ns() : 0; /* of use with redundancy alone */
	uint64_t late_ns = soda_redundant() ? began + (uint64_t)look_ns : UINT64_MAX;
	int err = 0;

	while (fetching(id) && soda_channel_outstanding(ch)) {
		uint64_t now = soda_now_ns();
		int64_t left = now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
		int64_t asked = left < look_ns ? left : look_ns;
		int n = collect(t, ch, asked, spin_ns, &err);

		if (n < 0)
			return n;
		if (n || !fetching(id))
			continue;
		if (soda_now_ns() >= late_ns && may_hedge(t, r, soda_channel_link(ch), began) &&
		    withdraw(t, ch, r, id))
			return MOVED;
		deadline_ns += soda_thread_stood_still(t, (uint64_t)asked, soda_now_ns() - now);
		if (soda_now_ns() >= deadline_ns) {
			/*
			 * The answer may still come, and must not be written into a slot that is
			 * used again.
			 */
			soda_channel_break(ch, -ETIMEDOUT);
			return -ETIMEDOUT;
		}
	}
	return err;
}

/*
 * An agent's static cache that is mapped here.  Pages of it that this process reads get page-table
 * entries, and so count as this process's memory (Pss), although they are the agent's.  So once
 * MAPPED_MOST bytes of a mapping were read, the entries of the whole mapping are dropped in one
 * call; those of a smaller mapping never are.  The agent's memory stays: a thread that reads it
 * again, or is reading it at that moment, pays a minor fault.
 *
 * Each chunk from there then costs such a fault, some 10 us, which is affordable for a static
 * cache, the smaller part of what is fetched.  Regions that a memory server on this machine has
 * mapped here keep their entries: there every chunk would pay, and the memory is the node's anyway.
 * The caller holds a channel's lock, so that mr does not change.
 */
static void drop_mapped_entries(const struct soda_mr *mr, uint64_t offset, uint32_t bytes)
{
	struct soda_static_map *s = mr->map ? NULL : soda_mr_mapped_static(mr, offset, bytes);
	struct iovec all;
	size_t ignored;

	if (!s || s->bytes <= MAPPED_MOST)
		return;
	/* relaxed: the counter orders nothing, and two threads that both drop do no harm */
	if (atomic_fetch_add_explicit(&s->read, bytes, memory_order_relaxed) + bytes < MAPPED_MOST)
		return;
	atomic_store_explicit(&s->read, 0, memory_order_relaxed);
	all = (struct iovec){ (void *)(uintptr_t)s->memory, s->bytes };
	/* A failure is ignored: after another MAPPED_MOST bytes the drop is tried again. */
	soda_agent.page_ops->drop(&all, 1, &ignored);
}

int soda_channel_install_direct(struct soda_thread *t, struct soda_fetch_channel *ch,
				struct soda_region *r, const struct soda_install *in, uint32_t n)
{
	uint64_t bytes = soda_chunk_bytes() * (n - 1) + soda_region_chunk_bytes(r, in[n - 1].id);
	const struct soda_region *from = soda_copy_to_read(r, soda_channel_link(ch));
	const void *src = NULL;
	int ret;

	if (from && !r->sealing)
		src = soda_mr_direct(&from->mr, soda_region_offset(r, in->id), (uint32_t)bytes);
	if (!src)
		return 1;
	if (!soda_channel_usable(ch) || soda_channel_refuses(r)) {
		for (uint32_t i = 0; i < n; i++)
			soda_install_cancel(in[i].id);
		return soda_channel_usable(ch) ? -EIO : -ENOTCONN;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t have = soda_region_chunk_bytes(r, in[i].id);

		SODA_TP_FETCH(in[i].id, have, in[i].ahead);
		count_fetch(t, &in[i], have);
	}
	ret = soda_install_run(r, in, n, src);
	drop_mapped_entries(&from->mr, soda_region_offset(r, in->id), (uint32_t)bytes);
	return ret;
}

/*
 * Post the READ; where the channel has no free slot (in handler mode the handler's requests have
 * them; with redundancy one that was late), collect answers first.  MOVED: nothing is posted, as no
 * slot gets free soon, and another copy's server is UP.
 */
static int post_with_room(struct soda_thread *t, struct soda_fetch_channel *ch,
			  struct soda_region *r, struct soda_install in, uint64_t deadline_ns)
{
	const int64_t look_ns =
		soda_redundant() ? SODA_HEDGE_MS * SODA_MS_NS : SODA_COLLECT_LOOK_MS * SODA_MS_NS;
	int ret, err, n;

	while ((ret = soda_channel_post(t, ch, r, in)) == -EAGAIN) {
		uint64_t now = soda_now_ns();

		if (now >= deadline_ns || !soda_channel_outstanding(ch))
			return -ETIMEDOUT;
		n = collect(t, ch, look_ns, 0, &err);
		if (n < 0)
			return n;
		if (!n && soda_redundant() && soda_channel_end_late(ch))
			return -ETIMEDOUT;
		if (!n && soda_redundant() && elsewhere(r, soda_channel_link(ch)))
			return MOVED;
		deadline_ns += soda_thread_stood_still(t, (uint64_t)look_ns, soda_now_ns() - now);
	}
	return ret;
}

static int demand_locked(struct soda_thread *t, struct soda_fetch_channel *ch,
			 struct soda_region *r, struct soda_install in, uint64_t deadline_ns)
{
	bool polled = soda_waiting_choose(&t->waiting, soda_agent.may_poll);
	uint64_t start = soda_now_ns();
	int ret = soda_channel_install_direct(t, ch, r, &in, 1);

	if (ret <= 0)
		return ret;
	ret = post_with_room(t, ch, r, in, deadline_ns);
	if (ret == MOVED)
		return ret;
	if (ret) {
		soda_install_cancel(in.id);
		return ret;
	}
	ret = soda_conn_flush(ch->conn, polled);
	if (ret) {
		soda_channel_break(ch, ret);
		return ret;
	}
	ret = collect_chunk(t, ch, r, in.id, deadline_ns,
			    polled ? soda_agent.settings.poll_us * 1000ll : 0);
	if (!ret) {
		soda_waiting_learn(&t->waiting, polled, soda_now_ns() - start);
		soda_count(t, polled ? SODA_CNT_POLLED : SODA_CNT_SLEPT, 1);
	}
	return ret;
}

/* The channel on which the chunk is fetched, or was last: then there may be nothing to collect. */
static struct soda_fetch_channel *channel_of(uint32_t id)
{
	uint16_t i = atomic_load_explicit(&soda_agent.table[id].channel, memory_order_acquire);

	return &soda_channels[i % (SODA_MEMBERS_MAX * SODA_CHANNELS_OF_MEMBER)];
}

/* As soda_fetch_demand, from that server; or MOVED. */
static int demand_from(struct soda_thread *t, const struct soda_link *link, struct soda_region *r,
		       struct soda_install in, uint64_t deadline_ns)
{
	struct soda_fetch_channel *ch = &soda_channels[soda_channel_demand(t, link)];
	int ret;

	if (!soda_lock_acquire_until(&ch->lock, deadline_ns)) {
		soda_install_cancel(in.id);
		return -ETIMEDOUT;
	}
	ret = demand_locked(t, ch, r, in, deadline_ns);
	soda_lock_release(&ch->lock);
	return ret;
}

/* Whether the chunk is being filled in the node's store, perhaps by a server that is away. */
static bool fill_may_be_lost(const struct soda_region *r, uint32_t id)
{
	uint32_t up = 0;

	if (!soda_shared_fills(r, id))
		return false;
	for (uint32_t i = 0; i < soda_members(); i++)
		up += soda_server_up(&soda_agent.links[i].server);
	return up < soda_members();
}

/* The caller has the chunk FETCHING, of a slab without pieces. */
static int demand(struct soda_thread *t, struct soda_region *r, struct soda_install in,
		  uint64_t deadline_ns)
{
	const struct soda_link *link = soda_copies_source_of(r, in.id, t->avoid);
	int ret;

	in.late = in.late || (in.shared && soda_redundant() && fill_may_be_lost(r, in.id));
	ret = demand_from(t, link, r, in, deadline_ns);
	if (!soda_redundant())
		return ret;
	t->reads++;
	while (ret == MOVED) {
		link = soda_copies_source(r, link);
		in.late = true;
		ret = demand_from(t, link, r, in, deadline_ns);
	}
	/* the next attempt asks the other copy's server */
	t->avoid = soda_connection_lost(ret) ? link : NULL;
	return ret;
}

int soda_fetch_demand(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		      uint64_t deadline_ns)
{
	struct soda_install in = { .id = id, .block = (int16_t)block, .shared = r->shared };

	return r->pieces ? soda_gather_demand(t, r, id, block, deadline_ns)
			 : demand(t, r, in, deadline_ns);
}

int soda_fetch_rescue(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		      uint64_t since_ns, uint64_t deadline_ns)
{
	struct soda_fetch_channel *ch = channel_of(id);
	struct soda_link *link = soda_channel_link(ch);
	struct soda_install in = {
		.id = id, .block = (int16_t)block, .shared = r->shared, .late = true
	};
	bool ours;

	/* not only tried: others that wait for the chunk hand the lock to each other */
	if (r->pieces || !ch->slots_n || !may_hedge(t, r, link, since_ns) ||
	    !soda_lock_acquire_until(&ch->lock, soda_now_ns() + SODA_HEDGE_MS * SODA_MS_NS))
		return 0;
	ours = fetching(id) && withdraw(t, ch, r, id);
	soda_lock_release(&ch->lock);
	return ours ? demand(t, r, in, deadline_ns) : 0;
}

static int copy_locked(struct soda_thread *t, struct soda_fetch_channel *ch, struct soda_region *r,
		       uint32_t id, void *to, uint64_t deadline_ns)
{
	const struct soda_region *from = soda_copy_to_read(r, soda_channel_link(ch));
	uint32_t bytes = soda_region_chunk_bytes(r, id);
	struct soda_fetch_copying copying = { .to = to };
	const void *direct;
	int ret, err;

	if (!soda_channel_usable(ch) || !from)
		return -ENOTCONN;
	direct = r->sealing ? NULL : soda_mr_direct(&from->mr, soda_region_offset(r, id), bytes);
	if (direct) {
		memcpy(to, direct, bytes);
		return 0;
	}
	ret = post_with_room(t, ch, r, (struct soda_install){ .id = id, .block = -1 }, deadline_ns);
	if (ret)
		return ret == MOVED ? -EAGAIN : ret;
	ch->req[(ch->tail - 1) % ch->slots_n].copying = &copying;
	ret = soda_conn_flush(ch->conn, false);
	while (!ret && !copying.state) {
		ret = collect(t, ch, SODA_MS_NS, 0, &err);
		ret = ret > 0 ? 0 : ret;
		if (!ret && !copying.state && soda_now_ns() > deadline_ns)
			ret = -ETIMEDOUT;
	}
	if (!copying.state) /* no answer may come any more: it would go to `copying` */
		soda_channel_break(ch, ret);
	return copying.state < 0 ? copying.state : ret;
}

int soda_fetch_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *to,
		    uint64_t deadline_ns)
{
	struct soda_link *link = soda_copies_source(r, NULL);
	struct soda_fetch_channel *ch = &soda_channels[soda_channel_demand(t, link)];
	int ret;

	if (r->pieces)
		return soda_gather_copy(t, r, id, to, deadline_ns);
	if (!soda_lock_acquire_until(&ch->lock, deadline_ns))
		return -ETIMEDOUT;
	ret = copy_locked(t, ch, r, id, to, deadline_ns);
	soda_lock_release(&ch->lock);
	return ret;
}

int soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block)
{
	struct soda_fetch_channel *ch = &soda_channels[0];
	struct soda_install in = { .id = id, .block = (int16_t)block, .shared = r->shared };
	int ret;

	soda_lock_acquire(&ch->lock);
	ret = soda_channel_install_direct(t, ch, r, &in, 1);
	if (ret > 0) {
		ret = soda_channel_post(t, ch, r, in);
		if (ret)
			soda_install_cancel(id);
		else if ((ret = soda_conn_flush(ch->conn, false)))
			soda_channel_break(ch, ret);
	} else if (!ret) {
		ret = 1;
	}
	soda_lock_release(&ch->lock);
	return ret;
}

int soda_fetch_collect(struct soda_thread *t, uint32_t channel, int64_t timeout_ns, int64_t spin_ns)
{
	struct soda_fetch_channel *ch = &soda_channels[channel];
	int err = 0, n = 0;

	if (!soda_lock_try(&ch->lock))
		return 0;
	if (soda_channel_outstanding(ch))
		n = collect(t, ch, timeout_ns, spin_ns, &err);
	soda_lock_release(&ch->lock);
	return n;
}

int soda_fetch_fd(uint32_t channel)
{
	struct soda_fetch_channel *ch = &soda_channels[channel];
	int fd = -1;

	if (!soda_lock_try(&ch->lock))
		return -1;
	if (soda_channel_usable(ch))
		fd = soda_conn_fd(ch->conn);
	soda_lock_release(&ch->lock);
	return fd;
}

unsigned soda_fetch_outstanding(uint32_t channel)
{
	return soda_channel_outstanding(&soda_channels[channel]);
}

void soda_fetch_abandon(uint32_t id)
{
	struct soda_fetch_channel *ch = channel_of(id);

	if (!ch->slots_n || !soda_lock_try(&ch->lock))
		return;
	if (fetching(id) && soda_channel_usable(ch) && soda_channel_outstanding(ch))
		soda_channel_break(ch, -ETIMEDOUT);
	soda_lock_release(&ch->lock);
}

int soda_fetch_join(struct soda_thread *t, uint32_t id, uint64_t deadline_ns)
{
	enum { STEP_NS = 1000000 };
	struct soda_chunk *c = &soda_agent.table[id];

	while (fetching(id)) {
		struct soda_fetch_channel *ch = channel_of(id);
		uint64_t now = soda_now_ns();

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (ch->slots_n && soda_lock_acquire_until(&ch->lock, now + STEP_NS)) {
			int err = 0;

			if (fetching(id) && soda_channel_outstanding(ch))
				collect(t, ch, STEP_NS, 0, &err);
			soda_lock_release(&ch->lock);
		}
		soda_chunk_wait(c, STEP_NS / 20);
		deadline_ns += soda_thread_stood_still(t, 3 * STEP_NS, soda_now_ns() - now);
	}
	return 0;
}
