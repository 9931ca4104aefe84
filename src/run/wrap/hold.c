/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the kernel itself accesses during a call: the word of a futex, the argument of an
 * ioctl whose size is unknown.  Its chunks are held (held.h), so that they are not evicted, and
 * then touched, so that they are resident.
 */
#include "run/core/run.h"

#include <stdlib.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "host_agent/core/held.h"
#include "host_agent/fork/child.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/region.h"

enum { PAGE = 4096 };

/* Store the byte that is there, to take the fault of a store. */
static void touch(char *p)
{
	_Atomic unsigned char *at = (_Atomic unsigned char *)p;
	unsigned char seen = atomic_load(at);

	while (!atomic_compare_exchange_weak(at, &seen, seen))
		;
}

/*
 * Make the range of a held chunk, or of a pinned one, resident and writable; a write-back would
 * protect it again: await that.
 */
static void bring(uint32_t id, char *from, const char *end)
{
	if (soda_chunk_load(&soda_agent.table[id]) & (SODA_CW_QUEUED | SODA_CW_SENDING))
		soda_sync_chunks(id, 1);
	for (char *p = from; p < end; p = (char *)((uintptr_t)p / PAGE * PAGE + PAGE))
		touch(p);
}

_Noreturn static void too_many(const char *what)
{
	char size[16];

	soda_log_error(
		"soda run: %s: threads wait in the kernel for memory in %u chunks of "
		"fabric memory, and these may take a tenth of the page buffer of %s; make "
		"--mem larger, or keep what threads wait for in small blocks (--threshold)",
		what, soda_held_allowance(),
		soda_format_size((uint64_t)soda_agent.buffer.limit * soda_chunk_bytes(), size));
	abort();
}

bool run_hold_needed(const void *p)
{
	if (soda_child_has(p))
		return true;
	return run_fam(p) && atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING &&
	       (soda_agent.settings.mode == SODA_MODE_INLINE || soda_agent.uffd.user_only);
}

void run_hold(void *addr, size_t bytes, const char *what)
{
	char *end = (char *)addr + run_piece(addr, bytes), *next;

	if (soda_child_has(addr)) { /* what is brought there stays */
		soda_child_bring(addr, (size_t)(end - (char *)addr));
		return;
	}
	for (char *p = addr; p < end; p = next) {
		uint32_t id = soda_chunk_of(p);

		next = soda_chunk_address(id + 1);
		if (!soda_held_take(id, 1))
			too_many(what);
		bring(id, p, next < end ? next : end);
	}
}

void run_open_pinned(char *addr, size_t bytes)
{
	char *end = addr + bytes, *next;

	for (; addr < end; addr = next) {
		next = soda_chunk_address(soda_chunk_of(addr) + 1);
		bring(soda_chunk_of(addr), addr, next < end ? next : end);
	}
}

void run_unhold(void *addr, size_t bytes)
{
	char *end = (char *)addr + run_piece(addr, bytes);

	if (soda_child_has(addr))
		return;
	for (char *p = addr; p < end; p = soda_chunk_address(soda_chunk_of(p) + 1))
		soda_held_give(soda_chunk_of(p));
}
