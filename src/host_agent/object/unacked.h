/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unacknowledged chunks, "unacked" in names: the DPU agent has acknowledged their WRITEs, the
 * memory server has not yet, and its copy is an older one.  They are not dropped before it has
 * (move/kept.h), so if the agent dies recover.c writes them back again; it has to know which they
 * are.  Two bits for each chunk:
 *
 *   NOTED   the agent has acknowledged a WRITE of the chunk since it was last asked
 *   ASKED   the agent has been asked how far its WRITEs are, and the answer may not cover this one
 *
 *   NOTED -> ASKED     the keeper asks the agent (SODA_MSG_WRITTEN), or somebody sends a request
 *                      that the agent answers when the WRITEs are on the server
 *   ASKED -> neither   the agent has answered that all WRITEs up to the question are on the server
 *   ASKED -> NOTED     the connection failed before that
 *
 * An agent that acknowledges a WRITE only when the server has (SODA_WIRE_AGENT_EARLY is not set in
 * its number), and a memory server without an agent, never have an unacknowledged chunk.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_UNACKED_H
#define SODA_HOST_UNACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/api/transport.h"

/* Reserve the bits of all chunks. -ENOMEM. */
int soda_unacked_start(void);
/* Unmap the bits, which were reserved for that many chunks. */
void soda_unacked_undo(uint64_t chunks);

/* A WRITE of the chunk was acknowledged: NOTED, if the agent acknowledges early. AS. */
void soda_unacked_note(uint32_t chunk);
/*
 * Whether any chunk of [first, first + n) is unacknowledged; true also where that cannot be told
 * because another thread asks the agent. AS.
 */
bool soda_unacked_any(uint32_t first, uint32_t n);
/* Clear both bits of the chunks: their object has been freed. */
void soda_unacked_forget(uint32_t first, uint32_t n);

/* Memory that the bits take: pages of them that were touched. */
uint64_t soda_unacked_bytes(void);

/*
 * begin, end, ask: the caller holds the control connection's lock.
 * begin: NOTED becomes ASKED, before a request that the agent answers when the WRITEs of these
 * chunks are on the server.  end: after it; written: the agent has answered so, and ASKED bits go;
 * else they become NOTED again.
 */
void soda_unacked_begin(uint32_t first, uint32_t n);
void soda_unacked_end(uint32_t first, uint32_t n, bool written);
struct soda_unacked_answer {
	/*
	 * The server has refused some since the last question, and nobody knows which: all are
	 * NOTED, and the caller sends their chunks again.
	 */
	bool refused;
	bool written; /* the server has what was unacknowledged when this began to be asked */
};
/*
 * Ask the agent how far its WRITEs are, where a chunk is unacknowledged; the agent answers at once
 * and does not wait for the WRITEs.  0, or an error of the connection.
 */
int soda_unacked_ask(struct soda_conn *control, int timeout_ms, struct soda_unacked_answer *answer);

/*
 * The connections are new, to the agent of that number (soda_wire_welcome.agent), and nothing of
 * the connections before is under way.  True: it is another agent than before, so only this
 * process has the content of the unacknowledged chunks; the caller makes each chunk for which
 * soda_unacked_is() is true dirty and calls soda_unacked_buried().
 */
bool soda_unacked_meet(uint32_t agent);
bool soda_unacked_is(uint32_t chunk); /* AS */
/* The same, exactly; waits for the loop of a thread that asks the agent. */
bool soda_unacked_certainly(uint32_t chunk);
void soda_unacked_buried(void);
/*
 * How many times another agent was met while chunks were unacknowledged, counted twice: when that
 * was seen, and when all these chunks were LOST, or dirty again.  Odd in between.
 */
uint32_t soda_unacked_deaths(void);

/*
 * soda_unacked_deaths() and restarts of the server together.  While the number stays, what was
 * synced before is on the server; when it is another one, it may not be.
 */
uint32_t soda_unacked_losses(void);

#endif
