/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions: they check arguments, do the call, and set soda_last_error(). */
#include "soda.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/heap/heap.h"
#include "host_agent/life/advise.h"
#include "host_agent/life/object.h"
#include "host_agent/life/publish.h"
#include "host_agent/life/start.h"
#include "host_agent/life/stats.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/limit.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/pool/freeze.h"

/* Set soda_last_error(); returns err. */
__attribute__((format(printf, 2, 3))) static int failed(int err, const char *fmt, ...)
{
	struct soda_why why;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why.text, sizeof(why.text), fmt, ap);
	va_end(ap);
	soda_explain(&why);
	return err;
}

const char *soda_last_error(void)
{
	return soda_explained();
}

const char *soda_version(void)
{
	return SODA_VERSION;
}

/* 0: the runtime runs; else an error. Does not start it. */
static int running(void)
{
	switch (atomic_load(&soda_agent.life)) {
	case SODA_LIFE_RUNNING:
		return 0;
	case SODA_LIFE_FORKED:
		return failed(-ENOTSUP, "the child of a fork has no fabric memory of its own");
	default:
		return failed(-EINVAL, "there is no object: the runtime is not running");
	}
}

int soda_init(const struct soda_config *cfg)
{
	struct soda_why why = { "" };
	int saved = errno, ret;

	soda_lock_acquire(&soda_agent.api_lock);
	if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		ret = failed(-EALREADY, "the runtime was started before");
	else if ((ret = soda_agent_start(cfg, &why)))
		failed(ret, "%s", why.text);
	soda_lock_release(&soda_agent.api_lock);
	errno = saved;
	return ret;
}

static void *allocate(const char *file, size_t bytes, unsigned flags, size_t *bytes_p)
{
	struct soda_region *r = NULL;
	struct soda_why why = { "" };
	int saved = errno, ret;

	soda_lock_acquire(&soda_agent.api_lock);
	ret = soda_object_create_locked(file, bytes, flags, &r, &why);
	soda_lock_release(&soda_agent.api_lock);
	if (ret) {
		failed(ret, "%s", why.text[0] ? why.text : soda_strerror(ret));
		errno = -ret;
		return NULL;
	}
	if (bytes_p)
		*bytes_p = r->bytes;
	errno = saved;
	return soda_chunk_address(r->first);
}

void *soda_alloc(size_t bytes, unsigned flags)
{
	if (!bytes || flags & ~(SODA_SEALED | SODA_OBJECT_REDUNDANCY)) {
		errno = -failed(-EINVAL,
				bytes ? "soda_alloc: unknown flags 0x%x" : "soda_alloc: 0 bytes",
				flags);
		return NULL;
	}
	return allocate(NULL, bytes, flags, NULL);
}

void *soda_alloc_file(const char *name, size_t bytes, unsigned flags, size_t *bytes_p)
{
	unsigned kind = flags & (SODA_READ_ONLY | SODA_WRITABLE | SODA_PRIVATE);

	if (!name || !*name || strlen(name) > SODA_WIRE_MAX_NAME) {
		errno = -failed(-EINVAL, "soda_alloc_file: a file name of 1 to %u bytes is needed",
				SODA_WIRE_MAX_NAME);
		return NULL;
	}
	if (flags & ~(0xfu | SODA_SEALED) || !kind || kind & (kind - 1) ||
	    (flags & SODA_CREATE && kind != SODA_WRITABLE)) {
		errno = -failed(-EINVAL,
				"soda_alloc_file: flags 0x%x: exactly one of READ_ONLY, WRITABLE, "
				"PRIVATE, CREATE only with WRITABLE, and SEALED",
				flags);
		return NULL;
	}
	return allocate(name, bytes, flags, bytes_p);
}

void *soda_open_published(const char *name, size_t *bytes_p)
{
	if (!name || !*name || strlen(name) > SODA_WIRE_MAX_NAME) {
		errno = -failed(-EINVAL, "soda_open_published: a name of 1 to %u bytes is needed",
				SODA_WIRE_MAX_NAME);
		return NULL;
	}
	return allocate(name, 0, SODA_READ_ONLY | SODA_REGION_PUBLISHED, bytes_p);
}

