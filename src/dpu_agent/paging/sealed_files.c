/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/sealed_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/paging.h"
#include "dpu_agent/paging/sealing_impl.h"
#include "dpu_agent/paging/upstream.h"

enum {
	PIECE = 65536, /* bytes of a transfer */
	WINDOW = 16,   /* transfers under way */
};

#define BY_AGENT (SODA_WIRE_SEALED | SODA_WIRE_SEALED_BY_AGENT)

static int say(struct soda_why *why, int err, const char *text)
{
	snprintf(why->text, sizeof(why->text), "a file that the DPU agent seals: %.180s",
		 text[0] ? text : soda_strerror(err));
	return err;
}

/* The parts of a file that are no blocks */

struct part {
	struct soda_session *session;
	struct soda_paging_region *region;
	uint64_t offset; /* in the file */
	uint8_t *memory;
	uint64_t bytes; /* whole pages */
	bool write;
	int status;
};

static void ended(struct soda_transfer *t, int status)
{
	struct part *p = t->arg;

	p->status = p->status ? p->status : status;
}

static struct soda_transfer next_piece(struct part *p)
{
	uint32_t bytes = p->bytes < PIECE ? (uint32_t)p->bytes : PIECE;
	struct soda_transfer t = { .session = p->session,
				   .region = p->region,
				   .offset = p->offset,
				   .bytes = bytes,
				   .write = p->write,
				   .raw = true,
				   .memory = p->memory,
				   .ended = ended,
				   .arg = p };

	p->offset += bytes;
	p->memory += bytes;
	p->bytes -= bytes;
	return t;
}

/* 0, or the server's error; -ECONNRESET: the connection was lost. */
static int move(struct part p)
{
	struct soda_channel *c =
		&soda_pager(p.session)->channels[soda_paging(p.session)->channels + 1];
	struct soda_transfer t[WINDOW];
	int ret = 0;

	while (p.bytes && !ret && !p.status) {
		unsigned n = 0;

		while (n < WINDOW && p.bytes)
			t[n++] = next_piece(&p);
		pthread_mutex_lock(&c->lock);
		if (c->conn)
			ret = soda_forward_await(c, t, n);
		else
			ret = (pthread_mutex_unlock(&c->lock), -ENOTCONN);
	}
	return ret ? -ECONNRESET : p.status;
}

static int read_part(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
		     uint8_t *memory, uint64_t bytes)
{
	return move((struct part){ s, r, offset, memory, bytes, .write = false });
}

static int write_part(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
		      uint8_t *memory, uint64_t bytes)
{
	return move((struct part){ s, r, offset, memory, bytes, .write = true });
}

/* Opening */

int soda_sealed_files_ask(struct soda_session *s, struct soda_wire_open *open, struct soda_why *why)
{
	struct soda_sealed_layout layout = { .total = 0 };

	/* of a file that may only be read the program may want less than all */
	if (open->bytes && open->flags & SODA_WIRE_WRITABLE &&
	    soda_sealed_layout(open->bytes, &layout))
		return say(why, -EINVAL, "it has 1 byte to 16 TiB");
	open->bytes = layout.total;
	open->flags |= BY_AGENT;
	return 0;
}

static int read_table(struct soda_session *s, struct soda_paging_region *r, const uint8_t *header,
		      struct soda_sealed_file *f_p, struct soda_why *why)
{
	const struct soda_sealed_key *key = &soda_paging(s)->sealer.file_key;
	struct soda_conf_error err = { "" };
	int ret = soda_sealed_file_begin(key, header, f_p, &err);

	if (ret)
		return say(why, ret, err.text);
	if (r->mr.bytes != f_p->layout.total) {
		soda_sealed_file_end(f_p);
		return say(why, -EBADMSG, "its size is not that in its header");
	}
	ret = read_part(s, r, f_p->layout.table_at, f_p->table,
			f_p->layout.table_pages * SODA_SEALED_PAGE);
	if (!ret)
		ret = soda_sealed_file_check(key, f_p, &err);
	if (ret)
		soda_sealed_file_end(f_p);
	return ret ? say(why, ret, err.text) : 0;
}

/* header becomes its own, of zeros, which the next agent begins with. */
static int make_table(struct soda_session *s, const struct soda_paging_region *r, uint64_t bytes,
		      uint8_t *header, struct soda_sealed_file *f_p, struct soda_why *why)
{
	int ret;

	if (!(r->flags & SODA_WIRE_WRITABLE))
		return say(why, -EINVAL, "it was never committed");
	ret = soda_sealed_file_make(&soda_paging(s)->sealer.file_key, bytes, f_p);
	if (ret)
		return say(why, ret, "");
	ret = soda_sealed_file_commit(f_p, header);
	if (ret)
		soda_sealed_file_end(f_p);
	return ret ? say(why, ret, "") : 0;
}

