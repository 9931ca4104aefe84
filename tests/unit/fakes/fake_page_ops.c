/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/fake_page_ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/lock.h"
#include "host_agent/fault/fault.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/uffd.h"
#include "unit/fakes/fake_conn.h"

enum { PAGE = 4096, PAGES = 1 << 18, PRESENT = 1, PROTECTED = 2 };

struct fake_page_ops fake_page_ops;
static uint8_t shadow[PAGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char context[256];

void fake_lock(void)
{
	pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void fake_context(const char *text)
{
	snprintf(context, sizeof(context), "%s", text);
}

void fake_fail(const char *fmt, ...)
{
	va_list args;

	fflush(NULL);
	fprintf(stderr, "ORACLE (%s): ", context);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

void fake_page_ops_reset(void)
{
	memset(shadow, 0, sizeof(shadow));
	fake_page_ops = (struct fake_page_ops){
		.copy_fails_in = -1, .protect_fails_in = -1, .drop_fails_in = -1, .error = -ENOMEM
	};
}

static uint8_t *page_of(const void *addr)
{
	uint64_t n = (uint64_t)((const char *)addr - soda_agent.base) / PAGE;

	if (!soda_agent_owns(addr) || n >= PAGES)
		fake_fail("%p is no address of an object", addr);
	return &shadow[n];
}

bool fake_present(const void *addr)
{
	return *page_of(addr) & PRESENT;
}

bool fake_protected(const void *addr)
{
	return *page_of(addr) & PROTECTED;
}

uint32_t fake_resident(const void *addr, size_t bytes)
{
	uint32_t n = 0;

	fake_lock();
	for (size_t at = 0; at < bytes; at += PAGE)
		n += fake_present((const char *)addr + at);
	fake_unlock();
	return n;
}

static void check_range(const char *what, const void *addr, size_t bytes)
{
	if ((uintptr_t)addr % PAGE || bytes % PAGE || !bytes)
		fake_fail("%s of %zu bytes at %p: not whole pages", what, bytes, addr);
}

static enum soda_chunk_state state_at(const void *addr)
{
	return soda_chunk_state(soda_chunk_load(&soda_agent.table[soda_chunk_of(addr)]));
}

/* Counted down to the failure, once. */
static bool fails(int64_t *in)
{
	return *in >= 0 && (*in)-- == 0;
}

void fake_peer_copy(void *page, const void *src, bool protect)
{
	if (state_at(page) != SODA_CHUNK_FETCHING)
		fake_fail("the peer installs a page of chunk %u in state %d", soda_chunk_of(page),
			  state_at(page));
	if (fake_present(page))
		return;
	memcpy(page, src, PAGE);
	*page_of(page) = PRESENT | (protect ? PROTECTED : 0);
}

/* Nothing can be read there: soda_mapping_fail() has put another mapping in the page's place. */
static bool is_covered(const void *page)
{
	int p[2];
	bool is;

	if (!soda_mapping_any_failing())
		return false;
	if (pipe(p))
		fake_fail("pipe: %s", strerror(errno));
	is = write(p[1], page, 8) < 0;
	close(p[0]);
	close(p[1]);
	return is;
}

static int pager_copy(void *dst, const void *src, size_t bytes, bool protect)
{
	int ret = 0;

	fake_lock();
	check_range("copy", dst, bytes);
	fake_page_ops.copies++;
	for (size_t at = 0; at < bytes && !ret; at += PAGE) {
		char *to = (char *)dst + at;

		if (state_at(to) != SODA_CHUNK_FETCHING && state_at(to) != SODA_CHUNK_BUSY)
			fake_fail("copy to chunk %u in state %d", soda_chunk_of(to), state_at(to));
		if (fake_present(to) && fake_page_ops.peer)
			continue;
		if (fake_present(to))
			fake_fail("copy to a page of chunk %u that is there", soda_chunk_of(to));
		if (is_covered(to)) {
			fake_page_ops.covered++;
			ret = -ENOENT;
			break;
		}
		if (fails(&fake_page_ops.copy_fails_in)) {
			ret = fake_page_ops.error;
			break;
		}
		memcpy(to, (const char *)src + at, PAGE);
		*page_of(to) = PRESENT | (protect ? PROTECTED : 0);
	}
	fake_unlock();
	return ret;
}

static void call_on_open(void)
{
	void (*fn)(void);

	fake_lock();
	fn = fake_page_ops.on_open;
	fake_page_ops.on_open = NULL;
	fake_unlock();
	if (fn)
		fn();
}

static int pager_protect(void *addr, size_t bytes, bool on)
{
	int ret = 0;

	if (!on)
		call_on_open();
	fake_lock();
	check_range("protect", addr, bytes);
	if (fails(&fake_page_ops.protect_fails_in)) {
		fake_unlock();
		return fake_page_ops.error;
	}
	on ? fake_page_ops.protects++ : fake_page_ops.unprotects++;
	for (size_t at = 0; at < bytes; at += PAGE) {
		char *to = (char *)addr + at;

		if (state_at(to) != SODA_CHUNK_BUSY && state_at(to) != SODA_CHUNK_FETCHING)
			fake_fail("protection of chunk %u in state %d", soda_chunk_of(to),
				  state_at(to));
		if (!fake_present(to))
			fake_fail("protection of a missing page of chunk %u", soda_chunk_of(to));
		*page_of(to) = PRESENT | (on ? PROTECTED : 0);
	}
	fake_unlock();
	return ret;
}

/* Lock held. A page that goes must be had from elsewhere. */
static void check_drop(const char *at)
{
	static const char zeros[PAGE];
	uint32_t id = soda_chunk_of(at), w = soda_chunk_load(&soda_agent.table[id]);
	enum soda_chunk_state s = soda_chunk_state(w);
	struct soda_region *r = soda_region_of(id);
	const void *same = zeros;

	if (s == SODA_CHUNK_FETCHING)
		return;
	if (s != SODA_CHUNK_BUSY) {
		if (s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY || fake_present(at))
			fake_fail("drop of chunk %u in state %d", id, s);
		return;
	}
	if (!fake_present(at))
		fake_fail("drop of resident chunk %u, which misses a page", id);
	if (fake_page_ops.discarding)
		return;
	/* PINNED may be: whoever pins it just now brings it back before PIN returns. */
	if (w & (SODA_CW_SENDING | SODA_CW_DIRTY))
		fake_fail("drop of chunk %u, whose word is %08x", id, w);
	if (w & SODA_CW_BACKED && r->sealing) /* the server has ciphertext: a load will tell */
		return;
	if (w & SODA_CW_BACKED)
		same = fake_server_page(r->id, (uint64_t)(at - soda_chunk_address(r->first)));
	if (memcmp(at, same, PAGE) != 0)
		fake_fail("drop of page %u of chunk %u, which differs from %s",
			  (unsigned)(((uintptr_t)at & (soda_chunk_bytes() - 1)) / PAGE), id,
			  w & SODA_CW_BACKED ? "the server's" : "zeros");
}

/* Lock held. As many pages as the failure to come lets go; *dropped_p counts on. */
static int drop_range(const struct iovec *range, size_t *dropped_p)
{
	char *base = range->iov_base;

	check_range("drop", base, range->iov_len);
	for (size_t at = 0; at < range->iov_len; at += PAGE) {
		if (fails(&fake_page_ops.drop_fails_in))
			return fake_page_ops.error;
		check_drop(base + at);
		fake_page_ops.dropped_chunks += (at & (soda_chunk_bytes() - 1)) == 0;
		*page_of(base + at) = 0;
		if (madvise(base + at, PAGE, MADV_DONTNEED))
			fake_fail("madvise: %s", strerror(errno));
		*dropped_p += PAGE;
	}
	return 0;
}

static int pager_drop(const struct iovec *ranges, int n, size_t *dropped_p)
{
	int ret = 0;

	*dropped_p = 0;
	fake_lock();
	if (n < 1 || n > 64)
		fake_fail("drop of %d ranges", n);
	fake_page_ops.drops++;
	fake_page_ops.dropped_ranges += (uint32_t)n;
	for (int i = 0; i < n && !ret; i++)
		ret = drop_range(&ranges[i], dropped_p);
	fake_unlock();
	return ret;
}

static int pager_wake(void *addr, size_t bytes)
{
	fake_lock();
	fake_page_ops.wakes++;
	fake_unlock();
	return 0;
}

static int pager_poison(void *addr, size_t bytes)
{
	int ret = -ENOTSUP;

	fake_lock();
	if (fake_page_ops.poisons)
		ret = fake_present(addr) || addr == fake_page_ops.poisoned ? -EEXIST : 0;
	if (!ret)
		fake_page_ops.poisoned = addr;
	fake_unlock();
	return ret;
}

/* The symbols of uffd.c, all of them, so that the linker leaves that out. */
const struct soda_page_ops soda_uffd_page_ops = {
	.copy = pager_copy,
	.protect = pager_protect,
	.drop = pager_drop,
	.wake = pager_wake,
	.poison = pager_poison,
};

int soda_uffd_open(bool sigbus, bool plain, bool kernel_faults, struct soda_uffd_info *info,
		   struct soda_why *why)
{
	*info = (struct soda_uffd_info){ .fd = -1, .how = "a fake" };
	return 0;
}

int soda_uffd_register_shared(void *addr, size_t bytes)
{
	return -ENOTSUP;
}

int soda_uffd_register(void *addr, size_t bytes)
{
	return 0;
}

void soda_uffd_close(void)
{
}

static int touch(char *addr, bool store, uint64_t *value)
{
	enum { TRIES = 10000 };

	for (int i = 0; i < TRIES; i++) {
		struct soda_fault f;
		bool done;
		int ret;

		fake_lock();
		done = fake_present(addr) && !(store && fake_protected(addr));
		if (done && store)
			memcpy(addr, value, sizeof(*value));
		else if (done)
			memcpy(value, addr, sizeof(*value));
		fake_unlock();
		if (done)
			return 0;
		if (!soda_fault_describe(&f, addr, store))
			return -EFAULT;
		ret = soda_fault_serve(soda_thread_self(), &f);
		if (ret)
			return ret;
	}
	fake_fail("chunk %u: %d faults were served, none of them helped", soda_chunk_of(addr),
		  TRIES);
}

int fake_store(void *addr, uint64_t value)
{
	return touch(addr, true, &value);
}

int fake_load(const void *addr, uint64_t *value_p)
{
	return touch((char *)addr, false, value_p);
}
