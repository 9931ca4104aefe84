/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/store.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/paging.h"

int soda_paging_store_start(struct soda_paging *paging)
{
	uint64_t bytes = paging->opt->store_bytes;
	int ret;

	if (!bytes)
		return 0;
	if (!paging->async || bytes < SODA_NODE_MIN) {
		soda_log_error("--store %s",
			       paging->async ? "of less than 8 MiB is of no use: make it larger"
					     : "needs --async: a client waits for another's fill");
		return -EINVAL;
	}
	ret = soda_node_store_create(bytes, &soda_node_memory, &paging->store);
	if (ret)
		soda_log_error("--store: %s", soda_strerror(ret));
	return ret;
}

/* Joining */

static int refuse(struct soda_why *why, int err, const char *text)
{
	snprintf(why->text, sizeof(why->text), "%s", text);
	return err;
}

static bool has_joined(struct soda_session *s, struct soda_paging_region *r)
{
	bool joined;

	pthread_mutex_lock(&s->lock);
	joined = r->member.object;
	pthread_mutex_unlock(&s->lock);
	return joined;
}

/* The region's place from now on.  Another control connection may have been faster: given back. */
static void take_place(struct soda_session *s, struct soda_paging_region *r,
		       struct soda_node_member *member, const struct soda_owner_name *view)
{
	struct soda_node_object *o = NULL;

	pthread_mutex_lock(&s->lock);
	if (!r->member.object) {
		r->member = *member;
		member->object = NULL;
		o = r->member.object;
	}
	pthread_mutex_unlock(&s->lock);
	soda_node_leave(member);
	if (o) {
		soda_caches_view(s, r, o, view);
		atomic_store(&r->object, o); /* requests find it from now on */
	}
}

static int join(struct soda_session *s, struct soda_paging_region *r, struct soda_why *why)
{
	struct soda_node_name name = { .uid = s->info.uid,
				       .tenant = s->info.tenant,
				       .server = r->cache.name.server,
				       .file_id = r->file_id,
				       .generation = r->generation,
				       .bytes = r->bytes,
				       .chunk_bytes = soda_pager(s)->server.hello.chunk_bytes };
	struct soda_node_member member;
	int ret = soda_node_join(soda_paging(s)->store, &name, &member, why);

	if (!ret)
		take_place(s, r, &member, &r->cache.name);
	return ret;
}

static int refuse_chunks(struct soda_why *why, uint32_t chunk, uint32_t theirs)
{
	snprintf(why->text, sizeof(why->text),
		 "the file has joined the store with chunks of %u bytes, and this program's have "
		 "%u: give all of its processes the same chunk size",
		 theirs, chunk);
	return -EINVAL;
}

/*
 * As the program's region of another server, which has joined.  An object's chunks have one size,
 * which both must have.  That both have the same content is
 * the program's word: what it says of its own files concerns programs of its user alone, who could
 * write to the object anyway.
 */
static int join_as(struct soda_session *s, struct soda_paging_region *r,
		   const struct soda_wire_origin *as, struct soda_why *why)
{
	struct soda_session *other = soda_session_look(s->all, as->client_id);
	struct soda_node_member member = { .object = NULL };
	const struct soda_paging_region *there;
	struct soda_owner_name view;
	uint32_t chunk = soda_pager(s)->server.hello.chunk_bytes, theirs = chunk;

	if (!other)
		return refuse(why, -ENOENT, "the store does not know the file's other server");
	pthread_mutex_lock(&other->lock);
	there = other->tenant == s->tenant && other->info.uid == s->info.uid &&
				(s->tenant || other->secret == as->secret)
			? soda_region_find_locked(other, as->region_id)
			: NULL;
	if (there && there->member.object)
		theirs = soda_node_chunk_bytes(there->member.object);
	if (there && there->member.object && there->bytes == r->bytes && theirs == chunk) {
		soda_node_join_again(&there->member, &member);
		view = there->cache.name;
	}
	pthread_mutex_unlock(&other->lock);
	soda_session_put(other);
	if (theirs != chunk)
		return refuse_chunks(why, chunk, theirs);
	if (!member.object)
		return refuse(why, -ENOENT, "the file has not joined the store by that server");
	take_place(s, r, &member, &view);
	return 0;
}

