/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fetch.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/lock.h"
#include "common/log.h"
#include "host_agent/evict.h"
#include "host_agent/install.h"
#include "host_agent/placement.h"
#include "host_agent/session.h"

struct request {
	struct soda_install in;
	uint32_t bytes;
};

struct channel {
	struct soda_lock lock;
	/* guarded by lock */
	struct soda_conn *conn; /* NULL while down */
	bool broken;		/* failed, not yet replaced */
	char *slots;		/* SODA_SLOTS_MAX of them, in a reserved range */
	struct request req[SODA_SLOTS_MAX];
	/* the same, but anybody may look: whether there is something to collect */
	_Atomic uint32_t slots_n;    /* slots in use: each has a credit of the buffer */
	_Atomic uint32_t head, tail; /* requests outstanding: slot = number % slots_n */
} __attribute__((aligned(64)));

/* Demand channels are 0 .. pairs - 1, the channel for fetching ahead of pair p is MAX + p. */
static struct channel channels[2 * SODA_CHANNEL_PAIRS_MAX];
static _Atomic uint32_t pairs;

static uint32_t demand_index(const struct soda_thread *t)
{
	return t->index % atomic_load_explicit(&pairs, memory_order_relaxed);
}

static uint32_t ahead_index(const struct soda_thread *t)
{
	return SODA_CHANNEL_PAIRS_MAX + demand_index(t);
}

uint32_t soda_fetch_pairs(void)
{
	return atomic_load(&pairs);
}

static int init_channel(struct channel *ch)
{
	uint64_t bytes = SODA_SLOTS_MAX * soda_chunk_bytes();

	soda_lock_init(&ch->lock, SODA_RANK_CHANNEL);
	ch->slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ch->slots == MAP_FAILED)
		return -ENOMEM;
	madvise(ch->slots, bytes, MADV_DONTFORK);
	madvise(ch->slots, bytes, MADV_NOHUGEPAGE);
	soda_numa_place(ch->slots, bytes);
	return 0;
}

bool soda_fetch_add_pair(void)
{
	uint32_t p = atomic_load(&pairs);

	/* A demand channel needs its slot at once; one for fetching ahead gets some when there is
	 * room. */
	if (p == SODA_CHANNEL_PAIRS_MAX || init_channel(&channels[p]) ||
	    init_channel(&channels[SODA_CHANNEL_PAIRS_MAX + p]))
		return false;
	if (!soda_buffer_take(&soda_agent.buffer))
		return false;
	channels[p].slots_n = 1;
	atomic_store(&pairs, p + 1);
	return true;
}

int soda_fetch_start(uint32_t n)
{
	memset(channels, 0, sizeof(channels));
	atomic_store(&pairs, 0);
	while (soda_fetch_pairs() < n && n <= SODA_CHANNEL_PAIRS_MAX)
		if (!soda_fetch_add_pair())
			return -ENOMEM;
	return 0;
}

/* fn for each channel in use, with its lock held. */
static void each_channel(void (*fn)(struct channel *ch, void *arg), void *arg)
{
	uint32_t n = soda_fetch_pairs();

	for (uint32_t i = 0; i < 2 * n; i++) {
		struct channel *ch = &channels[i < n ? i : SODA_CHANNEL_PAIRS_MAX + i - n];

		soda_lock_acquire(&ch->lock);
		fn(ch, arg);
		soda_lock_release(&ch->lock);
	}
}

/* What is under way on the channel will not come. */
static void fail_outstanding(struct channel *ch)
{
	while (ch->head != ch->tail)
		soda_install_cancel(ch->req[ch->head++ % ch->slots_n].in.id);
	ch->broken = true;
}

static void disconnect(struct channel *ch, void *arg)
{
	fail_outstanding(ch);
	soda_conn_close(ch->conn);
	ch->conn = NULL;
	ch->head = ch->tail = 0;
}

void soda_fetch_disconnect(void)
{
	each_channel(disconnect, NULL);
}

static void unmap(struct channel *ch, void *arg)
{
	munmap(ch->slots, SODA_SLOTS_MAX * soda_chunk_bytes());
	ch->slots = NULL;
}

void soda_fetch_stop(void)
{
	each_channel(disconnect, NULL);
	each_channel(unmap, NULL);
}

