/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/publish.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/helper.h"
#include "host_agent/fault/fault.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pool/freeze.h"
#include "soda.h"

enum { PAUSE_MS = 20 }; /* before a question that an agent could not pass on is asked again */

/* One call of soda_publish. */
struct publishing {
	struct soda_region *r;
	char *name;	 /* a copy that the object keeps */
	bool asked;	 /* the server may have published the object */
	uint32_t losses; /* soda_unacked_losses() before the first sync of the last attempt */
	struct soda_wire_opened opened;
	struct soda_why *why;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct soda_why *why, int err,
							const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return err;
}

/* Whether the object can be published at all. */
static int check(const struct soda_region *r, const char *name, struct soda_why *why)
{
	uint32_t flags = atomic_load(&r->flags);

	if (soda_members() > 1 && (!soda_agent.settings.alone || r->rest || soda_copies(r)))
		return refuse(why, -ENOTSUP,
			      "an object on a pool of %u servers lies on several of them, and only "
			      "one that lies on one server can be published",
			      soda_members());

	if (r->sealing)
		return refuse(why, -ENOTSUP,
			      "it is sealed (SODA_SEAL, SODA_SEALED), with a key that no other "
			      "program has");
	if (flags & SODA_REGION_PUBLISHED)
		return refuse(why, -EALREADY, "it is published already, as %.200s", r->file);
	if (flags)
		return refuse(why, -EINVAL, "it is the file %.150s: others open that by its name",
			      r->file);
	if (r->doubtful && atomic_load(&r->sealed) && strcmp(r->doubtful, name) != 0)
		return refuse(why, -EALREADY,
			      "it may be published as %.150s, which was not answered: publish it "
			      "under that name to find out",
			      r->doubtful);
	if (soda_freeze_covers(r, r->first, r->first + r->chunks - 1))
		return refuse(why, -EBUSY,
			      "a part of it is in the static cache: end that first "
			      "(SODA_NO_CACHE)");
	return 0;
}

static int protect(const struct soda_region *r, int prot, struct soda_why *why)
{
	if (!mprotect(soda_chunk_address(r->first), r->span, prot))
		return 0;
	return refuse(why, -ENOMEM, "the kernel does not protect it: %s (vm.max_map_count)",
		      soda_strerror(errno));
}

/*
 * Whether the chunk is zeros here, while the server may still have what was discarded.  One that is
 * FETCHING or BUSY is being filled, or dropped: its thread makes it CLEAN or ZERO.
 */
static bool is_stale(uint32_t w)
{
	switch (soda_chunk_state(w)) {
	case SODA_CHUNK_ZERO:
		return true;
	case SODA_CHUNK_CLEAN:
	case SODA_CHUNK_FETCHING:
	case SODA_CHUNK_BUSY:
		return !(w & SODA_CW_BACKED);
	default:
		return false;
	}
}

/* After protect(): make chunks that were discarded dirty zeros, so that the server gets these. */
static int freshen(struct soda_region *r, struct soda_why *why)
{
	struct soda_thread *t = soda_thread_self();
	sigset_t saved;
	int ret = t ? 0 : -ENOMEM;

	if (!atomic_load(&r->stale))
		return 0;
	soda_signals_block(&saved);
	for (uint32_t id = r->first; !ret && id < r->first + r->chunks; id++)
		if (is_stale(soda_chunk_load(&soda_agent.table[id])))
			ret = soda_fault_dirty(t, r, id);
	soda_signals_restore(&saved);
	if (ret)
		refuse(why, ret, "zeros of it cannot be written back: %s", soda_strerror(ret));
	return ret;
}

static int sync_all(struct publishing *p)
{
	int ret = soda_sync_range(p->r, p->r->first, p->r->chunks, p->why);

	if (ret && !p->why->text[0])
		refuse(p->why, ret, "it could not be written back: %s", soda_strerror(ret));
	return ret;
}

/* Seal the object, whose stores are on the server. -EAGAIN: a server was lost since. */
static int seal(const struct publishing *p)
{
	bool same;

	soda_regions_lock();
	same = soda_unacked_losses() == p->losses;
	if (same)
		atomic_store(&p->r->sealed, true);
	soda_regions_unlock();
	return same ? 0 : -EAGAIN;
}

/*
 * An object that was asked for is sealed until a recovery opens it on a server that has never heard
 * of it: then that server was not asked yet.
 */
static void look_whether_asked(struct publishing *p)
{
	if (!atomic_load(&p->r->sealed))
		p->asked = false;
}