/* Whether the program can have so many bytes of it (0: all). */
static int check_size(const struct soda_paging_region *r, uint64_t asked, uint64_t has,
		      struct soda_why *why)
{
	if (!asked || asked == has || (asked < has && r->flags & SODA_WIRE_READ_ONLY))
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "a file that the DPU agent seals: it has %llu bytes, which cannot be changed, and "
		 "%llu are wanted",
		 (unsigned long long)has, (unsigned long long)asked);
	return -EFBIG;
}

static void set_size(struct soda_paging_region *r, const struct soda_sealed_layout *layout)
{
	r->data_at = layout->data_at;
	r->bytes = layout->blocks * SODA_SEALED_PAGE;
}

/* A new file is one of zeros from now on, whatever becomes of its program. */
static int commit_new(struct soda_session *s, struct soda_paging_region *r, struct soda_why *why)
{
	memset(r->sealing->changed, 1, r->sealing->file->layout.table_pages);
	return soda_sealed_files_commit(s, r, why);
}

static int begin(struct soda_session *s, struct soda_paging_region *r, struct soda_sealed_file *f,
		 const uint8_t *header, bool made, struct soda_why *why)
{
	int ret = soda_sealing_begin_file(&soda_paging(s)->sealer,
					  soda_pager(s)->server.hello.client_id, r->mr.region_id, f,
					  header, &r->sealing, why);

	if (!ret && made)
		ret = commit_new(s, r, why);
	if (ret) {
		soda_sealing_end(r->sealing, false);
		r->sealing = NULL;
	}
	return ret;
}

int soda_sealed_files_open(struct soda_session *s, struct soda_paging_region *r, uint64_t asked,
			   struct soda_wire_opened *opened_p, struct soda_why *why)
{
	_Alignas(SODA_SEALED_PAGE) uint8_t header[SODA_SEALED_PAGE];
	int ret = read_part(s, r, 0, header, sizeof(header));
	struct soda_sealed_file f;
	uint64_t has;
	bool made;

	if (ret)
		return say(why, ret, "");
	made = soda_sealed_kind(header) == SODA_SEALED_MAKING;
	ret = made ? make_table(s, r, asked, header, &f, why) : read_table(s, r, header, &f, why);
	if (ret)
		return ret;
	has = f.header.bytes;
	set_size(r, &f.layout);
	ret = check_size(r, asked, has, why);
	if (ret)
		soda_sealed_file_end(&f);
	else
		ret = begin(s, r, &f, header, made, why);
	opened_p->bytes = asked ? asked : has;
	return ret;
}

/* After an agent's death */

int soda_sealed_files_measure(struct soda_paging_region *r)
{
	struct soda_sealed_layout layout;

	if (soda_sealed_layout_of(r->mr.bytes, &layout))
		return -EPROTO;
	set_size(r, &layout);
	return 0;
}

static void learn(struct soda_session *s, struct soda_paging_region *r)
{
	_Alignas(SODA_SEALED_PAGE) uint8_t header[SODA_SEALED_PAGE];
	struct soda_why why = { "" };
	struct soda_sealed_file f;
	int ret = read_part(s, r, 0, header, sizeof(header));

	if (!ret)
		ret = read_table(s, r, header, &f, &why);
	if (!ret)
		ret = soda_sealing_give_table(r->sealing, &f);
	if (ret)
		soda_log_error("client %016llx: region %u on %s was opened by an agent that has "
			       "ended, and cannot be read any more: %s",
			       (unsigned long long)s->id, r->mr.region_id, soda_session_server(s),
			       why.text[0] ? why.text : soda_strerror(ret));
}

void soda_sealed_files_learn(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);

	if (!soda_paging(s)->sealer.files)
		return;
	/* the one thread that adds regions, or takes them away, is this one */
	for (unsigned id = 0; id < p->regions_end; id++) {
		struct soda_paging_region *r = p->regions[id];

		if (r && r->data_at && r->flags & SODA_WIRE_READ_ONLY && !r->sealing->file)
			learn(s, r);
	}
}

/* Committing */

bool soda_sealed_files_commits(const struct soda_paging_region *r)
{
	return r->data_at && r->flags & SODA_WIRE_WRITABLE;
}