void soda_fetch_abort(void)
{
	uint32_t n = soda_fetch_pairs();

	/* Without the lock: its holder may be the one that is blocked.  Only the keeper, which
	   calls this, ever closes a connection. */
	for (uint32_t i = 0; i < 2 * n; i++) {
		struct channel *ch = &channels[i < n ? i : SODA_CHANNEL_PAIRS_MAX + i - n];

		if (ch->conn)
			soda_conn_abort(ch->conn);
	}
}

void soda_fetch_forget(void (*fn)(struct soda_conn *conn))
{
	for (uint32_t i = 0; i < 2 * SODA_CHANNEL_PAIRS_MAX; i++)
		fn(channels[i].conn);
}

void soda_fetch_exclusive(void (*fn)(void *arg), void *arg)
{
	uint32_t n = soda_fetch_pairs();

	/* Demand channels only: mappings are used under their locks.  Locks of one rank: the
	   keeper is the only one that ever holds two of them. */
	for (uint32_t i = 0; i < n; i++)
		while (!soda_lock_try(&channels[i].lock))
			soda_futex_wait(&channels[i].lock.word, 1, 1000000);
	fn(arg);
	for (uint32_t i = 0; i < n; i++)
		soda_lock_release(&channels[i].lock);
}

void soda_fetch_connect(uint32_t i, struct soda_conn *conn)
{
	uint32_t n = soda_fetch_pairs();
	struct channel *ch = &channels[i < n ? i : SODA_CHANNEL_PAIRS_MAX + i - n];

	soda_lock_acquire(&ch->lock);
	ch->conn = conn;
	ch->broken = false;
	ch->head = ch->tail = 0;
	soda_lock_release(&ch->lock);
}

/* Change how many slots a channel has; what shrinks gives its memory back. */
static void fit_slots(struct channel *ch, uint32_t n)
{
	uint64_t bytes = soda_chunk_bytes();

	if (ch->head != ch->tail)
		return; /* numbering depends on it; the next resize comes */
	ch->head = ch->tail = 0;
	while (ch->slots_n < n && soda_buffer_take(&soda_agent.buffer))
		ch->slots_n++;
	if (ch->slots_n > n) {
		madvise(ch->slots + n * bytes, (ch->slots_n - n) * bytes, MADV_DONTNEED);
		soda_buffer_give(&soda_agent.buffer, ch->slots_n - n);
		ch->slots_n = n;
	}
}

static void fit_ahead(struct channel *ch, void *arg)
{
	if (ch >= &channels[SODA_CHANNEL_PAIRS_MAX])
		fit_slots(ch, *(uint32_t *)arg);
}

void soda_fetch_resize(int64_t limit)
{
	int64_t share = limit / 8 / soda_fetch_pairs();
	uint32_t n = soda_agent.settings.prefetch_chunks;

	/* Fetching ahead may use an eighth of the buffer in all, and no less than two chunks make
	 * sense. */
	n = n < SODA_SLOTS_MAX ? n : SODA_SLOTS_MAX;
	n = n < share ? n : (uint32_t)share;
	n = n < 2 ? 0 : n;
	each_channel(fit_ahead, &n);
	if (soda_agent.settings.mode == SODA_MODE_HANDLER) {
		/* The handler's demands share one channel. */
		uint32_t deep = share < 2 ? 1 : share < 16 ? (uint32_t)share : 16;

		soda_lock_acquire(&channels[0].lock);
		fit_slots(&channels[0], deep);
		soda_lock_release(&channels[0].lock);
	}
}

static char *slot_of(struct channel *ch, uint32_t number)
{
	return ch->slots + (number % ch->slots_n) * soda_chunk_bytes();
}

static uint32_t outstanding(const struct channel *ch)
{
	return ch->tail - ch->head;
}

static void break_channel(struct channel *ch, int err)
{
	fail_outstanding(ch);
	soda_session_report(err);
}

/* Queue a READ into the next slot. */
static int post(struct channel *ch, struct soda_region *r, struct soda_install in)
{
	struct request *q = &ch->req[ch->slots_n ? ch->tail % ch->slots_n : 0];
	uint32_t bytes = soda_region_chunk_bytes(r, in.id);
	int ret;

	if (!ch->conn || ch->broken)
		return -ENOTCONN;
	if (outstanding(ch) >= ch->slots_n)
		return -EAGAIN;
	ret = soda_conn_post_read(ch->conn, &r->mr, soda_region_offset(r, in.id), bytes,
				  slot_of(ch, ch->tail), in.id);
	if (ret && ret != -EAGAIN && ret != -EINVAL)
		break_channel(ch, ret);
	if (ret)
		return ret;
	*q = (struct request){ .in = in, .bytes = bytes };
	atomic_store_explicit(&soda_agent.table[in.id].channel, (uint16_t)(ch - channels),
			      memory_order_release);
	ch->tail++;
	return 0;
}

