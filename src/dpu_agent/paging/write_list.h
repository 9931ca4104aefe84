/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The WRITEs of a session that are not on the server yet, oldest first, and an
 * index that finds the newest one in a range.  The WRITEs of a session travel on one
 * connection in the order of the list, so that the server ends with the newest; those that were
 * under way on a lost connection are posted again in the same order.
 *
 *   LISTED -> POSTED -> answered by the server, off the list; acknowledged now, if it was not
 *      |                   \-> KEPT, if the client asked for that: in front of a pool the program
 *      |                        writes the same data to another member next, and need not send them
 *      |                        again (soda_writes_recall), nor what is parity of it
 *      |                        (soda_writes_encode)
 *      |         \-> LISTED again: the connection was lost
 *      \-> replaced by a newer WRITE of the same range, off the list
 *
 * Where the server is itself an agent in front of a pool nothing is kept here: what the client says
 * of kept data is passed on, and so is the answer, which may be that they are gone.
 *
 * A READ is answered from the data of listed WRITEs, of each byte the newest, if they cover the
 * READ (a program writes a chunk in parts where it goes on storing to it); else the READ waits
 * until the newest one that overlaps it is on the server.
 */
#ifndef SODA_DPU_AGENT_WRITE_LIST_H
#define SODA_DPU_AGENT_WRITE_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/base/blocks.h"
#include "dpu_agent/paging/allotment.h"
#include "dpu_agent/upstream/channel.h"
#include "transport/api/service.h"

struct soda_paging_region;
struct soda_session;
struct soda_task;

enum { SODA_WRITE_BUCKETS = 512, SODA_WRITE_PARTS = 16 };

struct soda_write {
	struct soda_hold hold; /* puts a reference of an answer that is sent from its data */
	_Atomic uint32_t refs; /* the list's, and such answers' */
	struct soda_session *session;
	struct soda_request *rq;	   /* NULL: a copy of one, which is kept */
	uint8_t *data;			   /* NULL: the server has them */
	struct soda_block *block;	   /* that data lie in; NULL: memory of the transport */
	struct soda_paging_region *region; /* held */
	struct soda_write *next, *prev;	   /* of the list; guarded by session->lock, and so below */
	struct soda_write *below;	   /* the next older one in its bucket, or of those kept */
	struct soda_write *left;	   /* of those that leave the list together */
	struct soda_write *copy; /* whose data can be kept, where the transport needs its memory */
	uint64_t seq;
	uint64_t offset;
	uint32_t bytes;
	uint16_t region_id;
	bool answered; /* acknowledged to the client */
	bool posted;
	bool passed; /* what the client says of kept data is for the server: `told` */
	struct soda_told told;
	struct soda_task *waiting; /* READs that wait until it is on the server */
};

/* Data of a range, as parts of WRITEs, each with a reference of its WRITE. */
struct soda_write_parts {
	unsigned n;
	struct soda_span part[SODA_WRITE_PARTS];
};

/*
 * Memory for a session's WRITEs' data that is in use.  A block that several WRITEs may share counts
 * as a whole, until nobody has any of it; it may outlive the session, and so does this.
 */
struct soda_write_charge {
	_Atomic uint32_t refs;	    /* the session's, and one for each such block */
	_Atomic uint64_t bytes;	    /* changed with and without the session's lock */
	struct soda_allotment *all; /* of all sessions; constant, and so the next */
	uint32_t tenant;
};

struct soda_write_list {
	struct soda_write *first, *last;
	struct soda_write *unposted;   /* the first that is not posted; where its region is closing,
					  later ones of other regions may be posted */
	struct soda_write *unanswered; /* the first that is not acknowledged: the budget was full */
	uint64_t seq;		       /* number of the next WRITE */
	uint64_t keep;		 /* WRITEs before this number are not replaced: a SYNC waits */
	uint64_t lost;		 /* how many were acknowledged, and refused by the server */
	uint64_t answered_bytes; /* acknowledged, not on the server */
	struct soda_write_charge *charge; /* constant */
	uint32_t longest; /* of the longest WRITE since the list and the kept ones were empty */
	struct soda_write *buckets[SODA_WRITE_BUCKETS];
	/* those kept, by `next` and `prev`, oldest first, and their own index */
	struct soda_write *kept_first, *kept_last;
	uint64_t kept_bytes; /* at most the write budget */
	struct soda_write *kept[SODA_WRITE_BUCKETS];
	/* where the next WRITE's data are received if it continues the last one */
	struct soda_block *run;
	uint32_t run_used;
	uint16_t run_region;
	uint64_t run_next;
};

/* The list of a new session. all: what sessions have together. 0, -ENOMEM. */
int soda_writes_init(struct soda_write_list *list, struct soda_allotment *all, uint32_t tenant);
/* Nothing is listed or kept any more. */
void soda_writes_destroy(struct soda_write_list *list);

