/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A two-sided daemon that does what the input says, for the transports' listening side: it has
 * one region, answers requests when it is told to, and checks what transports promise a daemon.
 * One thread.
 */
#ifndef SODA_TESTS_FUZZ_DAEMON_H
#define SODA_TESTS_FUZZ_DAEMON_H

#include "transport/listen/server.h"

enum { FUZZ_REGION_BYTES = 256 << 10, FUZZ_REQUESTS_MAX = 1024 };

struct fuzz_daemon {
	struct soda_listener listener; /* without threads or sockets */
	struct soda_request *waiting[FUZZ_REQUESTS_MAX];
	unsigned waiting_n;
	struct soda_request *done[FUZZ_REQUESTS_MAX]; /* WRITEs that are answered and not freed */
	unsigned done_n;
	unsigned holds; /* spans given and not released */
	bool no_memory; /* reserve says -EAGAIN */
	bool gone;
	unsigned rejected;
	uint8_t memory[FUZZ_REGION_BYTES];
};

/* one_sided: translate instead of request. */
void fuzz_daemon_init(struct fuzz_daemon *d, bool one_sided);
/* Answer the i-th of those that wait, of a WRITE without freeing it; false: there is none. */
bool fuzz_daemon_answer(struct fuzz_daemon *d, unsigned i, int status);
/* Free the i-th of the answered WRITEs. */
bool fuzz_daemon_free(struct fuzz_daemon *d, unsigned i);
/* The connection has ended, all is answered and freed: nothing is held. */
void fuzz_daemon_check_end(struct fuzz_daemon *d);

#endif