/* The whole object that begins at p, none of the heap's; NULL: there is none. */
static struct soda_region *whole_object(void *p)
{
	return soda_heap_owns(p) ? NULL : soda_region_at(p);
}

int soda_publish(void *object, const char *name)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	int saved = errno, ret = running();

	if (ret)
		return ret;
	if (!name || !*name || strlen(name) > SODA_WIRE_MAX_NAME)
		return failed(-EINVAL, "soda_publish: a name of 1 to %u bytes is needed",
			      SODA_WIRE_MAX_NAME);
	soda_lock_acquire(&soda_agent.api_lock);
	r = whole_object(object);
	if (!r)
		ret = failed(-EINVAL,
			     "soda_publish: %p is not the start of a live object; a block of the "
			     "heap or a part of an object cannot be published",
			     object);
	else if ((ret = soda_publish_object(r, name, &why)))
		failed(ret, "soda_publish: %s", why.text[0] ? why.text : soda_strerror(ret));
	soda_lock_release(&soda_agent.api_lock);
	errno = saved;
	return ret;
}

/* Of one region. */
static int write_part_back(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct soda_why why = { "" };
	int ret = soda_sync_range(r, first, n, &why);
	const char *name = r->name[0] ? r->name : r->file ? r->file : "an object";
	const struct soda_server *server = &soda_copies_source(r, NULL)->server;

	if (ret && why.text[0])
		return failed(ret, "%s is not written: %s", name, why.text);
	if (ret)
		return failed(ret, "dirty data of %s is not on %s: %s; it stays in memory", name,
			      server->address,
			      soda_server_up(server) ? soda_strerror(ret)
						     : soda_server_trouble(server));
	return 0;
}

/* The first error of a sync of several regions, and what soda_last_error() said of it. */
struct first_error {
	int err;
	struct soda_why why;
	uint32_t away; /* bit i: server i could not be reached */
};

/*
 * An error of one region's does not end the sync of the others; but of a server that cannot be
 * reached no other region is tried: each would wait for it again, for as long as a fault.
 */
static void write_also(struct first_error *e, struct soda_region *r, uint32_t first, uint32_t n)
{
	uint32_t server = 1u << soda_copies_source(r, NULL)->index;
	int ret = e->away & server ? 0 : write_part_back(r, first, n);

	if (soda_connection_lost(ret))
		e->away |= server;
	if (!ret || e->err)
		return;
	e->err = ret;
	snprintf(e->why.text, sizeof(e->why.text), "%s", soda_explained());
}

static int tell(const struct first_error *e)
{
	if (e->err)
		soda_explain(&e->why);
	return e->err;
}

/* Each slab that the chunks lie in. */
static int write_back(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct first_error e = { .err = 0 };

	for (uint32_t had; r && n; r = r->rest, first += had, n -= had) {
		had = soda_region_has(r, first, n);
		write_also(&e, r, first, had);
	}
	return tell(&e);
}

/* With api_lock, but without it while the server takes the data: others get what they ask for. */
static int write_back_used(struct soda_region *r)
{
	int ret;

	soda_region_use(r);
	soda_lock_release(&soda_agent.api_lock);
	ret = write_back(r, r->first, r->chunks);
	soda_lock_acquire(&soda_agent.api_lock);
	soda_region_unuse(r);
	return ret;
}

/* The object that begins at p, of which no slab is used. */
static struct soda_region *unused_object_at(const void *p)
{
	struct soda_region *r = soda_region_at(p);

	while (r && !soda_region_await_unused(r))
		r = soda_region_at(p);
	return r;
}

