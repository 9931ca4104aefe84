/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed files: see writeback.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "client/call.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/sealing.h"
#include "trust/sealed_file.h"

enum {
	PIECE = 65536,	 /* bytes of a READ or WRITE, at most */
	SETTLE_MS = 200, /* to wait for what is under way, before what has failed is sent again */
};

static const char *name_of(const struct soda_region *r)
{
	return r->name[0] ? r->name : r->file;
}

static uint64_t from_now(void)
{
	return soda_now_ns() + soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
}

/* Pages between the server's memory and ours */

struct transfer {
	const struct soda_region *r;
	uint64_t offset; /* in the region */
	uint64_t bytes;	 /* whole pages */
	char *memory;
	bool writes;
};

/* One request, and its answer. 0 or the connection's, or the server's, error. */
static int move_piece(struct soda_conn *conn, const struct transfer *t, uint64_t at, uint32_t bytes)
{
	uint64_t until = from_now();
	struct soda_done done = { 0 };
	char *memory = t->memory + at;
	int ret = t->writes
			  ? soda_conn_post_write(conn, &t->r->mr, t->offset + at, bytes, memory, 0)
			  : soda_conn_post_read(conn, &t->r->mr, t->offset + at, bytes, memory, 0);

	if (!ret)
		ret = soda_conn_flush(conn, false);
	while (!ret) {
		ret = soda_conn_poll(conn, &done, 1, SODA_MS_NS, 0);
		if (ret > 0)
			break;
		if (!ret && soda_now_ns() > until)
			return -ETIMEDOUT;
	}
	if (ret < 0)
		return ret;
	if (!done.status && !t->writes && done.data && done.data != memory)
		memcpy(memory, done.data, bytes);
	return done.status;
}

/* On a data connection that the calling thread has. */
static int move_all(struct soda_conn *conn, void *arg)
{
	const struct transfer *t = arg;
	/* no longer than a chunk: over shm each has a slot of that size */
	uint64_t most = soda_chunk_bytes() < PIECE ? soda_chunk_bytes() : PIECE;
	int ret = 0;

	for (uint64_t at = 0; at < t->bytes && !ret; at += most) {
		uint64_t left = t->bytes - at;

		ret = move_piece(conn, t, at, (uint32_t)(left < most ? left : most));
	}
	return ret;
}

/*
 * 0; -ENOTCONN and the like: the connection was lost, also by an answer that makes no sense, which
 * is -ECONNABORTED here as it is for calls (soda_call_lost).
 */
static int transfer(struct transfer *t)
{
	struct soda_thread *self = soda_thread_self();
	uint64_t until = from_now();
	sigset_t saved;
	int ret;

	if (!self)
		return -ENOMEM;
	for (;;) {
		soda_signals_block(&saved);
		ret = soda_channels_lend(self, t->r->link, move_all, t);
		soda_signals_restore(&saved);
		if (ret == -EPROTO)
			return -ECONNABORTED;
		if (ret != -EBUSY || soda_now_ns() > until)
			return ret;
		poll(NULL, 0, 1);
	}
}

static int read_pages(const struct soda_region *r, uint64_t offset, uint64_t bytes, void *to)
{
	return transfer(&(struct transfer){ r, offset, bytes, to, false });
}

static int write_pages(const struct soda_region *r, uint64_t offset, uint64_t bytes, void *from)
{
	return transfer(&(struct transfer){ r, offset, bytes, from, true });
}

/* Reading what a file is */

static int say(const struct soda_region *r, int err, const char *text, struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text), "%.80s: %.140s", name_of(r),
		 text[0] ? text : soda_strerror(err));
	return err;
}

/* Header and table, as the server has them. They are the caller's. */
static int read_file(const struct soda_region *r, const uint8_t *page, struct soda_sealed_file *f_p,
		     struct soda_why *why)
{
	const struct soda_sealed_key *key;
	struct soda_conf_error err = { "" };
	int ret = soda_sealing_file_key(&key, why);