int soda_paging_store_call(struct soda_session *s, struct soda_paging_region *r,
			   const struct soda_wire_store *ask, bool shares, struct soda_reply *reply)
{
	struct soda_wire_stored stored;
	int ret = 0, fd;

	if (!soda_paging(s)->store || !shares || !s->info.local)
		return refuse(&reply->why, -ENOTSUP, "the agent has no store for this connection");
	if (!(r->flags & SODA_WIRE_READ_ONLY) || !r->file_id)
		return refuse(&reply->why, -EINVAL, "the store takes READ_ONLY objects");
	if (ask->part == SODA_WIRE_STORE_MAP && !has_joined(s, r))
		ret = ask->as.client_id ? join_as(s, r, &ask->as, &reply->why)
					: join(s, r, &reply->why);
	if (ret)
		return ret;
	if (!has_joined(s, r))
		return refuse(&reply->why, -EINVAL, "the region has not joined the store");
	fd = soda_node_descriptor(r->member.object, ask->part);
	if (fd < 0)
		return refuse(&reply->why, fd, "the file has no such part");
	soda_node_describe(&r->member, &stored);
	soda_wire_put_stored(reply->body, &stored);
	reply->bytes = SODA_WIRE_STORED_BYTES;
	reply->share = (struct soda_share){ .fd = fd };
	return 0;
}

void soda_paging_store_leave(struct soda_paging_region *r)
{
	atomic_store(&r->object, NULL);
	soda_node_leave(&r->member);
}

/* Pins: the static cache of regions that have joined */

enum { RUN_BYTES = 1 << 20 }; /* read at once */

bool soda_paging_store_has(const struct soda_paging_region *r)
{
	return atomic_load(&r->object); /* pairs with join's store */
}

/* Waits for a chunk that somebody else fills, or that is being evicted. */
struct awaited {
	struct soda_node_waiter waiter;
	_Atomic uint32_t told; /* futex; 1: ask again, 2: the chunk is READY */
};

static void tell_awaited(struct soda_node_waiter *w, bool ready)
{
	struct awaited *a = (struct awaited *)w;

	atomic_store(&a->told, ready ? 2 : 1);
	soda_futex_wake(&a->told, 1);
}

/* True: the chunk is READY; else it is to be asked for again. */
static bool await_chunk(struct awaited *a)
{
	struct soda_wait wait;

	soda_wait_begin(&wait, "another client's fill of a chunk of the node's store");
	while (!atomic_load(&a->told))
		soda_wait_futex(&wait, &a->told, 0);
	soda_wait_end(&wait);
	return atomic_load(&a->told) == 2;
}

/*
 * Read n chunks from `first` on, which are FILLING for this thread.  ahead: NULL, or they were
 * claimed ahead, and what is read counts there.
 */
static int fill_run(struct soda_session *s, struct soda_paging_region *r, uint32_t first,
		    uint32_t n, uint64_t *ahead)
{
	uint32_t chunk = soda_node_chunk_bytes(r->member.object), bytes = n * chunk;
	uint64_t at = first * (uint64_t)chunk;
	struct soda_block *block;
	int ret, failed = 0;

	if (bytes > r->bytes - at)
		bytes = (uint32_t)(r->bytes - at);
	block = soda_block_get(bytes);
	ret = !block  ? -ENOMEM
	      : ahead ? soda_caches_load_ahead(s, r, at, block->memory, bytes, ahead)
		      : soda_caches_load(s, r, at, block->memory, bytes);
	for (uint32_t i = 0; i < n; i++) {
		const void *data = ret ? NULL : block->memory + i * (size_t)chunk;
		int kept = soda_node_filled(r->member.object, first + i, data, ret);

		failed = failed ? failed : kept;
	}
	if (block)
		soda_block_put(block);
	return failed;
}

/*
 * Read what is missing of the chunks, and wait for what others bring.  This thread brings what it
 * has begun before it waits, so that two such threads never wait for each other.
 */