int soda_try_free(void *p)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	int saved = errno, ret = 0;

	if (!p)
		return 0;
	ret = running();
	if (ret)
		return ret;
	if (soda_heap_owns(p)) {
		soda_heap_free(p);
		return 0;
	}
	soda_lock_acquire(&soda_agent.api_lock);
	r = unused_object_at(p);
	if (!r)
		ret = failed(-EINVAL, "soda_free: %p is not the start of a live object", p);
	else if (r->flags & SODA_WRITABLE && !atomic_load(&r->abandoned))
		ret = write_back_used(r);
	if (!ret) {
		soda_object_destroy(r, &why);
		soda_limit_resize(false);
	}
	soda_lock_release(&soda_agent.api_lock);
	if (why.text[0])
		soda_explain(&why);
	errno = saved;
	return ret;
}

static void free_anyhow(void *p)
{
	int ret = soda_try_free(p);

	if (ret == -EINVAL) {
		soda_log_error("%s", soda_last_error());
		abort();
	}
	if (ret)
		soda_log_error("soda_free: %s; the object is kept", soda_last_error());
}

void soda_free(void *p)
{
	if (__builtin_expect(soda_heap_near(p) && soda_heap_mine.data, 1))
		soda_heap_free_short(p); /* a tail call: no register is saved */
	else
		free_anyhow(p);
}

/* The last chunk of the object, of all its slabs. */
static uint32_t last_of(const struct soda_region *r)
{
	while (r->rest)
		r = r->rest;
	return r->first + r->chunks - 1;
}

/* A rule of the agent's operator wants objects of this name in the static cache. */
static void obey_rule(struct soda_region *r)
{
	struct soda_why why = { "" };
	int ret = soda_freeze_advise(r, r->first, last_of(r), SODA_STATIC_CACHE, &why);

	if (ret)
		soda_log_warning("%s is to be in the static cache, by a rule of the agent's: %s",
				 r->name, why.text[0] ? why.text : soda_strerror(ret));
}

/* To each slab. *advice_p: of the first. */
static int give_name(struct soda_region *r, const char *name, int *advice_p, struct soda_why *why)
{
	int ret = 0, ignored;

	for (struct soda_region *slab = r; slab && !ret; slab = slab->rest) {
		snprintf(slab->name, sizeof(slab->name), "%s", name);
		ret = soda_calls_name_region(slab, slab == r ? advice_p : &ignored, why);
	}
	return ret;
}

int soda_set_name(void *obj, const char *name)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	int saved = errno, ret = running(), advice;

	if (ret)
		return ret;
	soda_lock_acquire(&soda_agent.api_lock);
	r = whole_object(obj);
	if (!r || !name || strlen(name) >= sizeof(r->name)) {
		ret = failed(-EINVAL, r ? "soda_set_name: a name of at most 255 bytes is needed"
					: "soda_set_name: not the start of a live object");
	} else {
		ret = give_name(r, name, &advice, &why);
		if (ret)
			failed(ret, "soda_set_name: %s", why.text);
		else if (advice == SODA_STATIC_CACHE)
			obey_rule(r);
	}
	soda_lock_release(&soda_agent.api_lock);
	errno = saved;
	return ret;
}

static struct soda_region *next_used(uint32_t *id_p)
{
	struct soda_region *r;

	soda_lock_acquire(&soda_agent.api_lock);
	r = soda_region_use_next(id_p);
	soda_lock_release(&soda_agent.api_lock);
	return r;
}

/*
 * Not with api_lock all the time: other threads' first soda_malloc(), and their ends, ask for it.
 * An object that appears meanwhile, with a number that was passed, has nothing of before the call.
 */
static int sync_all(void)
{
	struct first_error e = { .err = 0 };
	struct soda_region *r;

	for (uint32_t id = 1; (r = next_used(&id));) {
		write_also(&e, r, r->first, r->chunks);
		soda_region_unuse(r);
	}
	return tell(&e);
}

