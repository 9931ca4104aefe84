/* SPDX-License-Identifier: BSD-3-Clause */
/* Completers (async): threads that collect the server's answers on the channels. */
#ifndef SODA_DPU_AGENT_COMPLETE_H
#define SODA_DPU_AGENT_COMPLETE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/upstream/channel.h"

struct soda_completers {
	struct soda_completer *at;
	unsigned n; /* 0: not async */
	/* Called when the server has sent something on this channel. True: there were answers. */
	bool (*collect)(struct soda_channel *c);
	_Atomic unsigned next;	  /* whose turn it is to get a channel */
	_Atomic unsigned polling; /* how many busy-wait at this moment */
};

/* Start n completers. 0, negative errno. */
int soda_completers_start(struct soda_completers *completers, unsigned n,
			  bool (*collect)(struct soda_channel *c));
/* End the completers, when no channel is watched any more. */
void soda_completers_stop(struct soda_completers *completers);

/* Let a completer watch a connected channel. 0, negative errno. */
int soda_completer_watch(struct soda_completers *completers, struct soda_channel *c);
/*
 * pause: the completer is not told of answers any more, because a worker waits for them itself, but
 * still of the connection's end.  resume: it is told again.  c->lock is held.
 */
void soda_completer_pause_locked(struct soda_channel *c);
void soda_completer_resume_locked(struct soda_channel *c);
/*
 * The channel's connection has failed: the completer ignores it from now on.  Else epoll would
 * return it again and again until the session is taken down, for which a connection that another
 * thread is just making has to be finished. c->lock is held.
 */
void soda_completer_failed_locked(struct soda_channel *c);
/*
 * End the watching, before the channel is disconnected; returns when no completer uses it any more.
 */
void soda_completer_forget(struct soda_channel *c);
/*
 * polling: the client that waits for the last posted transfer polls for its answer, so the
 * completer may poll, too. c->lock is held.
 */
void soda_completer_expect_locked(struct soda_channel *c, bool polling);

#endif
