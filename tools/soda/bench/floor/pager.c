/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor's pager.  A chunk is ABSENT, FETCHING (by the thread that changed it),
 * PRESENT (in the ring, oldest first) or LEAVING (taken out of the ring by the
 * thread that evicts it):
 *
 *	ABSENT -> FETCHING -> PRESENT -> LEAVING -> ABSENT
 *	                      |     ^       ^
 *	                 sync v     | store |
 *	                       CLEAN -------+
 *
 * A thread that faults on a chunk in motion yields until it is still.  A store
 * during LEAVING hits the write-protection and waits likewise, so none is lost.
 * PRESENT counts as dirty where the accesses write; CLEAN is write-protected.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "soda/bench/floor/link.h"

#define THREADS_MAX 1024u

enum { ABSENT, FETCHING, PRESENT, CLEAN, LEAVING };

/* A faulting thread's own counters, on a cache line of its own. */
struct tally {
	_Alignas(64) uint64_t faults;
	uint64_t joined, fetched, written;
};

static struct {
	/* set before the threads start, then constant */
	struct soda_floor_options opt;
	const struct soda_floor_link *link;
	struct soda_floor_server server;
	uint8_t *base;
	uint64_t bytes; /* whole chunks */
	uint32_t chunks;
	_Atomic uint8_t *state;
	struct tally *tally; /* one a thread */
	atomic_flag lock;
	/* guarded by lock */
	uint32_t *ring; /* limit entries */
	uint32_t oldest, present;
	uint32_t used, used_peak; /* present + FETCHING + LEAVING */
} pager;

static __thread unsigned self; /* this thread's number */

static void lock(void)
{
	while (atomic_flag_test_and_set_explicit(&pager.lock, memory_order_acquire))
		sched_yield();
}

static void unlock(void)
{
	atomic_flag_clear_explicit(&pager.lock, memory_order_release);
}

static void write_back(const uint32_t *victims, uint32_t n)
{
	int err;

	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		soda_floor_protect(victims[i], true);
	err = pager.link->post(self, pager.base, victims, n);
	if (!err)
		err = pager.link->wait(self);
	if (err)
		soda_floor_lost("a write-back", err);
	pager.tally[self].written += n;
}

/* Called and returns with the lock held; lets go of it in between. */
static void evict_locked(void)
{
	uint32_t victims[SODA_FLOOR_BATCH], dirty[SODA_FLOOR_BATCH], n = 0, dirty_n = 0;

	for (; n < SODA_FLOOR_BATCH && pager.present > 0; n++, pager.present--) {
		victims[n] = pager.ring[pager.oldest];
		pager.oldest = (pager.oldest + 1) % pager.opt.limit;
		if (pager.opt.writes && pager.state[victims[n]] == PRESENT)
			dirty[dirty_n++] = victims[n];
		atomic_store_explicit(&pager.state[victims[n]], LEAVING, memory_order_relaxed);
	}
	unlock();
	if (n == 0) { /* all of it is in motion */
		sched_yield();
		lock();
		return;
	}
	write_back(dirty, dirty_n);
	soda_floor_drop(victims, n);
	for (uint32_t i = 0; i < n; i++) /* pairs with acquire in fetch_in */
		atomic_store_explicit(&pager.state[victims[i]], ABSENT, memory_order_release);
	lock();
	pager.used -= n;
}

static void reserve(void)
{
	lock();
	while (pager.used >= pager.opt.limit)
		evict_locked();
	pager.used++;
	if (pager.used > pager.used_peak)
		pager.used_peak = pager.used;
	unlock();
}

/* After UFFDIO_COPY: the chunk can be found as a victim from now on. */
static void publish(uint32_t chunk)
{
	lock();
	pager.ring[(pager.oldest + pager.present) % pager.opt.limit] = chunk;
	pager.present++;
	atomic_store_explicit(&pager.state[chunk], PRESENT, memory_order_release);
	unlock();
}

/* A store to a chunk that a sync has cleaned, or that another thread has dirtied since. */
static void dirty_again(uint32_t chunk)
{
	lock(); /* it stays in the ring meanwhile */
	if (pager.state[chunk] == CLEAN) {
		soda_floor_protect(chunk, false);
		pager.state[chunk] = PRESENT;
	}
	unlock();
}