int soda_sync(void *addr, size_t bytes)
{
	struct soda_region *r;
	uint32_t first, last;
	int saved = errno, ret = running();

	if (ret)
		return ret;
	if (!addr && !bytes) {
		ret = sync_all();
	} else if (!(r = soda_region_range(addr, bytes, &first, &last))) {
		ret = failed(-EINVAL, "soda_sync: %zu bytes at %p are not inside one object", bytes,
			     addr);
	} else {
		ret = write_back(r, first, last - first + 1);
	}
	errno = saved;
	return ret;
}

int soda_advise(void *addr, size_t bytes, int advice)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	uint32_t first, last;
	int saved = errno, ret = running();

	if (ret)
		return ret;
	r = soda_region_range(addr, bytes, &first, &last);
	if (!r)
		return failed(-EINVAL, "soda_advise: %zu bytes at %p are not inside one object",
			      bytes, addr);
	if (bytes)
		ret = soda_advise_range(r, addr, bytes, advice, &why);
	if (ret)
		failed(ret, "soda_advise: %s", why.text[0] ? why.text : soda_strerror(ret));
	errno = saved;
	return ret;
}

int soda_hold(const void *addr, size_t bytes)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	uint32_t first, last;
	int saved = errno, ret = running();

	if (ret)
		return ret;
	r = soda_region_range(addr, bytes, &first, &last);
	if (!r && !bytes)
		return -EINVAL; /* that was the question */
	if (!r)
		return failed(-EINVAL, "soda_hold: %zu bytes at %p are not inside one object",
			      bytes, addr);
	if (bytes)
		ret = soda_advise_hold(r, first, last, &why);
	if (ret < 0)
		failed(ret, "soda_hold: %s", why.text[0] ? why.text : soda_strerror(ret));
	errno = saved;
	return ret;
}

int soda_is_sealed(const void *addr, size_t bytes)
{
	/* without the runtime there are no objects */
	return soda_agent.base && soda_region_any_sealed(addr, bytes);
}

int soda_unhold(const void *addr, size_t bytes)
{
	const struct soda_region *r;
	int ret = running();

	if (ret)
		return ret;
	if (!soda_agent_owns(addr) || bytes > soda_agent.bytes ||
	    (bytes && !soda_agent_owns((const char *)addr + bytes - 1)))
		return failed(-EINVAL, "soda_unhold: %zu bytes at %p are not fabric memory", bytes,
			      addr);
	/* also of an object that was freed meanwhile: what is held counts */
	r = soda_region_of(soda_chunk_of(addr));
	if (bytes && !(r && r->shared))
		soda_advise_unhold(soda_chunk_of(addr),
				   soda_chunk_of((const char *)addr + bytes - 1));
	return 0;
}

static int prefetch(const char *who, const struct iovec *ranges, int n)
{
	uint32_t first, last;
	int saved = errno, ret = running();

	for (int i = 0; i < n && !ret; i++)
		if (!soda_region_range(ranges[i].iov_base, ranges[i].iov_len, &first, &last))
			ret = failed(-EINVAL, "%s: %zu bytes at %p are not inside one object", who,
				     ranges[i].iov_len, ranges[i].iov_base);
	if (ret)
		return ret;
	soda_advise_willneed(ranges, n);
	errno = saved;
	return 0;
}

int soda_prefetch(const void *addr, size_t bytes)
{
	struct iovec range = { (void *)(uintptr_t)addr, bytes };

	return prefetch("soda_prefetch", &range, 1);
}

int soda_prefetchv(const struct iovec *ranges, int n)
{
	return prefetch("soda_prefetchv", ranges, n);
}

int soda_get_stats(struct soda_stats *out, size_t out_bytes)
{
	struct soda_stats s;

	if (!out)
		return failed(-EINVAL, "soda_get_stats: no place to put them");
	soda_stats_gather(&s);
	memcpy(out, &s, out_bytes < sizeof(s) ? out_bytes : sizeof(s));
	return 0;
}

int soda_shutdown(void)
{
	int saved = errno, ret;

	soda_heap_stop();
	ret = soda_agent_stop();
	if (ret)
		failed(ret, "a file was not written back: %s", soda_strerror(ret));
	errno = saved;
	return ret;
}
