/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/uffd.h"
#include "wire/store_map.h"

struct soda_shared {
	struct soda_shared_memory memory;
	struct soda_store_map *map;
	_Atomic uint32_t *words;
	_Atomic uint32_t *_Atomic rings; /* of the process's place */
	uint32_t agent;			 /* soda_wire_welcome.agent of the one that it has joined */
	_Atomic bool apart;		 /* the agent's place for it is in another store's map */
	_Atomic uint8_t *touched;
	_Atomic uint32_t *mapped; /* a chunk's word when it was mapped here last: a hint */
	_Atomic uint32_t mend; /* a chunk that the agent has, and that is not there; + 1, 0: none */
	/* Chunks that this process has put there itself, + 1: a ring, and how many ever were. */
	_Atomic uint32_t *put, puts;
	uint32_t put_max;
	_Atomic bool told; /* that the agent sends data */
};

void soda_shared_close(struct soda_shared_memory *memory)
{
	for (unsigned i = 0; memory->parts && i < memory->stored.parts; i++)
		soda_fd_close(memory->parts[i]);
	free(memory->parts);
	soda_fd_close(memory->map_fd);
	*memory = (struct soda_shared_memory){ .map_fd = -1 };
}

/* Mapping */

static int map_map(struct soda_shared *s)
{
	const struct soda_wire_stored *got = &s->memory.stored;
	void *p =
		mmap(NULL, got->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->memory.map_fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	s->map = p;
	madvise(p, got->map_bytes, MADV_DONTFORK);
	madvise(p, got->map_bytes, MADV_DONTDUMP);
	s->words = soda_store_words(s->map);
	s->touched = soda_store_touched(s->map, got->chunks);
	s->rings = soda_store_member(s->map, got->chunks, got->member);
	return s->map->magic == SODA_STORE_MAGIC && s->map->chunks == got->chunks ? 0 : -EPROTO;
}

/*
 * Without access until it is registered: a touch of a hole that is not would make a page of zeros
 * in the file, for everybody.
 */
static int map_part(char *addr, uint64_t bytes, int fd, uint64_t at)
{
	if (mmap(addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)at) ==
		    MAP_FAILED ||
	    soda_mapping_prepare(addr, bytes))
		return -errno;
	return soda_uffd_register_shared(addr, bytes);
}

static int map_parts(struct soda_region *r, const struct soda_shared *s)
{
	char *base = soda_chunk_address(r->first);
	int ret = 0;

	for (unsigned i = 0; i < s->memory.stored.parts && !ret; i++) {
		uint64_t at = i * SODA_WIRE_STORE_PART, left = r->span - at;

		ret = map_part(base + at, left < SODA_WIRE_STORE_PART ? left : SODA_WIRE_STORE_PART,
			       s->memory.parts[i], 0);
	}
	if (!ret && mprotect(base, r->span, PROT_READ))
		ret = -errno;
	return ret;
}

static void unmap_map(struct soda_shared *s)
{
	free((void *)s->put);
	free((void *)s->mapped);
	if (s->map)
		munmap(s->map, s->memory.stored.map_bytes);
	free(s);
}

/* As many as the page buffer has, and as threads may need at once. */
static uint32_t most_put(void)
{
	int64_t limit = atomic_load(&soda_agent.buffer.limit);
	int64_t least = 64 + (int64_t)SODA_STORE_LAST * soda_agent.settings.threads;

	return (uint32_t)(limit > least ? limit < UINT32_MAX ? limit : UINT32_MAX : least);
}

int soda_shared_attach(struct soda_region *r, struct soda_shared_memory *memory,
		       struct soda_why *why)
{
	struct soda_shared *s = calloc(1, sizeof(*s));
	int ret = -ENOMEM;

	if (s) {
		s->memory = *memory;
		s->agent = r->link->server.welcome.agent;
		s->put_max = most_put();
		/* both touched where they are used */
		s->put = calloc(s->put_max, sizeof(*s->put));
		s->mapped = calloc(memory->stored.chunks, sizeof(*s->mapped));
		ret = s->put && s->mapped ? map_map(s) : -ENOMEM;
	}
	if (!ret)
		ret = map_parts(r, s);
	if (!ret) {
		r->shared = s;
		atomic_fetch_add(&soda_agent.store_object_bytes, r->span);
		return 0;
	}
	snprintf(why->text, sizeof(why->text), "the node's store cannot be mapped: %s",
		 soda_strerror(ret));
	if (s)
		unmap_map(s);
	if (soda_mapping_anew(soda_chunk_address(r->first), r->span, soda_region_prot(r))) {
		soda_log_error("addresses of fabric memory cannot be mapped again (%s); ending the "
			       "process rather than read zeros there",
			       soda_strerror(-errno));
		abort();
	}
	return ret;
}

