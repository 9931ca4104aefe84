/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The smallest service of a DPU agent, as an example of how one is written: it says back what a
 * client says.
 *
 *   ECHO_SAY     any bytes, at most ECHO_BYTES -> the same
 *   ECHO_COUNT   empty -> how many ECHO_SAYs of this client there were, 8 bytes, little endian
 *   ECHO_WAIT    empty -> empty, once echo->open is set
 */
#ifndef TEST_ECHO_SERVICE_H
#define TEST_ECHO_SERVICE_H

#include "dpu_agent/session/session.h"

enum {
	ECHO_SAY = SODA_MSG_SERVICES,
	ECHO_COUNT,
	ECHO_WAIT,
	ECHO_LAST = ECHO_SAY + 15, /* the service's range; what it does not know it refuses */
	ECHO_BYTES = 4096,
	ECHO_CALLS = 2, /* at once, of all clients */
};

/* What the service has for all clients: how often each hook came. */
struct echo {
	_Atomic unsigned created, connected, left, ticks, broken, gone, destroyed;
	_Atomic unsigned waiting; /* in ECHO_WAIT */
	_Atomic bool open, busy;  /* busy: clients that have gone are kept */
};

/* Before the agent's listener starts. As soda_services_register. */
int echo_register(struct echo *echo, struct soda_sessions *all);

#endif