	if (ret)
		return ret;
	ret = soda_sealed_file_begin(key, page, f_p, &err);
	if (ret)
		return say(r, ret, err.text, why);
	ret = read_pages(r, f_p->layout.table_at, f_p->layout.table_pages * SODA_SEALED_PAGE,
			 f_p->table);
	if (!ret)
		ret = soda_sealed_file_check(key, f_p, &err);
	if (ret)
		soda_sealed_file_end(f_p);
	return ret ? say(r, ret, err.text, why) : 0;
}

static int make_file(struct soda_region *r, uint64_t bytes, struct soda_sealed_file *f_p,
		     struct soda_why *why)
{
	const struct soda_sealed_key *key;
	int ret = soda_sealing_file_key(&key, why);

	if (ret)
		return ret;
	ret = soda_sealed_file_make(key, bytes, f_p);
	return ret ? say(r, ret, "", why) : 0;
}

int soda_commit_open(struct soda_region *r, struct soda_why *why)
{
	_Alignas(SODA_SEALED_PAGE) uint8_t page[SODA_SEALED_PAGE];
	uint64_t has = r->file_bytes ? r->file_bytes : r->bytes; /* of the server's region */
	struct soda_sealed_file f;
	int ret = read_pages(r, 0, sizeof(page), page);
	bool made = !ret && soda_sealed_kind(page) == SODA_SEALED_MAKING;

	if (ret)
		return say(r, ret, "", why);
	if (made && !(r->flags & SODA_WIRE_WRITABLE))
		return say(r, -EINVAL, "it was never committed", why);
	ret = made ? make_file(r, r->bytes, &f, why) : read_file(r, page, &f, why);
	if (ret)
		return ret;
	if (has != f.layout.total || (r->file_bytes && r->bytes != f.header.bytes)) {
		soda_sealed_file_end(&f);
		return say(r, -EINVAL,
			   "its size is not that in its header, or another one than asked for",
			   why);
	}
	ret = soda_sealing_begin_file(r, &f, why);
	if (ret || !made)
		return ret;
	soda_sealing_pages_set(r, true);
	ret = soda_commit_region(r, why);
	if (ret)
		soda_sealing_end(r);
	return ret;
}

/* Committing */

static bool is_lost(const struct soda_region *r, uint32_t id)
{
	return soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) == SODA_CHUNK_LOST;
}

/* Of chunks that nobody has any more the file keeps what it has, which `there` describes. */
static void take_lost(struct soda_region *r, const struct soda_sealed_file *there)
{
	struct soda_sealed_file *f = soda_sealing_file(r);

	for (uint32_t id = r->first; id < r->first + r->chunks; id++) {
		uint64_t first = soda_region_offset(r, id) / SODA_SEALED_PAGE;
		uint64_t n = soda_region_chunk_bytes(r, id) / SODA_SEALED_PAGE;

		if (is_lost(r, id))
			memcpy(f->table + first * SODA_SEALED_ENTRY,
			       there->table + first * SODA_SEALED_ENTRY, n * SODA_SEALED_ENTRY);
	}
}

/*
 * The server has started anew, and has what the file has: the last commit, or the one that was
 * under way.  Anything else was brought back from earlier.
 */
static int meet_again(struct soda_region *r, uint64_t confirmed, struct soda_why *why)
{
	_Alignas(SODA_SEALED_PAGE) uint8_t page[SODA_SEALED_PAGE];
	struct soda_sealed_file *f = soda_sealing_file(r), there;
	int ret = read_pages(r, 0, sizeof(page), page);

	ret = ret ? say(r, ret, "", why) : read_file(r, page, &there, why);
	if (ret)
		return ret;
	if (memcmp(there.header.salt, f->header.salt, sizeof(f->header.salt)) ||
	    there.header.commits < confirmed || there.header.commits > f->header.commits)
		ret = say(r, -EBADMSG,
			  "the file is another one, or was brought back from earlier, "
			  "while it was open",
			  why);
	else
		take_lost(r, &there);
	soda_sealed_file_end(&there);
	return ret;
}