int soda_shared_revive(const struct soda_region *r, char *page)
{
	const struct soda_shared *s = r->shared;
	uint64_t at = (uint64_t)(page - soda_chunk_address(r->first));
	struct iovec v = { page, SODA_WIRE_PAGE };
	size_t dropped;
	int ret;

	if (!soda_mapping_any_failing())
		return soda_agent.page_ops->drop(&v, 1, &dropped);
	ret = map_part(page, SODA_WIRE_PAGE, s->memory.parts[at / SODA_WIRE_STORE_PART],
		       at % SODA_WIRE_STORE_PART);
	return !ret && mprotect(page, SODA_WIRE_PAGE, PROT_READ) ? -errno : ret;
}

bool soda_shared_knows(const struct soda_region *r, const struct soda_link *link)
{
	return link->server.welcome.agent == r->shared->agent;
}

void soda_shared_rejoined(struct soda_region *r, const struct soda_wire_stored *stored, int map_fd)
{
	struct soda_shared *s = r->shared;
	struct stat ours, theirs;
	bool same = !fstat(s->memory.map_fd, &ours) && !fstat(map_fd, &theirs) &&
		    ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;

	soda_fd_close(map_fd);
	if (same)
		atomic_store(&s->rings,
			     soda_store_member(s->map, s->memory.stored.chunks, stored->member));
	atomic_store(&s->apart, !same);
}

static void close_memory(struct soda_region *r)
{
	soda_shared_close(&r->shared->memory);
	unmap_map(r->shared);
	r->shared = NULL;
	atomic_fetch_sub(&soda_agent.store_object_bytes, r->span);
}

int soda_shared_detach(struct soda_region *r)
{
	int ret = soda_mapping_anew(soda_chunk_address(r->first), r->span, PROT_NONE);

	close_memory(r);
	return ret;
}

void soda_shared_forget(struct soda_region *r)
{
	if (r->shared)
		close_memory(r);
}

void soda_shared_forked(const struct soda_region *r)
{
	const struct soda_shared *s = r->shared;

	if (!s)
		return;
	for (unsigned i = 0; i < s->memory.stored.parts; i++)
		soda_fd_close(s->memory.parts[i]);
	soda_fd_close(s->memory.map_fd);
}

/* Faults */

/*
 * Note the chunk among the thread's last ones, before its word is looked at: from then on the agent
 * leaves it where it is, or has made the word another one.
 */
static void hold(struct soda_thread *t, const struct soda_shared *s, uint32_t chunk)
{
	_Atomic uint32_t *ring =
		&atomic_load(&s->rings)[t->index % SODA_STORE_RINGS * SODA_STORE_LAST];

	for (int i = 0; i < SODA_STORE_LAST; i++)
		if (atomic_load_explicit(&ring[i], memory_order_relaxed) == chunk + 1)
			return;
	atomic_store(&ring[t->shared_at++ % SODA_STORE_LAST], chunk + 1);
}

static void drop(char *addr, uint32_t bytes)
{
	struct iovec v = { addr, bytes };
	size_t dropped;

	soda_agent.page_ops->drop(&v, 1, &dropped);
}

/*
 * The pager's error as this file's: -EFAULT is a page that the memfd lacks, -ENOENT an address that
 * is not mapped as we left it.
 */
static int told_by(int err)
{
	return err == -EFAULT ? -ENOENT : err == -ENOENT ? -EFAULT : err;
}

/* A hint; a touch of a program that needs the chunk by itself is not made less. */
static void note_touch(struct soda_shared *s, uint32_t chunk, enum soda_store_touch how)
{
	if (how == SODA_STORE_TOUCHED ||
	    (how == SODA_STORE_PASSED &&
	     !atomic_load_explicit(&s->touched[chunk], memory_order_relaxed)))
		atomic_store_explicit(&s->touched[chunk], (uint8_t)how, memory_order_relaxed);
}