/*
 * Put our entries of a page of the table into it.  Of a block that was under way when the agent
 * before this one died, or the connection was lost, nobody knows which content the server has:
 * -EBUSY, as the program writes it again; or -EIO, as the server has refused it.
 */
static int take_entries(struct soda_sealing *s, uint64_t page)
{
	uint64_t first = page * SODA_SEALED_ENTRIES, end = first + SODA_SEALED_ENTRIES;
	int ret = 0;

	if (end > s->blocks)
		end = s->blocks;
	pthread_mutex_lock(&s->lock);
	for (uint64_t i = first; i < end && !ret; i++) {
		struct soda_sealing_block b = soda_sealing_load_locked(s, i);
		uint8_t *at = s->file->table + i * SODA_SEALED_ENTRY;

		if (b.version & SEAL_PENDING) {
			ret = s->refused ? -EIO : -EBUSY;
		} else if (b.version == SEAL_ZERO) {
			memset(at, 0, SODA_SEALED_ENTRY);
		} else if (b.version) {
			memcpy(at, b.tag, SODA_SEAL_TAG);
			soda_sealed_put_entry(at, b.version & SEAL_NUMBER,
					      s->head->lives[soda_sealing_life(b.version)].salt);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return ret ? ret : soda_sealed_file_changed(s->file, page);
}

/* The changed pages from `from` on, one after the other, up to *end_p: in the table, and there. */
static int write_run(struct soda_session *s, struct soda_paging_region *r, uint64_t from,
		     uint64_t *end_p)
{
	struct soda_sealing *sealing = r->sealing;
	struct soda_sealed_file *f = sealing->file;
	uint64_t end = from;
	int ret = 0;

	while (end < f->layout.table_pages && sealing->changed[end] && !ret)
		ret = take_entries(sealing, end++);
	*end_p = end;
	if (ret || end == from)
		return ret;
	return write_part(s, r, f->layout.table_at + from * SODA_SEALED_PAGE,
			  f->table + from * SODA_SEALED_PAGE, (end - from) * SODA_SEALED_PAGE);
}

static int write_header(struct soda_session *s, struct soda_paging_region *r)
{
	_Alignas(SODA_SEALED_PAGE) uint8_t header[SODA_SEALED_PAGE];
	struct soda_sealed_file *f = r->sealing->file;
	int ret = soda_sealed_file_commit(f, header);

	if (ret)
		return ret;
	r->sealing->head->commits = f->header.commits; /* the next agent begins behind it */
	return write_part(s, r, 0, header, sizeof(header));
}

/* To the server's memory, with the header. *any_p: something has changed since the last commit. */
static int write_table(struct soda_session *s, struct soda_paging_region *r, bool *any_p)
{
	uint64_t pages = r->sealing->file->layout.table_pages, end = 0;
	int ret = 0;

	for (uint64_t i = 0; i < pages && !ret; i = end + (end == i)) {
		ret = write_run(s, r, i, &end);
		*any_p = *any_p || end > i;
	}
	return ret || !*any_p ? ret : write_header(s, r);
}

static void note_committed(struct soda_sealing *s)
{
	pthread_mutex_lock(&s->lock);
	memset(s->changed, 0, s->file->layout.table_pages);
	pthread_mutex_unlock(&s->lock);
	s->confirmed = s->file->header.commits;
}

int soda_sealed_files_commit(struct soda_session *s, struct soda_paging_region *r,
			     struct soda_why *why)
{
	uint8_t id[2] = { (uint8_t)r->mr.region_id, (uint8_t)(r->mr.region_id >> 8) };
	struct iovec body = { id, sizeof(id) };
	bool any = false;
	int ret;

	if (!r->sealing->file)
		return say(why, -EIO,
			   "its keys are lost with the agent before this one (--seal-state keeps "
			   "them): it is not written any more, and keeps what was committed last");
	ret = write_table(s, r, &any);
	if (ret == -EBUSY)
		return say(why, ret,
			   "its program has not written again yet what was under way when the "
			   "agent, or its connection, was lost");
	if (ret == -EIO)
		return say(why, ret,
			   "the server has refused a part of it: it keeps what was committed last "
			   "until its program has written that again");
	if (ret || !any)
		return ret ? say(why, ret, "") : 0;
	ret = soda_upstream_call(s, SODA_MSG_SYNC, &body, 1, why);
	if (!ret)
		note_committed(r->sealing);
	return ret;
}
