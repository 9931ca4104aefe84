/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory server and the connections to it, as a fake: link it instead of the
 * transports.  Requests complete in the order of their posts, when somebody polls,
 * unless they are held.  A WRITE takes its bytes partly at the flush and partly at the
 * completion, page by page at random, as a real one may; a refused or lost one has
 * taken some of them.
 */
#ifndef SODA_TESTS_FAKE_CONN_H
#define SODA_TESTS_FAKE_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

enum { FAKE_LOG = 8192 };

/* A WRITE as it was posted. */
struct fake_write {
	uint16_t region_id;
	uint64_t offset;
	uint32_t bytes;
	uint32_t flush; /* number of the flush that it went with */
};

/* Guarded by fake_lock; change it through the functions, or before there are threads. */
extern struct fake_net {
	bool hold_reads, hold_writes;	 /* completions wait */
	uint32_t let_writes;		 /* so many held WRITEs complete all the same */
	int status[2];			 /* of the next completions of READs, of WRITEs... */
	uint32_t status_n[2];		 /* ...so many */
	int refuse_connect;		 /* error of connecting, 0: none */
	bool mistaken;			 /* it says "known" of a client that it makes anew, once */
	uint32_t lose_at_open;		 /* the connection fails at the so many-th OPEN */
	int refuse_open;		 /* the answer to the next one */
	int refuse_close;		 /* the answer to each CLOSE, which is not done; 0: it is */
	bool agent;			 /* it takes SODA_STATIC_CACHE, of a whole region... */
	uint16_t frozen;		 /* ...of this number, and refuses WRITEs to it; 0: none */
	uint32_t lose_answers_of_advice; /* of the next ones, which are done, with the connection...
					  */
	uint32_t refuse_advice;		 /* ...and so many after them are refused */
	void (*on_advice)(void);	 /* at the end of one that it takes, without the lock */
	bool lose_answer_of_open;	 /* of the next one, which is done, with the connection */
	uint32_t silent_calls;		 /* so many of the next calls are not answered in time... */
	uint32_t silent_more_us;	 /* ...and the caller finds out so much later */
	void (*on_connect)(void);	 /* called for each connection made, without the lock */
	void (*on_call)(void);		 /* at the beginning of a call, without the lock */
	bool direct;			 /* regions opened from now on are mapped, as on shm */
	/*
	 * It has our userfaultfd: it installs some pages of a READ at the flush, and at the
	 * completion the rest, or leaves them to us, with the data in memory of its own.
	 */
	bool installs;
	bool asks;			      /* wants to know what is here */
	struct soda_wire_residency residency; /* told with the last READ */
	bool stopped;	      /* in the middle of that, and nothing can be revoked */
	uint32_t revoke_busy; /* it goes on installing, and so many revocations are refused */
	uint64_t instance, client;
	/* what happened */
	uint32_t reads, writes, connects, syncs, log_n, installed, revokes;
	uint64_t bytes_read, bytes_written;
	struct fake_write log[FAKE_LOG];
} fake_net;

void fake_net_reset(uint64_t seed);
void fake_net_hold(bool reads, bool writes);
/* While WRITEs are held: n of them complete. */
void fake_net_let(uint32_t n);
/* Status of the next n completions of WRITEs, or of READs. */
void fake_net_refuse(bool writes, int status, uint32_t n);
/* All connections fail; new ones are refused with err (0: not). */
void fake_net_break(int err);
void fake_net_mend(void);
/* The server starts anew: other instance, no regions; connections fail. */
void fake_net_restart(void);
/* An agent between: it has made another client of ours, and says of that one that it knows it. */
void fake_net_mistake(void);
/* WRITEs, or READs, flushed and not completed. */
uint32_t fake_net_under_way(bool writes);

/* fake_server.c; lock held. */

/* All regions are gone. */
void fake_server_forget(void);
/* A region of zeros; NULL: the number is taken, or none. */
uint8_t *fake_server_open(uint16_t region_id, uint64_t bytes);
bool fake_server_has(uint16_t region_id);
void fake_server_close(uint16_t region_id);
/* Fails the test where there is no such range. */
uint8_t *fake_server_at(uint16_t region_id, uint64_t offset, uint32_t bytes);
/* A page of the server's copy. */
const void *fake_server_page(uint16_t region_id, uint64_t offset);
/* Without the lock: a word of it. */
uint64_t fake_server_word(uint16_t region_id, uint64_t offset);

#endif