/* Whether request k can share one install with the one before it. */
static bool adjacent(struct channel *ch, uint32_t k)
{
	const struct request *a = &ch->req[(k - 1) % ch->slots_n], *b = &ch->req[k % ch->slots_n];

	return b->in.id == a->in.id + 1 && a->in.block < 0 && b->in.block < 0 && k % ch->slots_n &&
	       a->bytes == soda_chunk_bytes() &&
	       soda_region_of(a->in.id) == soda_region_of(b->in.id);
}

static void count_fetch(struct soda_thread *t, const struct soda_install *in, uint32_t bytes)
{
	soda_count(t, SODA_CNT_BYTES_FETCHED, bytes);
	soda_count(t, in->ahead ? SODA_CNT_PREFETCHED : SODA_CNT_FETCHES, 1);
}

/* The next n answers are in their slots: install them, neighbours together. */
static int install_arrived(struct soda_thread *t, struct channel *ch, const struct soda_done *done,
			   int n)
{
	struct soda_install in[SODA_SLOTS_MAX];
	int err = 0;

	for (int i = 0; i < n;) {
		uint32_t k = ch->head + (uint32_t)i, run = 0;
		struct request *q = &ch->req[k % ch->slots_n];
		int ret;

		if (done[i].status) {
			soda_log_error("fetch of chunk %u from %s refused: %s", q->in.id,
				       soda_conn_peer(ch->conn), soda_strerror(done[i].status));
			soda_install_cancel(q->in.id);
			err = done[i].status;
			i++;
			continue;
		}
		do {
			in[run] = ch->req[(k + run) % ch->slots_n].in;
			run++;
		} while (i + (int)run < n && !done[i + (int)run].status && adjacent(ch, k + run));
		/* Counted first: the install wakes the threads that look at the counters. */
		for (uint32_t j = 0; j < run; j++)
			count_fetch(t, &in[j], ch->req[(k + j) % ch->slots_n].bytes);
		ret = soda_install_run(soda_region_of(in[0].id), in, run, slot_of(ch, k));
		if (ret)
			err = ret;
		i += (int)run;
	}
	ch->head += (uint32_t)n;
	return err;
}

/*
 * What is fetched ahead is collected by halves: the fault on the other half is what
 * makes the stream run on while it is still under way.
 */
static int most_at_once(const struct channel *ch)
{
	uint32_t n = outstanding(ch);

	return (int)(ch < &channels[SODA_CHANNEL_PAIRS_MAX] ? n : (n + 1) / 2);
}

/* Collect what is there, waiting at most timeout_ns for the first. Count, 0, or an error. */
static int collect_some(struct soda_thread *t, struct channel *ch, int max, int64_t timeout_ns,
			int64_t spin_ns, int *install_err)
{
	struct soda_done done[SODA_SLOTS_MAX];
	int n;

	if (!ch->conn || ch->broken)
		return -ENOTCONN;
	n = soda_conn_poll(ch->conn, done, max, timeout_ns, spin_ns);
	if (n < 0)
		break_channel(ch, n);
	else if (n)
		*install_err = install_arrived(t, ch, done, n);
	return n;
}

static int collect(struct soda_thread *t, struct channel *ch, int64_t timeout_ns, int64_t spin_ns,
		   int *install_err)
{
	return collect_some(t, ch, most_at_once(ch), timeout_ns, spin_ns, install_err);
}

static bool fetching(uint32_t id)
{
	return soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) == SODA_CHUNK_FETCHING;
}

static int64_t until(uint64_t deadline_ns)
{
	uint64_t now = soda_now_ns();

	return now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
}

/* Collect until the chunk has settled. The lock is held. */
static int collect_chunk(struct soda_thread *t, struct channel *ch, uint32_t id,
			 uint64_t deadline_ns, int64_t spin_ns)
{
	int err = 0;

	while (fetching(id)) {
		int n = collect(t, ch, until(deadline_ns), spin_ns, &err);

		if (n < 0)
			return n;
		if (!n && fetching(id) && until(deadline_ns) == 0) {
			break_channel(
				ch, -ETIMEDOUT); /* the answer may still come: not into this slot */
			return -ETIMEDOUT;
		}
	}
	return err;
}

