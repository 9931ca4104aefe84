/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of channels: made, connected, broken, fitted to the buffer. */
#include "host_agent/move/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/log.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/stuck.h"

struct soda_fetch_channel soda_channels[SODA_MEMBERS_MAX * SODA_CHANNELS_OF_MEMBER];
static _Atomic uint32_t pairs[SODA_MEMBERS_MAX]; /* of each member */

uint32_t soda_channels_pairs(void)
{
	return atomic_load(&pairs[0]);
}

/* How many channels the member has. */
static uint32_t channels_of(const struct soda_link *link)
{
	return 2 * atomic_load(&pairs[link->index]);
}

/* Channel i of them, the demand channels first. */
static struct soda_fetch_channel *channel(const struct soda_link *link, uint32_t i)
{
	uint32_t n = atomic_load(&pairs[link->index]);

	return &soda_channels[link->index * SODA_CHANNELS_OF_MEMBER +
			      (i < n ? i : SODA_CHANNEL_PAIRS_MAX + i - n)];
}

static int init_channel(struct soda_fetch_channel *ch)
{
	uint64_t bytes = SODA_SLOTS_MAX * soda_chunk_bytes();

	soda_lock_init(&ch->lock, SODA_RANK_CHANNEL);
	if (!ch->room)
		ch->room = calloc(1, sizeof(*ch->room));
	if (!ch->room)
		return -ENOMEM;
	ch->slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ch->slots == MAP_FAILED)
		return -ENOMEM;
	madvise(ch->slots, bytes, MADV_DONTFORK);
	madvise(ch->slots, bytes, MADV_NOHUGEPAGE);
	soda_numa_place(ch->slots, bytes);
	return 0;
}

/* For a server that comes later something may have to be evicted first. */
static bool take_credit(void)
{
	return soda_buffer_take(&soda_agent.buffer) ||
	       (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING &&
		!soda_evict_credit(soda_thread_internal(),
				   soda_now_ns() + SODA_JOIN_MS * SODA_MS_NS));
}

static bool add_pair(const struct soda_link *link)
{
	struct soda_fetch_channel *first = &soda_channels[link->index * SODA_CHANNELS_OF_MEMBER];
	uint32_t p = atomic_load(&pairs[link->index]);

	/*
	 * A demand channel needs a slot at once; soda_channels_resize gives slots to the channel
	 * for fetching ahead, if the buffer has room.
	 */
	if (p == SODA_CHANNEL_PAIRS_MAX || init_channel(&first[p]) ||
	    init_channel(&first[SODA_CHANNEL_PAIRS_MAX + p]))
		return false;
	if (!take_credit())
		return false;
	first[p].slots_n = 1;
	atomic_store(&pairs[link->index], p + 1);
	return true;
}

int soda_channels_start(const struct soda_link *link, uint32_t n)
{
	memset(&soda_channels[link->index * SODA_CHANNELS_OF_MEMBER], 0,
	       SODA_CHANNELS_OF_MEMBER * sizeof(soda_channels[0]));
	atomic_store(&pairs[link->index], 0);
	while (atomic_load(&pairs[link->index]) < n && n <= SODA_CHANNEL_PAIRS_MAX)
		if (!add_pair(link))
			return -ENOMEM;
	return 0;
}

/* fn for each channel to that server, with its lock held. */
static void each_channel(const struct soda_link *link,
			 void (*fn)(struct soda_fetch_channel *ch, void *arg), void *arg)
{
	for (uint32_t i = 0; i < channels_of(link); i++) {
		struct soda_fetch_channel *ch = channel(link, i);

		soda_lock_acquire(&ch->lock);
		fn(ch, arg);
		soda_lock_release(&ch->lock);
	}
}

int soda_channel_fail(struct soda_fetch_channel *ch)
{
	ch->broken = true;
	if (ch->head != ch->tail && soda_conn_revoke(ch->conn))
		return -EAGAIN;
	for (; ch->head != ch->tail; ch->head++) {
		struct soda_fetch_request *q = &ch->req[ch->head % ch->slots_n];

		if (q->withdrawn)
			soda_channel_forget_late(ch);
		else if (q->copying)
			q->copying->state = -ENOTCONN;
		else if (q->placed)
			soda_install_undo(q->in.id);
		else
			soda_install_cancel(q->in.id);
	}
	return 0;
}

