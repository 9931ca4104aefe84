/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks that mprotect() has closed: no thread may load from them or store to them, so write-back
 * could not read them; therefore none of them is resident.  When a part of such a chunk becomes
 * accessible, the chunk is closed no more, and its other pages are readable.
 */
#include "run/core/run.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host_agent/object/region.h"

enum { BITS = 64 };

/* A bit for each chunk; NULL until the first is closed. */
static _Atomic(_Atomic uint64_t *) map;

static bool closed(uint32_t id)
{
	_Atomic uint64_t *bits = atomic_load_explicit(&map, memory_order_acquire);

	/*
	 * seq_cst, as in run_close(): a thread that has made the chunk FETCHING before sees the
	 * bit, or the thread that closes it sees FETCHING
	 */
	return bits && atomic_load(&bits[id / BITS]) >> id % BITS & 1;
}

/* Make the map, if there is none. false: no memory. */
static bool make_map(void)
{
	size_t bytes = (soda_agent.bytes >> soda_agent.chunk_shift) / 8 + sizeof(uint64_t);
	_Atomic uint64_t *none = NULL;
	void *p;

	if (atomic_load(&map))
		return true;
	p = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	if (!atomic_compare_exchange_strong(&map, &none, p))
		syscall(SYS_munmap, p, bytes);
	soda_chunk_closed = closed;
	return true;
}

bool run_close(const char *addr, size_t bytes)
{
	uint32_t id = soda_chunk_of(addr), end = soda_chunk_of(addr + bytes);

	if (!make_map())
		return false;
	for (; id < end; id++)
		atomic_fetch_or(&map[id / BITS], 1ull << id % BITS);
	return true;
}

/* The chunk is closed no more. If it lies only in part in the range, make it readable. */
static void open_edge(uint32_t id, bool whole)
{
	if (!whole)
		syscall(SYS_mprotect, soda_chunk_address(id), soda_chunk_bytes(), PROT_READ);
	atomic_fetch_and(&map[id / BITS], ~(1ull << id % BITS));
}

void run_open(const char *addr, size_t bytes)
{
	const char *end = addr + bytes;

	if (!atomic_load(&map) || !bytes)
		return;
	for (uint32_t id = soda_chunk_of(addr); id <= soda_chunk_of(end - 1); id++)
		if (closed(id))
			open_edge(id, addr <= soda_chunk_address(id) &&
					      end >= soda_chunk_address(id + 1));
}