/* Memory for the data of a WRITE. As soda_service.reserve. */
int soda_writes_reserve(struct soda_session *s, struct soda_peer *peer, uint16_t region_id,
			uint64_t page_offset, uint32_t size, struct soda_span *span);
/* Give memory of soda_writes_reserve back. */
void soda_writes_unreserve(struct soda_session *s, void *hold, uint32_t bytes);
/*
 * Those connections go on that wait for memory, if there is some: what others have given back, who
 * have been handed this session's.
 */
void soda_writes_resume(struct soda_session *s);

/*
 * List a WRITE that has been checked and that holds its region; acknowledge it if the budget
 * allows. False: no memory.
 */
bool soda_writes_add(struct soda_session *s, struct soda_request *rq,
		     struct soda_paging_region *region);
/*
 * rq is a WRITE without data, which are those of rq->origin: a WRITE of the same range that a
 * session of the same program has kept, and keeps no longer.  rq has its data then.  False: there
 * is none, or it is not this program's to use.
 */
bool soda_writes_recall(struct soda_session *s, struct soda_request *rq);
/*
 * The same of a WRITE of parity, which is computed from the WRITEs of rq->code: kept for another
 * piece of parity, unless this is the last one.  False also where memory for it is short: data that
 * travel have to wait for some.
 */
bool soda_writes_encode(struct soda_session *s, struct soda_request *rq);
/*
 * The server is an agent in front of a pool: whether it may have the data that rq names instead,
 * where they are this program's to use.  They are named as that agent knows them, then.
 */
bool soda_writes_name(struct soda_session *s, struct soda_request *rq);
/* Keep nothing any more. */
void soda_writes_unkeep(struct soda_session *s);
/* The newest WRITE that overlaps the range, or NULL. The session's lock is held. */
struct soda_write *soda_writes_find_locked(struct soda_session *s, uint16_t region_id,
					   uint64_t offset, uint32_t bytes);
/*
 * Add the newest listed data of a range, of which w is the newest WRITE that overlaps it.  False:
 * the list has not all of it, or in more than SODA_WRITE_PARTS parts.  The session's lock is held.
 */
bool soda_writes_parts_locked(struct soda_session *s, struct soda_write *w, uint64_t offset,
			      uint32_t bytes, struct soda_write_parts *parts);
/* Put the references. The session's lock is not held. */
void soda_writes_put_parts(struct soda_write_parts *parts);

/*
 * Fill t with the oldest WRITE that is not posted, and, if merge, the next ones that continue its
 * range and memory; they count as posted then.  WRITEs of a region that is being closed are
 * skipped.  False: there is none.  The session's lock is held.
 */
struct soda_transfer;
bool soda_writes_take_locked(struct soda_session *s, bool merge, struct soda_transfer *t);
/*
 * They were not posted: it is their turn again.  The lock of the WRITEs' channel is held since they
 * were taken, and the session's, too.
 */
void soda_writes_untake_locked(struct soda_session *s, const struct soda_transfer *t);

/*
 * The server has answered the n WRITEs from w on: they are stored (status 0) or refused.  Takes
 * them off the list, acknowledges later ones for which the budget has room now, lets READs go on
 * that waited.
 */
void soda_writes_landed(struct soda_session *s, struct soda_write *w, unsigned n, int status);
/*
 * The connection to the server is lost: all WRITEs count as not posted.  Those that were not
 * acknowledged are dropped with their clients' connections, and the clients repeat them.
 */
void soda_writes_restart(struct soda_session *s);
/*
 * Drop WRITEs of the region (NULL: of every region), but not those under way.  Without files_too:
 * none of WRITABLE files, because the others' content is of no use any more; with: all, which
 * counts as a loss of those that were acknowledged, and the client repeats the others.
 */
void soda_writes_discard(struct soda_session *s, const struct soda_paging_region *region,
			 bool files_too);
/*
 * mark: the number of the next WRITE; no older one is replaced any more.  before: whether a WRITE
 * of the region (NULL: of any) with a number before the mark is still on the list.  The session's
 * lock is held.
 */
uint64_t soda_writes_mark_locked(struct soda_session *s);
bool soda_writes_before_locked(struct soda_session *s, const struct soda_paging_region *region,
			       uint64_t mark);
/* Whether WRITEs of the region are posted. The session's lock is held. */
bool soda_writes_posted_locked(struct soda_session *s, const struct soda_paging_region *region);
/* Whether WRITEs are on the list that were acknowledged to the client. */
bool soda_writes_acknowledged(struct soda_session *s);
/* How many bytes of WRITEs are on the list. */
uint64_t soda_writes_unwritten(struct soda_session *s);

#endif