/*
 * A word that has changed: the chunk was evicted meanwhile, and perhaps it is being filled anew.
 * What was mapped of it goes again, and comes with the next look.
 */
static int map_ready(struct soda_thread *t, const struct soda_region *r, uint32_t id,
		     enum soda_store_touch how)
{
	struct soda_shared *s = r->shared;
	uint32_t chunk = id - r->first, bytes = soda_region_chunk_bytes(r, id);
	uint32_t word = atomic_load(&s->words[chunk]);
	char *addr = soda_chunk_address(id);
	int ret;

	if ((word & SODA_STORE_STATE) != SODA_STORE_READY)
		return -ENOENT;
	note_touch(s, chunk, how);
	ret = soda_agent.page_ops->map(addr, bytes);
	if (atomic_load(&s->words[chunk]) != word) {
		if (!ret)
			drop(addr, bytes);
		return -ENOENT;
	}
	if (!ret) {
		/* relaxed, as it is a hint: who is misled by it faults once more, or maps again */
		atomic_store_explicit(&s->mapped[chunk], word, memory_order_relaxed);
		soda_count(t, SODA_CNT_STORE_MAPS, 1);
		soda_count(t, SODA_CNT_STORE_BYTES_MAPPED, bytes);
	}
	return told_by(ret);
}

bool soda_shared_mends(const struct soda_region *r, uint32_t id)
{
	const struct soda_shared *s = r->shared;

	return atomic_load_explicit(&s->mend, memory_order_relaxed) == id - r->first + 1 ||
	       atomic_load_explicit(&s->apart, memory_order_relaxed);
}

/* What its word says; a hint, as it may change at once. */
static uint32_t state_of(const struct soda_region *r, uint32_t id)
{
	return atomic_load_explicit(&r->shared->words[id - r->first], memory_order_relaxed) &
	       SODA_STORE_STATE;
}

bool soda_shared_lacks(const struct soda_region *r, uint32_t id)
{
	return state_of(r, id) == SODA_STORE_EMPTY;
}

bool soda_shared_fills(const struct soda_region *r, uint32_t id)
{
	return state_of(r, id) == SODA_STORE_FILLING;
}

/* Whether the chunk is there, and this process has mapped it since it came: a hint. */
static bool is_mapped(const struct soda_shared *s, uint32_t chunk)
{
	uint32_t word = atomic_load(&s->words[chunk]);

	return (word & SODA_STORE_STATE) == SODA_STORE_READY &&
	       atomic_load_explicit(&s->mapped[chunk], memory_order_relaxed) == word;
}

int soda_shared_touch(struct soda_thread *t, struct soda_region *r, uint32_t id,
		      enum soda_store_touch how, bool again)
{
	hold(t, r->shared, id - r->first);
	if (!again || !is_mapped(r->shared, id - r->first))
		return map_ready(t, r, id, how);
	/* if the hint is wrong the thread faults anew, and that fault has not waited */
	note_touch(r->shared, id - r->first, how);
	return 0;
}

static bool punch(const struct soda_region *r, uint32_t chunk)
{
	const struct soda_shared *s = r->shared;
	uint64_t at = chunk * (uint64_t)s->memory.stored.chunk_bytes;
	int saved = errno;
	bool punched =
		!syscall(SYS_fallocate, s->memory.parts[at / SODA_WIRE_STORE_PART],
			 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at % SODA_WIRE_STORE_PART,
			 (uint64_t)soda_region_chunk_bytes(r, r->first + chunk));

	errno = saved;
	return punched;
}

/*
 * What an agent that died in the middle of a fill has left of a chunk. Then the word: who finds it
 * changed may take what is there for whole.
 */
static void clear_filling(struct soda_region *r, uint32_t chunk, uint32_t word)
{
	if (punch(r, chunk))
		atomic_compare_exchange_strong(&r->shared->words[chunk], &word,
					       (word & ~SODA_STORE_STATE) | SODA_STORE_EMPTY);
}

/*
 * No agent evicts what this process puts there: so the process itself does, the oldest first. The
 * word goes before the pages; one that another process puts there meanwhile is mended.
 */
