/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/stuck.h"

#include "base/log.h"
#include "host_agent/pages/install.h"

enum { CONNECTIONS = 2 * SODA_CHANNEL_PAIRS_MAX };

/* What a stuck chunk becomes: what it was (REMOTE or ZERO), LOST, NONE. */
enum fate { AS_BEFORE, TO_LOST, TO_NONE };

struct stuck_chunk {
	uint32_t id, bytes;
	bool placed;
	enum fate fate;
};

/* The keeper alone changes all of it but the fates. */
static struct stuck {
	struct soda_conn *conn; /* NULL: not in use */
	uint32_t n;
	struct stuck_chunk chunk[SODA_SLOTS_MAX];
} stuck[CONNECTIONS];
static _Atomic uint32_t in_use;
static struct soda_lock lock = SODA_LOCK_INIT(SODA_RANK_STUCK); /* guards n, ids and fates */

bool soda_stuck_keep(struct soda_fetch_channel *ch)
{
	struct stuck *s = stuck;

	while (s < stuck + CONNECTIONS && s->conn)
		s++;
	if (s == stuck + CONNECTIONS)
		return false;
	soda_lock_acquire(&lock);
	s->conn = ch->conn;
	for (s->n = 0; ch->head != ch->tail; ch->head++) {
		const struct soda_fetch_request *q = &ch->req[ch->head % ch->slots_n];

		s->chunk[s->n++] = (struct stuck_chunk){ q->in.id, q->bytes, q->placed, AS_BEFORE };
		/*
		 * so that a thread that waits for the chunk in vain does not break a channel for it
		 */
		atomic_store(&soda_agent.table[q->in.id].channel, SODA_CHANNEL_NONE);
	}
	soda_lock_release(&lock);
	atomic_fetch_add(&in_use, 1);
	soda_log_error(
		"%s stands still while it installs pages; %u chunks are out of reach until it "
		"goes on, or ends",
		soda_conn_peer(s->conn), s->n);
	return true;
}

static void drop_installed(const struct stuck_chunk *k)
{
	struct iovec all = { soda_chunk_address(k->id), k->bytes };
	size_t dropped;
	int ret = soda_agent.page_ops->drop(&all, 1, &dropped);

	if (ret)
		soda_drop_refused(ret, false);
}

static void settle(const struct stuck_chunk *k)
{
	struct soda_chunk *c = &soda_agent.table[k->id];

	if (k->fate == AS_BEFORE && k->placed) {
		soda_install_undo(k->id);
		return;
	}
	if (k->fate == AS_BEFORE) {
		soda_install_cancel(k->id);
		return;
	}
	drop_installed(k);
	if (k->fate == TO_NONE) { /* in two legal steps; no thread can reach the object any more */
		soda_chunk_settle(c, SODA_CHUNK_REMOTE, 0, 0, 0);
		soda_chunk_settle(c, SODA_CHUNK_NONE, 0, 0, ~0u);
	} else {
		soda_chunk_settle(c, SODA_CHUNK_LOST, 0, 0, SODA_CW_BACKED);
	}
	soda_buffer_give(&soda_agent.buffer, 1);
}

/* From the last chunk on: each is taken out, under the lock, before it is settled. */
static void settle_all(struct stuck *s)
{
	while (s->n) {
		struct stuck_chunk k;

		soda_lock_acquire(&lock);
		k = s->chunk[--s->n];
		soda_lock_release(&lock);
		settle(&k);
	}
	soda_conn_close(s->conn);
	s->conn = NULL;
	atomic_fetch_sub(&in_use, 1);
}

void soda_stuck_look(void)
{
	for (uint32_t i = 0; i < CONNECTIONS && atomic_load(&in_use); i++) {
		struct stuck *s = &stuck[i];

		if (!s->conn || soda_conn_revoke(s->conn))
			continue;
		soda_log_warning("%s goes on, or is gone: %u chunks are within reach again",
				 soda_conn_peer(s->conn), s->n);
		settle_all(s);
	}
}

static struct stuck_chunk *find_locked(uint32_t id)
{
	for (struct stuck *s = stuck; s < stuck + CONNECTIONS; s++)
		for (uint32_t i = 0; i < s->n; i++)
			if (s->chunk[i].id == id)
				return &s->chunk[i];
	return NULL;
}

/* Set the chunk's fate, which only gets worse. false: the chunk is not stuck. */
static bool set_fate(uint32_t id, enum fate fate)
{
	struct stuck_chunk *k;

	if (!atomic_load(&in_use))
		return false;
	soda_lock_acquire(&lock);
	k = find_locked(id);
	if (k && fate > k->fate)
		k->fate = fate;
	soda_lock_release(&lock);
	return k;
}

bool soda_stuck_lose(uint32_t id)
{
	return set_fate(id, TO_LOST);
}

bool soda_stuck_orphan(uint32_t id)
{
	return set_fate(id, TO_NONE);
}

bool soda_stuck_has(uint32_t id)
{
	return set_fate(id, AS_BEFORE);
}

void soda_stuck_end(void)
{
	for (struct stuck *s = stuck; s < stuck + CONNECTIONS && atomic_load(&in_use); s++) {
		if (!s->conn)
			continue;
		soda_conn_close(s->conn);
		s->conn = NULL;
		s->n = 0;
		atomic_fetch_sub(&in_use, 1);
	}
}

void soda_stuck_forget(void (*fn)(struct soda_conn *conn))
{
	for (struct stuck *s = stuck; s < stuck + CONNECTIONS; s++)
		fn(s->conn);
}
