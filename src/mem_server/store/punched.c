/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "mem_server/store/store.h"

static struct watched {
	_Atomic uintptr_t end; /* 0: free; set last, cleared first */
	_Atomic uintptr_t start;
	_Atomic bool taken;
} watched[SODA_PUNCHED_MAX];

static struct sigaction before;

/*
 * Whether the address lies in a watched mapping. Lock-free: the faulting thread may hold any lock.
 */
static bool is_watched(uintptr_t at)
{
	for (struct watched *w = watched; w < watched + SODA_PUNCHED_MAX; w++) {
		/* acquire: pairs with the release in soda_punched_watch */
		uintptr_t end = atomic_load_explicit(&w->end, memory_order_acquire);

		if (at < end && at >= atomic_load_explicit(&w->start, memory_order_relaxed))
			return true;
	}
	return false;
}

/*
 * The SIGBUS handler.  Memory that has failed (BUS_MCEERR_*) is no hole, and must not become zeros:
 * a touch of it (_AR) ends the server; the report that some has failed (_AO) does not.
 */
static void fill_hole(int signal, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr, block = at / SODA_STORE_BLOCK * SODA_STORE_BLOCK;
	int saved = errno;

	if (info->si_code == BUS_MCEERR_AO)
		return;
	if (info->si_code != BUS_ADRERR || !is_watched(at) ||
	    mmap((void *)block, SODA_STORE_BLOCK, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		sigaction(SIGBUS, &before, NULL); /* the touch is repeated, and raises it again */
	errno = saved;
}

static void handle_signal(void)
{
	struct sigaction action = { .sa_sigaction = fill_hole, .sa_flags = SA_SIGINFO };

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &before);
}

int soda_punched_watch(void *map, size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, handle_signal);
	for (struct watched *w = watched; w < watched + SODA_PUNCHED_MAX; w++) {
		if (atomic_exchange(&w->taken, true))
			continue;
		atomic_store_explicit(&w->start, (uintptr_t)map, memory_order_relaxed);
		atomic_store_explicit(&w->end, (uintptr_t)map + bytes, memory_order_release);
		return 0;
	}
	return -ENOMEM;
}

void soda_punched_forget(const void *map)
{
	for (struct watched *w = watched; w < watched + SODA_PUNCHED_MAX; w++) {
		if (!atomic_load(&w->end) || atomic_load(&w->start) != (uintptr_t)map)
			continue;
		atomic_store(&w->end, 0);
		atomic_store(&w->taken, false);
		return;
	}
}