/* The server's memory is mapped here: no request, no staging. */
static int install_direct(struct soda_thread *t, struct channel *ch, struct soda_region *r,
			  const struct soda_install *in, uint32_t n)
{
	uint64_t bytes = soda_chunk_bytes() * (n - 1) + soda_region_chunk_bytes(r, in[n - 1].id);
	const void *src = soda_mr_direct(&r->mr, soda_region_offset(r, in->id), (uint32_t)bytes);

	if (!src)
		return 1;
	if (!ch->conn || ch->broken) {
		for (uint32_t i = 0; i < n; i++)
			soda_install_cancel(in[i].id);
		return -ENOTCONN;
	}
	for (uint32_t i = 0; i < n; i++)
		count_fetch(t, &in[i], soda_region_chunk_bytes(r, in[i].id));
	return soda_install_run(r, in, n, src);
}

static int demand_locked(struct soda_thread *t, struct channel *ch, struct soda_region *r,
			 struct soda_install in, uint64_t deadline_ns)
{
	bool polled = soda_waiting_choose(&t->waiting, soda_agent.may_poll);
	uint64_t start = soda_now_ns();
	int ret = install_direct(t, ch, r, &in, 1);

	if (ret <= 0)
		return ret;
	ret = post(ch, r, in);
	if (ret) {
		soda_install_cancel(in.id);
		return ret;
	}
	ret = soda_conn_flush(ch->conn, polled);
	if (ret) {
		break_channel(ch, ret);
		return ret;
	}
	ret = collect_chunk(t, ch, in.id, deadline_ns,
			    polled ? soda_agent.settings.poll_us * 1000ll : 0);
	if (!ret) {
		soda_waiting_learn(&t->waiting, polled, soda_now_ns() - start);
		soda_count(t, polled ? SODA_CNT_POLLED : SODA_CNT_SLEPT, 1);
	}
	return ret;
}

int soda_fetch_demand(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		      uint64_t deadline_ns)
{
	struct channel *ch = &channels[demand_index(t)];
	struct soda_install in = { .id = id, .block = (int16_t)block };
	int ret;

	if (!soda_lock_acquire_until(&ch->lock, deadline_ns)) {
		soda_install_cancel(id);
		return -ETIMEDOUT;
	}
	ret = demand_locked(t, ch, r, in, deadline_ns);
	soda_lock_release(&ch->lock);
	return ret;
}

int soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block)
{
	struct channel *ch = &channels[0];
	struct soda_install in = { .id = id, .block = (int16_t)block };
	int ret;

	soda_lock_acquire(&ch->lock);
	ret = install_direct(t, ch, r, &in, 1);
	if (ret > 0) {
		ret = post(ch, r, in);
		if (ret)
			soda_install_cancel(id);
		else if ((ret = soda_conn_flush(ch->conn, false)))
			break_channel(ch, ret);
	}
	soda_lock_release(&ch->lock);
	return ret;
}

int soda_fetch_collect(struct soda_thread *t, uint32_t channel, int64_t timeout_ns, int64_t spin_ns)
{
	struct channel *ch = &channels[channel];
	int err = 0, n = 0;

	if (!soda_lock_try(&ch->lock))
		return 0;
	if (outstanding(ch))
		n = collect(t, ch, timeout_ns, spin_ns, &err);
	soda_lock_release(&ch->lock);
	return n;
}

int soda_fetch_fd(uint32_t channel)
{
	struct channel *ch = &channels[channel];
	int fd = -1;

	if (!soda_lock_try(&ch->lock))
		return -1;
	if (ch->conn && !ch->broken)
		fd = soda_conn_fd(ch->conn);
	soda_lock_release(&ch->lock);
	return fd;
}

unsigned soda_fetch_outstanding(uint32_t channel)
{
	return outstanding(&channels[channel]);
}

/* Make a REMOTE chunk ours with a credit. */
static bool claim_ahead(struct soda_thread *t, struct soda_region *r, uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	if (soda_evict_credit(t, 0))
		return false;
	while (soda_chunk_state(w) == SODA_CHUNK_REMOTE)
		if (soda_chunk_swap(c, &w, (w & ~SODA_CW_STATE) | SODA_CHUNK_FETCHING))
			return true;
	soda_buffer_give(&soda_agent.buffer, 1);
	return false;
}

static bool remote(uint32_t id)
{
	return soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) == SODA_CHUNK_REMOTE;
}

