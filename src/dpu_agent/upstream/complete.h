/* SPDX-License-Identifier: BSD-3-Clause */
/* Completers (async): threads that collect what comes back on the channels. */
#ifndef SODA_DPU_AGENT_COMPLETE_H
#define SODA_DPU_AGENT_COMPLETE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/upstream/channel.h"

struct soda_completers {
	struct soda_completer *at;
	unsigned n; /* 0: not async */
	/* Answers have come on this channel: take them. True: there were some. */
	bool (*collect)(struct soda_channel *c);
	_Atomic unsigned next;
	_Atomic unsigned polling; /* that busy-wait at this moment */
};

/* 0, negative errno. */
int soda_completers_start(struct soda_completers *completers, unsigned n,
			  bool (*collect)(struct soda_channel *c));
/* No channel is watched any more. */
void soda_completers_stop(struct soda_completers *completers);

/* A connected channel; its completer is chosen here. 0, negative errno. */
int soda_completer_watch(struct soda_completers *completers, struct soda_channel *c);
/*
 * Whether the completer hears of answers: not of a channel on which a worker waits for its own.  It
 * always hears of the connection's end.  c->lock is held; nothing, if it is so or none watches.
 */
void soda_completer_pause_locked(struct soda_channel *c);
void soda_completer_resume_locked(struct soda_channel *c);
/*
 * Its connection has failed, which a completer would be told again and again until the session is
 * taken down: that may be after a connection that is being made. The channel's lock is held.
 */
void soda_completer_failed_locked(struct soda_channel *c);
/* Returns when no completer looks at it any more; before it is disconnected. */
void soda_completer_forget(struct soda_channel *c);
/* Whether who waits for what was posted last polls: then the completer may, too. c->lock is held.
 */
void soda_completer_expect_locked(struct soda_channel *c, bool polling);

#endif
