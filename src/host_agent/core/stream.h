/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sequential and strided access streams of one thread, found in its faults.
 * Pure bookkeeping: says which chunks to fetch ahead, and fetches nothing.
 *
 * A stream is a stride and a window [next, ahead): chunks that were asked for
 * before their fault.  A fault on the stride in the window, or at its end,
 * confirms the stream, and the window grows.  The chunks of the window that no fault has confirmed
 * when the stream is given up were useless, and the next stream starts with a smaller window.
 */
#ifndef SODA_HOST_STREAM_H
#define SODA_HOST_STREAM_H

#include <stdbool.h>
#include <stdint.h>

enum { SODA_STREAMS = 4 };

struct soda_stream {
	int64_t next;	 /* chunk of the next fault if the stream goes on */
	int64_t ahead;	 /* first chunk not asked for yet, on the stride */
	int64_t limit;	 /* one behind the object's last chunk */
	int64_t base;	 /* the object's first chunk */
	int32_t stride;	 /* 0: not in use */
	uint32_t window; /* chunks */
	uint32_t used;	 /* soda_streams.turn at its last fault */
};

struct soda_streams {
	struct soda_stream s[SODA_STREAMS];
	int64_t last; /* chunk of the last fault outside every stream */
	int64_t last_delta;
	uint32_t turn;	 /* faults so far */
	uint32_t wasted; /* useless chunks of late; halved by each confirmed fault */
};

/* What to fetch ahead: n chunks from first on, stride apart. */
struct soda_plan {
	int64_t first;
	int32_t stride;
	uint32_t n;
	uint32_t useless; /* chunks of a stream that was given up unconfirmed */
};

void soda_streams_init(struct soda_streams *st);

/*
 * A fault on chunk id of an object [base, limit).  window_max: longest window, 0
 * for none; eager: the object was advised SEQUENTIAL, and a single step makes a stream.  Returns
 * what to fetch ahead now; n may be 0.
 */
struct soda_plan soda_streams_note(struct soda_streams *st, int64_t id, int64_t base, int64_t limit,
				   uint32_t window_max, bool eager);

/* Whether a fault on chunk id goes on with a stream: it would be noted as its next one. */
bool soda_streams_expect(const struct soda_streams *st, int64_t id);

/* Only `done` of the plan's n chunks were asked for: the window ends there. */
void soda_streams_cut(struct soda_streams *st, const struct soda_plan *plan, uint32_t done);

#endif