/* Others would read zeros where content is lost. */
static int check_whole(const struct soda_region *r, struct soda_why *why)
{
	bool lost = atomic_load(&r->lost);

	for (uint32_t i = 0; i < r->chunks && !lost; i++)
		lost = soda_chunk_state(soda_chunk_load(&soda_agent.table[r->first + i])) ==
		       SODA_CHUNK_LOST;
	return lost ? refuse(why, -EIO,
			     "some of its content is lost: the server has started anew, or the DPU "
			     "agent died, before it had brought all of it there")
		    : 0;
}

/* Bring all of it to the server, seal it, and await WRITEs of chunks that nobody has stored to. */
static int settle(struct publishing *p)
{
	int ret;

	p->losses = soda_unacked_losses();
	ret = freshen(p->r, p->why);
	if (!ret)
		ret = sync_all(p);
	look_whether_asked(p);
	if (!ret)
		ret = seal(p);
	if (!ret)
		ret = sync_all(p);
	return ret ? ret : check_whole(p->r, p->why);
}

/* The server has published it: it is a READ_ONLY object from now on. -EAGAIN: as seal(). */
static int become(struct publishing *p)
{
	struct soda_region *r = p->r;
	bool same;

	soda_regions_lock();
	same = soda_unacked_losses() == p->losses;
	if (same) {
		r->file = p->name;
		r->file_id = p->opened.file_id;
		r->generation = p->opened.generation;
		atomic_store(&r->flags, SODA_READ_ONLY | SODA_REGION_PUBLISHED);
		p->name = NULL;
	}
	soda_regions_unlock();
	return same ? 0 : -EAGAIN;
}

static int attempt(struct publishing *p)
{
	int ret = settle(p);

	if (ret)
		return ret;
	ret = soda_calls_publish_region(p->r, p->name, p->losses, &p->opened, &p->asked, p->why);
	/* an agent that has not had the server's answer, and connects to it anew */
	if (ret == -EIO)
		return -EINPROGRESS;
	if (ret == -EAGAIN || soda_connection_lost(ret))
		return ret;
	p->asked = false; /* it is known now what the server has done */
	return ret ? ret : become(p);
}

/* The server has not published it: allow stores again. */
static int give_up(struct publishing *p, int err)
{
	struct soda_region *r = p->r;
	struct soda_why ignored;

	soda_regions_lock();
	atomic_store(&r->sealed, false);
	soda_regions_unlock();
	if (protect(r, PROT_READ | PROT_WRITE, &ignored))
		soda_log_warning("stores to an object that was not published stay forbidden: %s",
				 ignored.text);
	return err;
}

/* Nobody knows whether it is published: it stays as it is, for the next call. */
static int leave_doubtful(struct publishing *p, int err)
{
	struct soda_why why = *p->why;

	p->r->doubtful = p->name;
	p->name = NULL;
	return refuse(p->why, err,
		      "the server may have published it, and has not said so: no store to it is "
		      "allowed; publish it again under the same name to find out (%.90s)",
		      why.text);
}

static int run(struct publishing *p)
{
	uint64_t deadline_ns =
		soda_now_ns() + soda_agent.settings.fault_timeout_ms * (uint64_t)SODA_MS_NS;
	int ret = attempt(p);

	while ((ret == -EAGAIN || ret == -EINPROGRESS) && soda_now_ns() < deadline_ns) {
		if (ret == -EINPROGRESS)
			poll(NULL, 0, PAUSE_MS);
		p->why->text[0] = 0;
		ret = attempt(p);
	}
	if (ret == -EAGAIN)
		ret = refuse(p->why, -ETIMEDOUT, "%.150s is lost again and again",
			     p->r->link->server.address);
	return ret == -EINPROGRESS ? -EIO : ret;
}

int soda_publish_object(struct soda_region *r, const char *name, struct soda_why *why)
{
	struct publishing p = { .r = r, .asked = r->doubtful, .why = why };
	int ret = check(r, name, why);

	if (!ret && !(p.name = strdup(name)))
		ret = -ENOMEM;
	if (!ret)
		ret = protect(r, PROT_READ, why);
	if (ret) {
		free(p.name);
		return ret;
	}
	ret = run(&p);
	free(r->doubtful);
	r->doubtful = NULL;
	if (ret)
		ret = p.asked ? leave_doubtful(&p, ret) : give_up(&p, ret);
	free(p.name);
	return ret;
}