/*
 * A peer that lives needs some 20 us to install a chunk, and the connection of a dead one ends.  A
 * peer that was stopped in the middle may go on at any time: such a channel's chunks are kept by
 * stuck.h.
 */
static void disconnect(struct soda_fetch_channel *ch, void *arg)
{
	const uint64_t *deadline_ns = arg;

	while (soda_channel_fail(ch) && soda_now_ns() < *deadline_ns)
		poll(NULL, 0, SODA_REVOKE_LOOK_MS);
	if (ch->head == ch->tail)
		soda_conn_close(ch->conn);
	else if (!soda_stuck_keep(ch))
		soda_log_error("%s stands still while it installs pages, as others before it; %u "
			       "chunks are out of reach for good",
			       soda_conn_peer(ch->conn), soda_channel_outstanding(ch));
	ch->conn = NULL;
	ch->head = ch->tail; /* one store: other threads read both without the lock */
}

void soda_channels_disconnect(const struct soda_link *link)
{
	uint64_t deadline_ns = soda_now_ns() + SODA_REVOKE_MS * SODA_MS_NS;

	each_channel(link, disconnect, &deadline_ns);
}

static void unmap(struct soda_fetch_channel *ch, void *arg)
{
	munmap(ch->slots, SODA_SLOTS_MAX * soda_chunk_bytes());
	ch->slots = NULL;
	free(ch->room);
	ch->room = NULL;
	soda_buffer_give(&soda_agent.buffer, ch->slots_n);
}

void soda_channels_stop(const struct soda_link *link)
{
	soda_channels_disconnect(link);
	soda_stuck_end();
	each_channel(link, unmap, NULL);
}

void soda_channels_abort(const struct soda_link *link)
{
	/*
	 * Without the lock: the thread that holds it may be the one that waits for an answer.  The
	 * connection stays: only the keeper closes connections, and only the keeper calls this.
	 */
	for (uint32_t i = 0; i < channels_of(link); i++) {
		struct soda_fetch_channel *ch = channel(link, i);

		if (ch->conn)
			soda_conn_abort(ch->conn);
	}
}

void soda_channels_forget(void (*fn)(struct soda_conn *conn))
{
	for (uint32_t k = 0; k < soda_members(); k++)
		for (uint32_t i = 0; i < channels_of(&soda_agent.links[k]); i++)
			fn(channel(&soda_agent.links[k], i)->conn);
	soda_stuck_forget(fn);
}

int soda_channels_lend(struct soda_thread *t, const struct soda_link *link,
		       int (*fn)(struct soda_conn *conn, void *arg), void *arg)
{
	struct soda_fetch_channel *ch = &soda_channels[soda_channel_demand(t, link)];
	int ret = -EBUSY;

	if (!soda_lock_try(&ch->lock))
		return ret;
	if (!soda_channel_usable(ch)) {
		ret = -ENOTCONN;
	} else if (!soda_channel_outstanding(ch)) {
		ret = fn(ch->conn, arg);
		if (ret < 0)
			soda_channel_break(ch, ret);
	}
	soda_lock_release(&ch->lock);
	return ret;
}

void soda_channels_exclusive(const struct soda_link *link, void (*fn)(void *arg), void *arg)
{
	const int64_t look_ns = 1000000;
	uint32_t n = channels_of(link);
	_Atomic uint32_t nobody = 0;

	/*
	 * Locks of one rank: this function alone ever holds two of them, and takes them in this
	 * order.  It sleeps on a word of its own and not on the lock's: a wake-up there is meant
	 * for a thread that waits for the lock, which would not get it.
	 */
	for (uint32_t i = 0; i < n; i++) {
		struct soda_lock *lock = &channel(link, i)->lock;

		while (!soda_lock_try(lock))
			soda_futex_wait(&nobody, 0, look_ns);
	}
	fn(arg);
	for (uint32_t i = 0; i < n; i++)
		soda_lock_release(&channel(link, i)->lock);
}

