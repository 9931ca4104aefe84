/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/recover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "host_agent/fetch.h"
#include "host_agent/freeze.h"
#include "host_agent/owed.h"

int soda_recover_open(struct soda_conn *control, struct soda_region *r, int timeout_ms,
		      struct soda_why *why)
{
	struct soda_wire_open open = {
		.region_id = r->id,
		.name_bytes = (uint16_t)(r->file ? strlen(r->file) : 0),
		.flags = r->flags,
		.bytes = r->bytes,
	};
	struct soda_wire_opened opened;
	struct soda_mr mr;
	int ret = soda_conn_open_region(control, &open, r->file, &opened, &mr, timeout_ms, why);

	if (ret)
		return ret;
	r->mr = mr;
	r->bytes = opened.bytes;
	r->file_id = opened.file_id;
	r->generation = opened.generation;
	return 0;
}

/* The server's copy of a chunk is gone, or not the last one. True: it was the only one. */
static bool lose_chunk(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	for (;;) {
		switch (soda_chunk_state(w)) {
		case SODA_CHUNK_FETCHING: /* it fails, as every connection is broken */
		case SODA_CHUNK_BUSY:
			soda_chunk_wait(c, 1000000);
			w = soda_chunk_load(c);
			break;
		case SODA_CHUNK_REMOTE:
			if (soda_chunk_swap(c, &w,
					    (w & ~(SODA_CW_STATE | SODA_CW_BACKED)) |
						    SODA_CHUNK_LOST))
				return true;
			break;
		case SODA_CHUNK_CLEAN:
			/* Not BACKED: zeros that nobody wrote; dropping them is right. */
			if (!(w & SODA_CW_BACKED))
				return false;
			__attribute__((fallthrough)); /* ours is the only copy now */
		case SODA_CHUNK_DIRTY:
			if (soda_chunk_swap(
				    c, &w,
				    (w & ~(SODA_CW_STATE | SODA_CW_BACKED | SODA_CW_AS_FETCHED)) |
					    SODA_CHUNK_DIRTY |
					    soda_blocks_all() << SODA_CW_DIRTY_SHIFT))
				return false;
			break;
		default:
			return false;
		}
	}
}

static void lose_chunks(struct soda_region *r)
{
	for (uint32_t i = 0; i < r->chunks; i++)
		lose_chunk(r->first + i);
}

struct reopening {
	struct soda_conn *control;
	struct soda_region *r;
	struct soda_why *why;
	int ret;
};

static void unmap_old(void *arg)
{
	struct soda_region *r = arg;

	soda_conn_unmap_region(&r->mr);
}

static int connection_error(int ret)
{
	return ret == -ECONNRESET || ret == -EPIPE || ret == -ENOTCONN || ret == -ECONNABORTED ||
	       ret == -ETIMEDOUT || ret == -EPROTO;
}

static int reopen(struct soda_region *r, void *arg)
{
	struct reopening *o = arg;
	struct soda_region old = *r;
	int ret;

	/* Nothing may be read from the new region that was not put there: first the states.
	   Files that nobody writes keep theirs, if they are still the same. */
	if (!(r->flags & SODA_READ_ONLY)) {
		lose_chunks(r);
		soda_freeze_end(r);
	}
	soda_channels_exclusive(unmap_old, r);
	ret = soda_recover_open(o->control, r, (int)soda_agent.settings.fault_timeout_ms, o->why);
	if (connection_error(ret))
		return ret;
	if (ret || r->bytes != old.bytes ||
	    (r->flags & SODA_READ_ONLY && r->file_id != old.file_id)) {
		soda_log_error("%s %s (%llu bytes) could not be opened again on %s: %s; what is "
			       "not resident is lost",
			       r->file ? "file" : "object", r->file ? r->file : r->name,
			       (unsigned long long)old.bytes, soda_conn_peer(o->control),
			       ret ? o->why->text : "it has changed");
		r->bytes = old.bytes;
		atomic_store(&r->lost, true); /* a REMOTE chunk of a lost object is an error, too */
	}
	return 0;
}

static int renew(struct soda_region *r, void *arg)
{
	struct reopening *o = arg;

	if (!atomic_load(&r->lost))
		soda_freeze_renew(o->control, r);
	return 0;
}

static int lose_owed(struct soda_region *r, void *arg)
{
	uint32_t *lost = arg, before = *lost;

	if (r->flags & SODA_READ_ONLY)
		return 0;
	for (uint32_t id = r->first; id < r->first + r->chunks; id++)
		if (soda_owed_is(id) && lose_chunk(id))
			++*lost;
	if (*lost != before)
		atomic_store(&r->unwritten, true);
	return 0;
}

void soda_recover_owed(uint32_t agent)
{
	uint32_t lost = 0;

	if (!soda_owed_meet(agent))
		return;
	soda_regions_lock();
	soda_regions_each(lose_owed, &lost);
	soda_regions_unlock();
	soda_owed_buried();
	if (lost)
		soda_log_error("the DPU agent died with %u chunks that it had not brought to the "
			       "server yet: a touch of one is an error; soda_sync in time "
			       "prevents it",
			       lost);
}

/* The server has it still: only the way there is new. */
static int reach_again(struct soda_region *r, void *arg)
{
	struct reopening *o = arg;

	if (atomic_load(&r->lost))
		return 0;
	return soda_conn_renew_region(o->control, &r->mr, (int)soda_agent.settings.fault_timeout_ms,
				      o->why);
}

int soda_recover_regions(struct soda_conn *control, bool known, struct soda_why *why)
{
	struct reopening o = { .control = control, .why = why };
	int ret;

	soda_regions_lock();
	ret = soda_regions_each(known ? reach_again : reopen, &o);
	if (!ret)
		soda_regions_each(renew, &o);
	soda_regions_unlock();
	return ret;
}
