/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The WRITEs of a session that are not on the server yet, oldest first, and an
 * index that finds the newest one in a range.  Those of one session travel on one
 * connection in this order, so that the server ends with the newest; what is
 * lost with a connection is posted again in the same order.
 *
 *   LISTED -> POSTED -> (landed) gone
 *      |         \-> LISTED again: the connection was lost
 *      \-> replaced by a newer one of the same range, gone
 *
 * A READ of a range with listed data is answered from it, or waits.
 */
#ifndef SODA_DPU_AGENT_WRITE_LIST_H
#define SODA_DPU_AGENT_WRITE_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/base/blocks.h"
#include "transport/api/service.h"

struct soda_paging_region;
struct soda_session;
struct soda_task;

enum { SODA_WRITE_BUCKETS = 512 };

struct soda_write {
	struct soda_hold hold; /* of answers that are sent from its data */
	_Atomic uint32_t refs; /* the list, those answers */
	struct soda_session *session;
	struct soda_request *rq;
	struct soda_paging_region *region; /* held */
	struct soda_write *next, *prev;	   /* of the list; guarded by session->lock, and so below */
	struct soda_write *below;	   /* in its bucket, older */
	uint64_t seq;
	uint64_t offset;
	uint32_t bytes;
	uint16_t region_id;
	bool answered; /* the client has its acknowledgement */
	bool posted;
	struct soda_task *waiting; /* READs */
};

struct soda_write_list {
	struct soda_write *first, *last;
	struct soda_write *unposted;   /* the first that is not posted; posted ones may be behind
					  it, of other regions, where its own is closing */
	struct soda_write *unanswered; /* the first that is not answered: the budget was full */
	uint64_t seq;		       /* of the next one */
	uint64_t keep;		       /* those before it are not replaced: a SYNC waits for them */
	uint64_t lost;		       /* answered, and not on the server for ever */
	uint64_t answered_bytes;       /* accepted, not on the server */
	uint64_t reserved_bytes;       /* memory given for WRITEs and not given back */
	uint32_t longest;	       /* WRITE so far */
	struct soda_write *buckets[SODA_WRITE_BUCKETS];
	/* where the next WRITE's data go if it continues the last one */
	struct soda_block *run;
	uint32_t run_used;
	uint16_t run_region;
	uint64_t run_next;
};

/* As soda_service.reserve. */
int soda_writes_reserve(struct soda_session *s, struct soda_peer *peer, uint16_t region_id,
			uint64_t page_offset, uint32_t size, struct soda_span *span);
/* What reserve gave is not needed any more. */
void soda_writes_unreserve(struct soda_session *s, void *hold, uint32_t bytes);

/*
 * List a WRITE, checked, whose region is held for it; answers it if the budget allows.
 * False: no memory.
 */
bool soda_writes_add(struct soda_session *s, struct soda_request *rq,
		     struct soda_paging_region *region);
/* The newest that overlaps; the lock is held. */
struct soda_write *soda_writes_find_locked(struct soda_session *s, uint16_t region_id,
					   uint64_t offset, uint32_t bytes);
/* The data of [offset, +) in w, as a READ's answer: with a reference. The lock is held. */
struct soda_span soda_writes_span_locked(struct soda_write *w, uint64_t offset, uint32_t bytes);

/*
 * The oldest that are not posted, and the neighbours that may travel with it, into t:
 * they are posted.  Not those of a region that is being closed.  False: none.  The lock is held.
 */
struct soda_transfer;
bool soda_writes_take_locked(struct soda_session *s, bool merge, struct soda_transfer *t);

/*
 * They are on the server (status 0), or were refused.  `n` of them, from w on.  Answers
 * those behind them that the budget has room for, and READs that waited go on.
 */
void soda_writes_landed(struct soda_session *s, struct soda_write *w, unsigned n, int status);
/*
 * The connection is gone: post all again, but those that were not answered are the
 * client's to repeat: they are dropped.
 */
void soda_writes_restart(struct soda_session *s);
/*
 * Drop those of the region (NULL: of every region) that need not be written: their data
 * go with it.  files_too: and the others, which are lost.  Not those under way.
 */
void soda_writes_discard(struct soda_session *s, const struct soda_paging_region *region,
			 bool files_too);
/*
 * Those of now, of the region (NULL: of every one), are not on the server yet, as long as
 * `_before` with the mark is true.  The lock is held.
 */
uint64_t soda_writes_mark_locked(struct soda_session *s);
bool soda_writes_before_locked(struct soda_session *s, const struct soda_paging_region *region,
			       uint64_t mark);
/* Whether some of the region are on their way. The lock is held. */
bool soda_writes_posted_locked(struct soda_session *s, const struct soda_paging_region *region);
/* How many bytes are accepted and not written, and of how many WRITEs. */
uint64_t soda_writes_unwritten(struct soda_session *s);

#endif