static int bring(struct soda_session *s, struct soda_paging_region *r, uint32_t first, uint32_t end)
{
	uint32_t chunk = soda_node_chunk_bytes(r->member.object);
	uint32_t most = chunk < RUN_BYTES ? RUN_BYTES / chunk : 1;
	int ret = 0;

	while (first < end && !ret) {
		struct awaited a = { .waiter.told = tell_awaited };
		enum soda_node_answer answer = SODA_NODE_FILL;
		uint32_t n = 0;

		while (n < most && first + n < end && answer == SODA_NODE_FILL) {
			answer = soda_node_ask(r->member.object, first + n, &a.waiter);
			n += answer == SODA_NODE_FILL;
		}
		if (n)
			ret = fill_run(s, r, first, n, NULL);
		first += n;
		if (answer == SODA_NODE_NONE && !ret)
			ret = -EINVAL;
		else if (answer == SODA_NODE_READY ||
			 (answer == SODA_NODE_WAITS && await_chunk(&a)))
			first++;
	}
	return ret;
}

int soda_paging_store_pin(struct soda_session *s, struct soda_paging_region *r,
			  const struct soda_wire_advise *a, struct soda_why *why)
{
	uint32_t chunk = soda_node_chunk_bytes(r->member.object);
	int before = soda_node_pin(&r->member, a->offset, a->bytes, why), ret;

	if (before < 0)
		return before;
	ret = bring(s, r, (uint32_t)(a->offset / chunk),
		    (uint32_t)((a->offset + a->bytes - 1) / chunk) + 1);
	if (ret && !before)
		soda_node_unpin(&r->member, a->offset, a->bytes);
	if (ret)
		snprintf(why->text, sizeof(why->text),
			 "the node's store: %llu bytes at %llu cannot be had: %s",
			 (unsigned long long)a->bytes, (unsigned long long)a->offset,
			 soda_strerror(ret));
	return ret;
}

int soda_paging_store_unpin(struct soda_paging_region *r, const struct soda_wire_advise *a)
{
	return soda_paging_store_has(r) ? soda_node_unpin(&r->member, a->offset, a->bytes) : 0;
}

/* Reading ahead: the dynamic cache of regions that have joined */

/* Claim up to `most` chunks in a row, from `first` on. */
static uint32_t claim(struct soda_node_object *o, uint32_t first, uint32_t end, uint32_t most)
{
	uint32_t n = 0;

	while (n < most && first + n < end && soda_node_claim(o, first + n))
		n++;
	return n;
}

int soda_paging_store_ahead(struct soda_session *s, struct soda_paging_region *r,
			    struct soda_fill *fill)
{
	uint32_t chunk = soda_node_chunk_bytes(r->member.object);
	uint32_t most = chunk < RUN_BYTES ? RUN_BYTES / chunk : 1;
	int ret = 0;

	for (uint32_t i = 0; i < fill->runs_n && !ret && fill->read < fill->bytes; i++) {
		uint64_t at = fill->offset + fill->runs[i].at;
		uint32_t first = (uint32_t)(at / chunk);
		uint32_t end = (uint32_t)((at + fill->runs[i].bytes - 1) / chunk) + 1;

		while (first < end && !ret && fill->read < fill->bytes) {
			uint64_t paid = (fill->bytes - fill->read + chunk - 1) / chunk;
			uint32_t n = claim(r->member.object, first, end,
					   paid < most ? (uint32_t)paid : most);

			if (n)
				ret = fill_run(s, r, first, n, &fill->read);
			first += n ? n : 1;
		}
	}
	return ret;
}

/* READs */

static struct soda_span stored_span(const struct soda_task *task)
{
	return (struct soda_span){ .offset = task->rq->offset,
				   .bytes = task->rq->bytes,
				   .stored = true };
}

static void told(struct soda_node_waiter *w, bool ready)
{
	struct soda_task *task =
		(struct soda_task *)((char *)w - offsetof(struct soda_task, stored));
	struct soda_session *s = task->session;
	struct soda_span span = stored_span(task);

	if (ready) {
		soda_forward_late(task, &span);
		return;
	}
	soda_session_ref(s); /* its last request may end here */
	task->next = NULL;
	soda_forward_again(s, task);
	soda_session_put(s);
}

