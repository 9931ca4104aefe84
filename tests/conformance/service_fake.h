/* SPDX-License-Identifier: BSD-3-Clause */
/* A small daemon for tests of the transports: regions in memfds, no policy, counters. */
#ifndef SERVICE_FAKE_H
#define SERVICE_FAKE_H

#include <pthread.h>

#include "common/transport/service.h"

enum {
	FAKE_REGIONS = 16,
	FAKE_REFUSED_CHUNK = 4242, /* a HELLO with this chunk size is refused with -EPERM */
	FAKE_SECRET = 77,	   /* data HELLOs with another one: -ESTALE */
	FAKE_PEERS = 64,
};

struct fake_region {
	bool open, writable;
	uint16_t id;
	int fd;
	uint8_t *memory;
	uint64_t bytes, dirty_bytes;
	unsigned holds;
};

struct fake {
	pthread_mutex_t lock; /* guards all of it */
	struct fake_region regions[FAKE_REGIONS];
	struct soda_peer *peers[FAKE_PEERS];
	unsigned hellos, gone, rejected, holds, reads, writes, torn;
	char last_rejected[128];
	bool lie_about_size; /* OPEN passes a memfd smaller than it says */
	bool unsealed;	     /* ... or one that is not sealed */
};

extern const struct soda_service fake_service;

void fake_init(struct fake *f);
/* Regions unmapped; asserts that nothing is held any more. */
void fake_destroy(struct fake *f);

/* Byte at `offset` of a fresh region. */
static inline uint8_t fake_byte(uint16_t region_id, uint64_t offset)
{
	return (uint8_t)(offset * 7 + offset / 4096 * 13 + region_id);
}

/* Snapshots under the lock. */
unsigned fake_count(struct fake *f, const unsigned *counter);
struct fake_region *fake_find(struct fake *f, uint16_t region_id);
/* soda_peer_close on every peer that is there. */
void fake_close_peers(struct fake *f);

#endif
