/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor's shm link: the server's memfd, mapped here and populated.  A fetch is an
 * address in it (UFFDIO_COPY is the only copy), a write-back a memcpy into it.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "soda/bench/floor/link.h"

/* Set before the threads start, then constant. */
static struct {
	uint8_t *map;
	size_t bytes;
	uint32_t chunk_bytes;
} share;

static int shm_open_link(const struct soda_floor_options *opt,
			 const struct soda_floor_server *server)
{
	int prot = opt->writes ? PROT_READ | PROT_WRITE : PROT_READ;

	share.chunk_bytes = opt->chunk_bytes;
	share.bytes = (opt->bytes + opt->chunk_bytes - 1) / opt->chunk_bytes * opt->chunk_bytes;
	share.map = mmap(NULL, share.bytes, prot, MAP_SHARED | MAP_POPULATE, server->memfd, 0);
	if (share.map == MAP_FAILED) {
		share.map = NULL;
		return -errno;
	}
	return 0;
}

static const void *shm_fetch(unsigned thread, uint32_t chunk)
{
	return share.map + (uint64_t)chunk * share.chunk_bytes;
}

static int shm_post(unsigned thread, const uint8_t *base, const uint32_t *chunks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)chunks[i] * share.chunk_bytes;

		memcpy(share.map + at, base + at, share.chunk_bytes);
	}
	return 0;
}

static int shm_wait(unsigned thread)
{
	return 0;
}

static void shm_close_link(void)
{
	if (share.map)
		munmap(share.map, share.bytes);
	share.map = NULL;
}

const struct soda_floor_link soda_floor_shm = {
	.open = shm_open_link,
	.fetch = shm_fetch,
	.post = shm_post,
	.wait = shm_wait,
	.close = shm_close_link,
};