static void note_put(struct soda_region *r, uint32_t chunk)
{
	struct soda_shared *s = r->shared;
	uint32_t at = atomic_fetch_add(&s->puts, 1) % s->put_max;
	uint32_t oldest = atomic_exchange(&s->put[at], chunk + 1), word;

	if (!oldest || oldest == chunk + 1)
		return;
	word = atomic_load(&s->words[oldest - 1]);
	if ((word & SODA_STORE_STATE) == SODA_STORE_READY &&
	    atomic_compare_exchange_strong(&s->words[oldest - 1], &word,
					   (word & ~SODA_STORE_STATE) + SODA_STORE_GENERATION))
		punch(r, oldest - 1);
}

/*
 * Write the chunk's data into the memfd, over what is there.  Pages that are there need not have
 * them: an agent whose chunks are large folios makes a chunk's pages, of zeros, before it writes to
 * them.  What it writes then is the same.
 */
static int put(const struct soda_region *r, uint32_t chunk, const char *data)
{
	const struct soda_shared *s = r->shared;
	uint64_t at = chunk * (uint64_t)s->memory.stored.chunk_bytes;
	uint32_t bytes = soda_region_chunk_bytes(r, r->first + chunk);
	int saved = errno, ret = 0;

	for (uint32_t done = 0; done < bytes && !ret;) {
		ssize_t n = syscall(SYS_pwrite64, s->memory.parts[at / SODA_WIRE_STORE_PART],
				    data + done, bytes - done,
				    (off_t)(at % SODA_WIRE_STORE_PART + done));

		if (n > 0)
			done += (uint32_t)n;
		else if (!n || errno != EINTR)
			ret = n && errno != ENOSPC ? -errno : -ENOMEM;
	}
	errno = saved;
	return ret;
}

/* Of an agent that has no store for the object, or no memory for the chunk. */
static int install(struct soda_region *r, uint32_t id, const void *data)
{
	struct soda_shared *s = r->shared;
	uint32_t chunk = id - r->first, bytes = soda_region_chunk_bytes(r, id);
	uint32_t word = atomic_load(&s->words[chunk]);
	int ret;

	if ((word & SODA_STORE_STATE) == SODA_STORE_FILLING) {
		clear_filling(r, chunk, word);
		word = atomic_load(&s->words[chunk]);
	}
	if ((word & SODA_STORE_STATE) == SODA_STORE_FILLING)
		return -ENOENT;
	ret = put(r, chunk, data);
	if (ret == -ENOMEM && (word & SODA_STORE_STATE) == SODA_STORE_EMPTY)
		punch(r, chunk); /* the pages before it: nobody would count them */
	if (!ret)
		ret = soda_agent.page_ops->map(soda_chunk_address(id), bytes);
	if (!ret && soda_shared_mends(r, id))
		atomic_store_explicit(&s->mend, 0, memory_order_relaxed);
	if (!ret && (word & SODA_STORE_STATE) == SODA_STORE_EMPTY &&
	    atomic_compare_exchange_strong(&s->words[chunk], &word,
					   (word & ~SODA_STORE_STATE) | SODA_STORE_READY))
		note_put(r, chunk);
	return told_by(ret);
}

static void say_once(const struct soda_region *r)
{
	if (!atomic_exchange_explicit(&r->shared->told, true, memory_order_relaxed))
		soda_log_info("%s: the agent does not keep all of it in its store any more; this "
			      "program keeps as much beside that as its page buffer has",
			      r->file);
}

int soda_shared_arrived(struct soda_thread *t, struct soda_region *r, const struct soda_install *in,
			const void *data)
{
	uint32_t id = in->id;
	int ret;

	/* one chunk that is mended, or was late, says nothing of the others */
	if (data && !in->late &&
	    (atomic_load_explicit(&r->shared->apart, memory_order_relaxed) ||
	     !soda_shared_mends(r, id)))
		say_once(r);
	ret = data ? install(r, id, data) : map_ready(t, r, id, SODA_STORE_UNTOUCHED);
	/* a thread waits for it, and has noted it: the agent has not evicted it since */
	if (ret == -ENOENT && !data && !in->ahead)
		atomic_store_explicit(&r->shared->mend, id - r->first + 1, memory_order_relaxed);
	return ret;
}
