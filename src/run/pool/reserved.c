/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heaps that reserve addresses, inaccessible or by MAP_NORESERVE, and open parts of them later, as
 * those of Java, Go, SBCL and V8: they stay local.  To be in fabric memory they would have to be
 * reserved there, at a server, in full, and most of them is never opened.  Once a good part is
 * open, one line says so.
 */
#include "run/core/run.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

enum { RANGES = 64 };

/* When much is open; and how much is meant as a heap where all of it is at once. */
static const uint64_t much = 16ull << 20, at_once = 1ull << 30;

static struct {
	_Atomic uintptr_t from, to; /* to is written last */
} ranges[RANGES];
static _Atomic unsigned ranges_n;
static _Atomic uint64_t opened;

static void say_if_much(uint64_t bytes)
{
	static _Atomic bool said;

	if (atomic_fetch_add(&opened, bytes) + bytes < much || run_settings.quiet ||
	    run_settings.threshold == SIZE_MAX || atomic_exchange(&said, true))
		return;
	soda_log_warning(
		"soda run: process %d (%s) reserves addresses and opens parts of them later, "
		"as a heap: what is there is local, and no fabric memory",
		getpid(), program_invocation_short_name);
}

/* More than there is room for are not known, nor said. */
static void reserve(uintptr_t from, size_t bytes)
{
	unsigned n = atomic_fetch_add(&ranges_n, 1);

	if (n >= RANGES) {
		atomic_store(&ranges_n, RANGES);
		return;
	}
	atomic_store(&ranges[n].from, from);
	atomic_store(&ranges[n].to, from + bytes);
}

static bool is_reserved(uintptr_t at)
{
	unsigned n = atomic_load(&ranges_n);

	for (unsigned i = 0; i < n && i < RANGES; i++)
		if (at < atomic_load(&ranges[i].to) && at >= atomic_load(&ranges[i].from))
			return true;
	return false;
}

void run_reserved_map(const void *p, size_t bytes, int prot, int flags)
{
	int saved = errno;

	if (!(flags & MAP_ANONYMOUS) || !(flags & MAP_PRIVATE) || flags & MAP_STACK)
		return;
	if (prot == (PROT_READ | PROT_WRITE) && flags & MAP_FIXED)
		run_reserved_open(p, bytes, prot);
	else if (prot == PROT_NONE && bytes >= run_settings.threshold && !(flags & MAP_FIXED))
		reserve((uintptr_t)p, bytes);
	else if ((prot & (PROT_READ | PROT_WRITE)) == (PROT_READ | PROT_WRITE) &&
		 flags & MAP_NORESERVE && bytes >= at_once)
		say_if_much(bytes);
	errno = saved;
}

void run_reserved_open(const void *p, size_t bytes, int prot)
{
	if (prot == (PROT_READ | PROT_WRITE) && is_reserved((uintptr_t)p))
		say_if_much(bytes);
}