/* The changed pages of the table, and the header, to the server's memory. */
static int write_table(struct soda_region *r)
{
	_Alignas(SODA_SEALED_PAGE) uint8_t page[SODA_SEALED_PAGE];
	struct soda_sealed_file *f = soda_sealing_file(r);
	uint64_t pages = f->layout.table_pages, end;
	int ret = 0;

	for (uint64_t i = 0; i < pages && !ret; i = end) {
		for (end = i; end < pages && soda_sealing_page_changed(r, end) && !ret; end++)
			ret = soda_sealed_file_changed(f, end);
		if (!ret && end > i)
			ret = write_pages(r, f->layout.table_at + i * SODA_SEALED_PAGE,
					  (end - i) * SODA_SEALED_PAGE,
					  f->table + i * SODA_SEALED_PAGE);
		end += end == i;
	}
	if (!ret)
		ret = soda_sealed_file_commit(f, page);
	return ret ? ret : write_pages(r, 0, sizeof(page), page);
}

static bool any_changed(const struct soda_region *r)
{
	uint64_t pages = soda_sealing_file(r)->layout.table_pages;

	for (uint64_t i = 0; i < pages; i++)
		if (soda_sealing_page_changed(r, i))
			return true;
	return false;
}

static int cannot(struct soda_region *r, const char *text, struct soda_why *why)
{
	return say(r, -EIO, text, why);
}

/* The file is held, and nothing is pending. As soda_commit_region(); -EAGAIN: not now. */
static int commit_held(struct soda_region *r, uint32_t breaks, struct soda_why *why)
{
	struct soda_sealing_commits *commits = soda_sealing_commits(r);
	int ret;

	if (soda_sealing_is_spoiled(r))
		return cannot(
			r,
			"a part of it was lost with a DPU agent: it is not written any more, and "
			"keeps what the last soda_sync has made of it",
			why);
	if (atomic_load(&r->lost))
		return cannot(r, "the server does not have it open", why);
	if (commits->meeting != r->meeting) {
		ret = meet_again(r, commits->confirmed, why);
		if (ret)
			return ret == -EBADMSG || ret == -EACCES || ret == -EINVAL ? -EIO : ret;
		soda_sealing_pages_set(r, true);
		commits->meeting = r->meeting;
	}
	if (!any_changed(r))
		return 0;
	ret = write_table(r);
	if (!ret)
		ret = soda_calls_sync_once(r, breaks, why);
	if (ret)
		return ret;
	soda_sealing_pages_set(r, false);
	commits->confirmed = soda_sealing_file(r)->header.commits;
	return 0;
}

static bool settles(const struct soda_region *r)
{
	for (int i = 0; i < SETTLE_MS && soda_sealing_pending(r); i++)
		poll(NULL, 0, 1);
	return !soda_sealing_pending(r);
}

static int try_commit(struct soda_region *r, struct soda_why *why)
{
	uint32_t breaks = soda_server_breaks(&r->link->server);
	int ret;

	soda_sealing_hold(r, true);
	ret = settles(r) ? commit_held(r, breaks, why) : -EAGAIN;
	soda_sealing_hold(r, false);
	return ret;
}

static int commit(struct soda_region *r, uint64_t until, struct soda_why *why)
{
	int ret;

	for (;;) {
		ret = try_commit(r, why);
		if (ret != -EAGAIN && !soda_call_lost(ret))
			return ret;
		if (soda_now_ns() > until)
			return say(
				r, -ETIMEDOUT,
				"it was not committed in time: what the server has to acknowledge "
				"did not come, or the server is away",
				why);
		if (soda_call_lost(ret))
			soda_server_wait(&r->link->server, until, NULL);
		why->text[0] = 0; /* what this try was told is no reason for the next one's end */
		ret = r->chunks ? soda_sync_chunks(r->first, r->chunks) : 0;
		if (ret)
			return ret;
	}
}

int soda_commit_region(struct soda_region *r, struct soda_why *why)
{
	uint64_t until = from_now();
	int ret;

	while (!soda_sealing_commit_begin(r)) {
		if (soda_now_ns() > until)
			return say(r, -ETIMEDOUT, "another thread commits it", why);
		poll(NULL, 0, 1);
	}
	ret = commit(r, until, why);
	soda_sealing_commit_end(r);
	return ret;
}