static void fetch_in(uint32_t chunk)
{
	struct tally *tally = &pager.tally[self];
	bool waited = false;

	for (;;) {
		uint8_t state = atomic_load_explicit(&pager.state[chunk], memory_order_acquire);

		if (state == PRESENT) {
			tally->faults += waited;
			tally->joined += waited;
			return;
		}
		if (state == CLEAN) {
			dirty_again(chunk);
			return;
		}
		if (state == ABSENT &&
		    atomic_compare_exchange_strong(&pager.state[chunk], &state, FETCHING))
			break;
		waited = true;
		sched_yield();
	}
	reserve();
	const void *from = pager.link->fetch(self, chunk);
	if (!from)
		soda_floor_lost("a chunk", -errno);
	soda_floor_copy(chunk, from);
	publish(chunk);
	tally->faults++;
	tally->fetched++;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
	uintptr_t offset = (uintptr_t)info->si_addr - (uintptr_t)pager.base;
	int saved = errno;

	if (offset >= pager.bytes)
		soda_floor_die("a SIGBUS outside the region: it");
	fetch_in((uint32_t)(offset / pager.opt.chunk_bytes));
	errno = saved;
}

static int catch_sigbus(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus,
				    .sa_flags = SA_SIGINFO | SA_RESTART };

	sigfillset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL) ? -errno : 0;
}

static int make_tables(void)
{
	pager.state = calloc(pager.chunks, sizeof(*pager.state));
	pager.ring = calloc(pager.opt.limit, sizeof(*pager.ring));
	pager.tally = aligned_alloc(64, pager.opt.threads * sizeof(*pager.tally));
	if (!pager.state || !pager.ring || !pager.tally)
		return -ENOMEM;
	memset(pager.tally, 0, pager.opt.threads * sizeof(*pager.tally));
	pager.base = mmap(NULL, pager.bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pager.base == MAP_FAILED) {
		pager.base = NULL;
		return -errno;
	}
	return madvise(pager.base, pager.bytes, MADV_NOHUGEPAGE) && errno != EINVAL ? -errno : 0;
}

int soda_floor_open(const struct soda_floor_options *opt, uint8_t **base_p)
{
	int err;

	if (opt->threads == 0 || opt->threads > THREADS_MAX || opt->limit == 0)
		return -EINVAL;
	pager.opt = *opt;
	pager.link = opt->shm ? &soda_floor_shm : &soda_floor_tcp;
	pager.chunks = (uint32_t)((opt->bytes + opt->chunk_bytes - 1) / opt->chunk_bytes);
	pager.bytes = (uint64_t)pager.chunks * opt->chunk_bytes;
	err = soda_floor_server_start(opt, &pager.server);
	if (!err)
		err = pager.link->open(opt, &pager.server);
	if (!err)
		err = make_tables();
	if (!err)
		err = soda_floor_kernel_open(opt, pager.base, pager.bytes);
	if (!err)
		err = catch_sigbus();
	if (err) {
		soda_floor_close();
		return err;
	}
	*base_p = pager.base;
	return 0;
}

void soda_floor_attach(unsigned thread)
{
	self = thread;
}

int soda_floor_sync(unsigned thread)
{
	const uint32_t stride = SODA_FLOOR_BATCH * pager.opt.threads;
	unsigned posted = 0;
	int err = 0;

	if (!pager.opt.writes)
		return 0;
	for (uint32_t at = thread * SODA_FLOOR_BATCH; at < pager.present && !err; at += stride) {
		uint32_t batch[SODA_FLOOR_BATCH], n = 0;

		for (uint32_t i = at; i < at + SODA_FLOOR_BATCH && i < pager.present; i++) {
			uint32_t chunk = pager.ring[(pager.oldest + i) % pager.opt.limit];

			if (pager.state[chunk] == CLEAN)
				continue;
			soda_floor_protect(chunk, true);
			pager.state[chunk] = CLEAN;
			batch[n++] = chunk;
		}
		if (n == 0)
			continue;
		err = pager.link->post(thread, pager.base, batch, n);
		pager.tally[thread].written += n;
		if (!err && posted++ > 0) /* one batch travels while the next is sent */
			err = pager.link->wait(thread);
	}
	return !err && posted > 0 ? pager.link->wait(thread) : err;
}

void soda_floor_counters(struct soda_floor_counters *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < pager.opt.threads; i++) {
		out->faults += pager.tally[i].faults;
		out->joined += pager.tally[i].joined;
		out->fetched += pager.tally[i].fetched;
		out->written += pager.tally[i].written;
	}
	out->resident_peak = pager.used_peak;
	out->metadata_bytes = pager.chunks * sizeof(*pager.state) +
			      pager.opt.limit * sizeof(*pager.ring) +
			      pager.opt.threads * sizeof(*pager.tally);
}

pid_t soda_floor_server(void)
{
	return pager.server.pid;
}

void soda_floor_close(void)
{
	if (pager.base)
		munmap(pager.base, pager.bytes);
	soda_floor_kernel_close();
	pager.link->close();
	soda_floor_server_stop(&pager.server);
	free((void *)pager.state);
	free(pager.ring);
	free(pager.tally);
	memset(&pager, 0, sizeof(pager));
}