enum soda_store_read soda_paging_store_read(struct soda_task *task)
{
	const struct soda_request *rq = task->rq;
	/* acquire: pairs with join's store */
	struct soda_node_object *o = atomic_load(&task->region->object);
	uint32_t chunk = o && rq->stored ? soda_node_chunk(o, rq->offset, rq->bytes) : UINT32_MAX;
	struct soda_span span = stored_span(task);
	struct soda_caches *caches = &soda_paging(task->session)->caches;
	uint32_t view = soda_caches_view_of(task->region), bytes = rq->bytes;
	uint64_t offset = rq->offset;
	enum soda_node_answer answer;

	if (chunk == UINT32_MAX)
		return SODA_STORE_NOT;
	task->stored.told = told;
	answer = soda_node_ask(o, chunk, &task->stored);
	soda_caches_note(caches, view, offset, bytes, answer);
	switch (answer) {
	case SODA_NODE_READY:
		soda_forward_late(task, &span);
		return SODA_STORE_DONE;
	case SODA_NODE_WAITS:
		return SODA_STORE_DONE; /* and the task another thread's since it was asked */
	default:
		task->fill = true;
		return SODA_STORE_FILL;
	}
}

int soda_paging_store_filled(struct soda_task *task, const void *data, int status)
{
	struct soda_node_object *o = task->region->member.object;
	uint32_t chunk = soda_node_chunk(o, task->rq->offset, task->rq->bytes);
	int ret = soda_node_filled(o, chunk, data, status);

	task->fill = false;
	return status ? status : ret ? 1 : 0;
}

/* Statistics */

static void count(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, key, help, value);
}

static void count_bytes(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, key, help, value);
}

void soda_paging_store_walk(struct soda_paging *paging, struct soda_metrics *m)
{
	struct soda_node_stats s;

	soda_metrics_say_flag(m, "store", "whether there is a store for the node", paging->store);
	if (!paging->store)
		return;
	soda_node_stats(paging->store, &s);
	soda_metrics_say_size(m, "store_capacity_bytes", "most that the node's store may hold",
			      s.capacity);
	soda_metrics_say_size(m, "store_used_bytes", "of it, in use", s.used);
	soda_metrics_say_level(m, "store_objects", "files in the node's store", s.objects);
	soda_metrics_say_level(m, "store_folios",
			       "of those, with large folios (hugepages-*kB/shmem_enabled)",
			       s.folios);
	soda_metrics_say_level(m, "store_members", "times that programs have joined with one",
			       s.members);
	count(m, "store_fills", "chunks brought into the node's store", s.fills);
	count_bytes(m, "store_filled_bytes", "data of them", s.bytes_filled);
	count(m, "store_fills_failed", "chunks that could not be brought, or not kept",
	      s.fills_failed);
	count(m, "store_hits", "READs of programs for chunks that were there", s.hits);
	count(m, "store_waits", "READs that waited for another program's", s.waits);
	count(m, "store_evictions", "chunks that made room for others", s.evictions);
	count_bytes(m, "store_evicted_bytes", "data of them", s.bytes_evicted);
	count(m, "store_held", "evictions put off: a program had just mapped the chunk", s.held);
	count(m, "store_forced", "evictions of a chunk in use, as all were: the store is too small",
	      s.forced);
	soda_metrics_say_size(m, "store_pinned_bytes",
			      "of it, kept for good: the static cache of what is in the store",
			      s.pinned);
	soda_metrics_say_size(m, "store_pinned_most_bytes", "most that may be kept for good",
			      s.pinned_most);
	soda_metrics_say_level(m, "store_pins", "ranges that programs and rules keep there",
			       s.pins);
	count(m, "store_pins_refused", "ranges that were to be kept, and were refused",
	      s.pins_refused);
	count(m, "store_ahead", "of the chunks brought, those read ahead of all programs", s.ahead);
	count_bytes(m, "store_ahead_bytes", "data of them", s.bytes_ahead);
	count_bytes(m, "store_ahead_used_bytes", "of that, what a program has used since",
		    s.bytes_used);
	count(m, "store_useless", "chunks read ahead that went before any program touched them",
	      s.useless);
	count_bytes(m, "store_useless_bytes", "data of them", s.bytes_useless);
	count(m, "store_refused", "attempts to join that were refused", s.refused);
	count(m, "store_passed", "READs answered with data that there was no memory to keep",
	      s.passed);
	count(m, "store_limited", "times the system gave no memory for a chunk", s.limited);
}
