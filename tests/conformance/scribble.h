/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank whose program writes into its rings what it should not (libsoda-msg's inside). */
#ifndef SODA_TEST_SCRIBBLE_H
#define SODA_TEST_SCRIBBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "soda_msg.h"

enum scribble {
	SCRIBBLE_TAIL,
	SCRIBBLE_SIZE,
	SCRIBBLE_PULLED,
	SCRIBBLE_ENDED,
	SCRIBBLE_ALL, /* every word but the packets */
	SCRIBBLES
};

bool scribble_has_rings(const struct soda_msg_job *job);
/* Write what a seed says, and wake the agent. */
void scribble_into(struct soda_msg_job *job, enum scribble what, uint64_t seed);

#endif
