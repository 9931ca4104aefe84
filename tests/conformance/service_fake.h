/* SPDX-License-Identifier: BSD-3-Clause */
/* A small daemon for tests of the transports: regions in memfds, no policy, counters. */
#ifndef SERVICE_FAKE_H
#define SERVICE_FAKE_H

#include <pthread.h>

#include "transport/api/service.h"

enum {
	FAKE_REGIONS = 16,
	FAKE_REFUSED_CHUNK = 4242, /* a HELLO with this chunk size is refused with -EPERM */
	FAKE_SECRET = 77,	   /* data HELLOs with another one: -ESTALE */
	FAKE_PEERS = 64,
	FAKE_ANSWERERS = 3,
	FAKE_WRITES = 40, /* two-sided: WRITEs whose memory it has at a time */
	FAKE_KEPT = 8,	  /* of them: answered, and not yet freed */
};

/* A call of a service: as STATS. */
#define FAKE_ECHO ((enum soda_msg)(SODA_MSG_SERVICES + 16))

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
	uint64_t client_id; /* of whoever connects; 9 */
	unsigned hellos, gone, rejected, holds, reads, writes, torn;
	char last_rejected[128];
	bool lie_about_size;	 /* OPEN passes a memfd smaller than it says */
	bool tells;		 /* transports may register the memory of regions */
	bool unsealed;		 /* ... or one that is not sealed */
	_Atomic bool holds_sync; /* SYNC is not answered */
	int advised_fd;		 /* memory that the last ADVISE passed; 0: none */
	uint8_t *advised;	 /* ... mapped */
	uint64_t advised_bytes;
	struct fake_later *later; /* two-sided: who answers, else NULL */
	unsigned bad;		  /* two-sided: what the transport did wrong */
	unsigned pauses;	  /* two-sided: WRITEs that had to wait for memory */
	unsigned requests;	  /* two-sided: that came in */
	bool tolerant;		  /* two-sided: data of WRITEs may change */
	bool asks;		  /* two-sided: it wants to know what clients have */
	bool stores;		  /* two-sided: it has a store for READs that are marked */
	unsigned stored;	  /* two-sided: READs that were */
	unsigned told;		  /* two-sided: READs that said so; the last one: */
	struct soda_wire_residency residency;
	bool stall; /* two-sided: nothing is answered; see fake_stall */
	_Atomic bool
		resigns; /* two-sided: it ends the connection of whoever asks, and then answers */
};

extern const struct soda_service fake_service;
/* Answers from threads of its own, late, and in any order; frees WRITEs later still. */
extern const struct soda_service fake_two_sided_service;

void fake_init(struct fake *f);
/* Times are this many times as long on a slow machine: SODA_TEST_PATIENCE, or 1. */
int fake_patience(void);
/* The answering threads of a two-sided fake; stopped after the listener is closed. */
void fake_start_answering(struct fake *f);
void fake_stop_answering(struct fake *f);
void fake_stall(struct fake *f, bool stall);
/* Regions unmapped; asserts that nothing is held any more. */
void fake_destroy(struct fake *f);

/* Byte at `offset` of a fresh region. */
static inline uint8_t fake_byte(uint16_t region_id, uint64_t offset)
{
	return (uint8_t)(offset * 7 + offset / 4096 * 13 + region_id);
}

/* service_fake.c, for service_later.c: the region's memory, held. As soda_service.translate. */
int fake_translate(struct fake *f, bool write, uint16_t region_id, uint64_t page_offset,
		   uint32_t size, struct soda_span *span);
/* service_later.c */
int fake_later_reserve(void *client, struct soda_peer *peer, uint16_t region_id,
		       uint64_t page_offset, uint32_t size, struct soda_span *span);
void fake_later_release(void *client, bool write, const struct soda_span *span, bool landed);
void fake_later_request(void *client, struct soda_request *rq);
void fake_later_doorbell(void *client, struct soda_peer *peer);
void fake_later_gone(struct fake *f, struct soda_peer *peer);

/* Snapshots under the lock. */
unsigned fake_count(struct fake *f, const unsigned *counter);
struct fake_region *fake_find(struct fake *f, uint16_t region_id);
/* soda_peer_close on every peer that is there. */
void fake_close_peers(struct fake *f);

#endif
