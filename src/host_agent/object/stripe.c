/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/stripe.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/erasure.h"

/* Of each server's senders, and of all faults.  A place has room for twice a chunk: M is no more
   than K. */
enum { OF_SENDERS = 32, OF_READERS = 64, PLACES = SODA_MEMBERS_MAX * OF_SENDERS + OF_READERS };

static char *places;
static _Atomic uint64_t taken[SODA_MEMBERS_MAX + 1];

uint64_t soda_stripe_region_bytes(const struct soda_region *r)
{
	uint64_t chunk = soda_chunk_bytes();

	return r->pieces ? (r->bytes + chunk - 1) / chunk * soda_stripe_piece_bytes(r) : r->bytes;
}

static uint64_t place_bytes(void)
{
	return 2 * soda_chunk_bytes();
}

int soda_stripes_start(void)
{
	void *p;

	if (places)
		return 0;
	p = mmap(NULL, PLACES * place_bytes(), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	for (uint32_t who = 0; who <= SODA_MEMBERS_MAX; who++)
		atomic_store(&taken[who], 0);
	soda_erasure_start();
	places = p;
	return 0;
}

void *soda_stripe_take(uint32_t who)
{
	uint32_t n = who == SODA_STRIPE_READER ? OF_READERS : OF_SENDERS;
	uint64_t all = n == 64 ? UINT64_MAX : (1ull << n) - 1, old = atomic_load(&taken[who]);

	while (~old & all) {
		uint32_t i = (uint32_t)__builtin_ctzll(~old & all);

		if (atomic_compare_exchange_weak(&taken[who], &old, old | 1ull << i))
			return places + (who * OF_SENDERS + i) * place_bytes();
	}
	return NULL;
}

void soda_stripe_give(void *place)
{
	uint64_t i = (uint64_t)((char *)place - places) / place_bytes();
	uint64_t who = i / OF_SENDERS < SODA_MEMBERS_MAX ? i / OF_SENDERS : SODA_STRIPE_READER;

	atomic_fetch_and(&taken[who], ~(1ull << (i - who * OF_SENDERS)));
}

static void fill_up(const struct soda_region *r, uint32_t id, char *place)
{
	uint32_t have = soda_region_chunk_bytes(r, id);

	memset(place + have, 0, soda_chunk_bytes() - have);
}

int soda_stripe_read(const struct soda_region *r, uint32_t id, void *place)
{
	uint32_t have = soda_region_chunk_bytes(r, id);
	struct iovec to = { place, have }, from = { soda_chunk_address(id), have };
	int saved = errno;
	/* by the kernel: the program may have closed the pages, or close them at any time */
	long got = syscall(SYS_process_vm_readv, soda_agent.pid, &to, 1, &from, 1, 0);

	errno = saved;
	if (got != (long)have)
		return -EFAULT;
	fill_up(r, id, place);
	return 0;
}

void soda_stripe_copy(const struct soda_region *r, uint32_t id, const void *copy, void *place)
{
	memcpy(place, copy, soda_region_chunk_bytes(r, id));
	fill_up(r, id, place);
}

void *soda_stripe_piece(const struct soda_region *r, uint32_t i, void *place)
{
	uint32_t bytes = soda_stripe_piece_bytes(r);
	char *piece = (char *)place + (uint64_t)i * bytes;

	if (i >= r->pieces)
		soda_erasure_encode(r->pieces, i - r->pieces, bytes, place, piece);
	return piece;
}

uint32_t soda_stripe_blocks(const struct soda_region *r, uint32_t i, uint32_t mask)
{
	uint32_t n = soda_stripe_piece_bytes(r) >> soda_agent.block_shift;

	return i < r->pieces ? mask & ((1u << n) - 1) << (i * n) : mask;
}