/* Runs of neighbours straight from the mapped memory. */
static uint32_t ahead_direct(struct soda_thread *t, struct channel *ch, struct soda_region *r,
			     const struct soda_plan *plan)
{
	struct soda_install in[SODA_SLOTS_MAX];
	uint32_t run = 0, i;

	for (i = 0; i < plan->n; i++) {
		uint32_t id = (uint32_t)(plan->first + (int64_t)i * plan->stride);
		bool mine = remote(id) && claim_ahead(t, r, id);

		if (run && (!mine || id != in[run - 1].id + 1 || run == SODA_SLOTS_MAX)) {
			install_direct(t, ch, r, in, run);
			run = 0;
		}
		if (mine)
			in[run++] = (struct soda_install){ .id = id, .block = -1, .ahead = true };
	}
	if (run)
		install_direct(t, ch, r, in, run);
	return i;
}

static uint32_t ahead_posted(struct soda_thread *t, struct channel *ch, struct soda_region *r,
			     const struct soda_plan *plan)
{
	uint32_t i;
	int err;

	/* Room for the whole plan, as far as answers are there. */
	while (outstanding(ch) + plan->n > ch->slots_n && outstanding(ch))
		if (collect(t, ch, 0, 0, &err) <= 0)
			break;
	for (i = 0; i < plan->n && outstanding(ch) < ch->slots_n; i++) {
		uint32_t id = (uint32_t)(plan->first + (int64_t)i * plan->stride);
		struct soda_install in = { .id = id, .block = -1, .ahead = true };

		if (!remote(id))
			continue;
		if (!claim_ahead(t, r, id))
			break;
		if (post(ch, r, in)) {
			soda_install_cancel(id);
			break;
		}
	}
	if (outstanding(ch) && ch->conn && !ch->broken) {
		/* A deep queue keeps the server busy by itself: nobody polls for it. */
		err = soda_conn_flush(ch->conn, false);
		if (err)
			break_channel(ch, err);
	}
	return i;
}

uint32_t soda_fetch_ahead(struct soda_thread *t, struct soda_region *r,
			  const struct soda_plan *plan)
{
	bool direct = soda_mr_direct(&r->mr, 0, 0) != NULL;
	struct channel *ch = &channels[direct ? demand_index(t) : ahead_index(t)];
	uint32_t n = 0;

	if (!soda_lock_try(&ch->lock))
		return 0;
	if (ch->conn && !ch->broken)
		n = direct ? ahead_direct(t, ch, r, plan) : ahead_posted(t, ch, r, plan);
	soda_lock_release(&ch->lock);
	return n;
}

int soda_fetch_join(struct soda_thread *t, uint32_t id, uint64_t deadline_ns)
{
	enum { STEP_NS = 1000000 };
	struct soda_chunk *c = &soda_agent.table[id];

	while (fetching(id)) {
		uint16_t i = atomic_load_explicit(&c->channel, memory_order_acquire);
		struct channel *ch = &channels[i % (2 * SODA_CHANNEL_PAIRS_MAX)];
		uint64_t now = soda_now_ns();

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		/* `channel` may be of the chunk's last journey: then there is nothing to collect.
		 */
		if (ch->slots_n && soda_lock_acquire_until(&ch->lock, now + STEP_NS)) {
			int err = 0;

			if (fetching(id) && outstanding(ch))
				collect(t, ch, STEP_NS, 0, &err);
			soda_lock_release(&ch->lock);
		}
		soda_chunk_wait(c, STEP_NS / 20);
	}
	return 0;
}

void soda_fetch_collect_idle(struct soda_thread *t)
{
	uint32_t n = soda_fetch_pairs();
	int err;

	for (uint32_t i = 0; i < n; i++) {
		struct channel *ch = &channels[SODA_CHANNEL_PAIRS_MAX + i];

		if (!outstanding(ch) || !soda_lock_try(&ch->lock))
			continue;
		if (outstanding(ch))
			collect_some(t, ch, (int)outstanding(ch), 0, 0, &err);
		soda_lock_release(&ch->lock);
	}
}

int soda_fetch_ahead_fds(int *fds, int max)
{
	uint32_t n = soda_fetch_pairs();
	int k = 0;

	for (uint32_t i = SODA_CHANNEL_PAIRS_MAX; i < SODA_CHANNEL_PAIRS_MAX + n && k < max; i++) {
		int fd = outstanding(&channels[i]) ? soda_fetch_fd(i) : -1;

		if (fd >= 0)
			fds[k++] = fd;
	}
	return k;
}