int soda_channels_reach_keyed(const struct soda_link *link, int timeout_ms, struct soda_why *why)
{
	int ret = 0;

	/* Without the locks: only the keeper closes connections, and only the keeper calls this. */
	for (uint32_t i = 0; i < channels_of(link) && ret == 0; i++) {
		struct soda_fetch_channel *ch = channel(link, i);

		if (ch->conn)
			ret = soda_conn_reach_keyed(ch->conn, timeout_ms, why);
	}
	return ret;
}

void soda_channels_connect(const struct soda_link *link, uint32_t i, struct soda_conn *conn)
{
	struct soda_fetch_channel *ch = channel(link, i);

	soda_lock_acquire(&ch->lock);
	ch->conn = conn;
	ch->broken = false;
	ch->head = ch->tail; /* one store: other threads read both without the lock */
	soda_lock_release(&ch->lock);
}

/* Change how many slots a channel has, as far as credits are there; unused slots' memory goes. */
static void fit_slots(struct soda_fetch_channel *ch, uint32_t n)
{
	uint64_t bytes = soda_chunk_bytes();

	if (ch->head != ch->tail)
		return; /* requests under way are found by slots_n; a later resize will do it */
	while (ch->slots_n < n && soda_buffer_take(&soda_agent.buffer))
		ch->slots_n++;
	if (ch->slots_n > n) {
		madvise(ch->slots + n * bytes, (ch->slots_n - n) * bytes, MADV_DONTNEED);
		soda_buffer_give(&soda_agent.buffer, ch->slots_n - n);
		ch->slots_n = n;
	}
}

static void fit_ahead(struct soda_fetch_channel *ch, void *arg)
{
	if (soda_channel_for_ahead(ch))
		fit_slots(ch, *(uint32_t *)arg);
}

int64_t soda_channels_staging(int64_t limit)
{
	const struct soda_settings *s = &soda_agent.settings;
	int64_t parts = (s->prefetch_chunks ? 1 : 0) + (s->mode == SODA_MODE_HANDLER ? 1 : 0);

	return parts * (limit / 8);
}

void soda_channels_resize(int64_t limit)
{
	int64_t shares = soda_channels_pairs() * soda_members(), share;
	uint32_t n = soda_agent.settings.prefetch_chunks;

	if (!shares) /* no member's channels are there yet */
		return;
	share = limit / 8 / shares;
	/*
	 * Fetching ahead may use an eighth of the buffer in all, and no less than two chunks make
	 * sense.
	 */
	n = n < SODA_SLOTS_MAX ? n : SODA_SLOTS_MAX;
	n = n < share ? n : (uint32_t)share;
	n = n < 2 ? 0 : n;
	for (uint32_t k = 0; k < soda_members(); k++)
		each_channel(&soda_agent.links[k], fit_ahead, &n);
	if (soda_agent.settings.mode == SODA_MODE_HANDLER) {
		/* The handler's demands share one channel. */
		uint32_t deep = share < 2 ? 1 : share < 16 ? (uint32_t)share : 16;

		soda_lock_acquire(&soda_channels[0].lock);
		fit_slots(&soda_channels[0], deep);
		soda_lock_release(&soda_channels[0].lock);
	}
}

void soda_channel_forget_late(struct soda_fetch_channel *ch)
{
	atomic_fetch_sub(&soda_channel_link(ch)->late, 1);
}

bool soda_channel_end_late(struct soda_fetch_channel *ch)
{
	const struct soda_fetch_request *q;

	if (ch->head == ch->tail)
		return false;
	q = &ch->req[ch->head % ch->slots_n];
	if (!q->withdrawn || soda_now_ns() - q->withdrawn_ns < SODA_COPIES_LATE_MS * SODA_MS_NS)
		return false;
	soda_channel_break(ch, -ETIMEDOUT);
	return true;
}

void soda_channel_break(struct soda_fetch_channel *ch, int err)
{
	soda_channel_fail(ch);
	soda_server_report(&soda_channel_link(ch)->server, err);
}
