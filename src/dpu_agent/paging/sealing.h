/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --seal: what programs write is encrypted and authenticated on its way to the memory server, block
 * by block (4 KiB, trust/seal.h), and opened when it has come back.  Caches, the write list and
 * programs have plaintext.
 *
 * A region has a key of its own and a table with 24 bytes a block: the tag, and the version that
 * the block was sealed with last.
 *
 *   no version   never written: zeros, whatever the server sends; where the table is not the one
 *                that the region began with (the agent before this one had it): lost
 *   ZERO         discarded: zeros
 *   PENDING      its WRITE is not answered yet: the server may have it, or what was before
 *
 * A file is sealed at rest (wire/sealed_file.h; sealed_files.h).  What was in it when it was opened
 * has entries in its own table, by keys of earlier opens; a block without a version is what that
 * says.
 *
 * Key, table and the counter of versions lie in one file: of --seal-state, which is a tmpfs, so
 * that the next agent on this machine finds them after this one's death; or in memory that nobody
 * else sees, and that is gone then.
 *
 * A READ that passes a WRITE of the same block on another connection may bring either content.
 * That is no attack: it ends with -EAGAIN, and is made again.
 *
 * A client that has lost its connections, and is not heard of for --seal-keep, has its keys and
 * tables no more; nor have clients of an agent before this one, counted from this one's start.
 *
 * Locks: a region's own, below the channel's; the sealer's, below none.
 */
#ifndef SODA_DPU_AGENT_SEALING_H
#define SODA_DPU_AGENT_SEALING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/metrics.h"
#include "transport/api/transport.h"
#include "trust/seal.h"
#include "trust/sealed_file.h"

struct soda_dpu_options;
struct soda_transfer;
struct soda_sealing;

enum { SODA_SEALING_SEEN = 256 };

struct soda_sealer {
	bool on;    /* set before start, then constant, and so below */
	bool files; /* they are sealed, with this key */
	struct soda_sealed_key file_key;
	int dir;			    /* of --seal-state; -1: none */
	uint64_t limit;			    /* of bytes that tables may come to have */
	uint64_t keep_ms;		    /* what clients that are away have left */
	uint64_t started_ms;		    /* soda_now_ms() */
	_Atomic uint64_t metadata, damaged; /* bytes of tables; blocks that were refused */
	_Atomic uint64_t sealed, opened;    /* bytes */
	pthread_mutex_t lock;
	bool swept;	   /* of what agents before this one have left; the keeper's alone */
	uint64_t reserved; /* guarded by lock, and so below */
	struct soda_sealing *live; /* that sessions have, or are about to */
	/* of clients that were connected, and may come back; the oldest first */
	struct soda_sealing *parked, **parked_end;
	/* files that were open when their server, or program, was lost: none may be older now */
	struct soda_sealing_seen {
		uint8_t salt[SODA_SEALED_SALT];
		uint64_t commits; /* 0: no file */
	} seen[SODA_SEALING_SEEN];
	unsigned seen_next;
};

/* 0; or negative errno, with a line: no cipher, no such directory, or one that will not do. */
int soda_sealer_start(struct soda_sealer *sealer, const struct soda_dpu_options *opt);
void soda_sealer_stop(struct soda_sealer *sealer);
void soda_sealer_walk(struct soda_sealer *sealer, struct soda_metrics *m);

/*
 * The state of a region of `bytes` bytes that its client opens now; or, if known, that the server
 * has already: what was parked or lies in the directory, else everything in it is lost.
 * 0, -ENOMEM, -ENOSPC, -EIO, with a sentence.
 */
int soda_sealing_begin(struct soda_sealer *sealer, uint64_t client, uint16_t region, uint64_t bytes,
		       bool known, struct soda_sealing **sealing_p, struct soda_why *why);
/*
 * The state of a sealed file that its client opens now, as the server has it: header is its first
 * page.  *f is the state's, or freed, in any case.  As above; -EBADMSG: it is older than what the
 * same agent has seen in it.
 */
int soda_sealing_begin_file(struct soda_sealer *sealer, uint64_t client, uint16_t region,
			    struct soda_sealed_file *f, const uint8_t *header,
			    struct soda_sealing **sealing_p, struct soda_why *why);
/*
 * That of a file of so many bytes that the server has open for the client already.  Where nothing
 * of it was kept all is lost, and it is not committed any more.
 */
int soda_sealing_find_file(struct soda_sealer *sealer, uint64_t client, uint16_t region,
			   uint64_t bytes, struct soda_sealing **sealing_p, struct soda_why *why);
/*
 * The table of a file that may only be read, and that an agent before this one has opened.  *f is
 * the state's, or freed. 0, -ENOMEM.
 */
int soda_sealing_give_table(struct soda_sealing *s, struct soda_sealed_file *f);
/* The session ends, and not because its program does: a file must not be older when it is next. */
void soda_sealing_note_end(struct soda_sealing *s);
/* Whether that region was sealed by this agent or one before it. */
bool soda_sealing_exists(struct soda_sealer *sealer, uint64_t client, uint16_t region);
/*
 * Forget whose client has not come back for --seal-keep: what was parked so long ago and, once, the
 * files of agents before this one that no client has asked for.  Does not wait.
 */
void soda_sealer_expire(struct soda_sealer *sealer, uint64_t now_ms);
/* Nothing uses it any more. park: the server has the region, and its client may come back. */
void soda_sealing_end(struct soda_sealing *s, bool park);

/*
 * Before t, of a region with sealing, is posted: a WRITE's data are sealed, into memory of t's own.
 * The channel's lock is held, whose engine it is.  0; -ENOMEM, -ENOSPC, -EIO: do not post it.
 */
int soda_sealing_post(struct soda_seal_engine *engine, struct soda_transfer *t);
/*
 * t has ended with this status: a READ's data are opened in place.  Its status from now on:
 * -EAGAIN: make it again; -EIO: a block is not what was sent, or its key is gone (t->damaged).
 */
int soda_sealing_ended(struct soda_seal_engine *engine, struct soda_transfer *t, int status);
/* t is not under way any more, whatever became of it. */
void soda_sealing_release(struct soda_transfer *t);
/* Say why t->damaged was refused. */
void soda_sealing_report(const struct soda_transfer *t, uint64_t client, const char *server);

/* Around a DISCARD; after one that succeeded the range is zeros. False: no memory to note that. */
void soda_sealing_discard_begin(struct soda_sealing *s);
bool soda_sealing_discard_end(struct soda_sealing *s, uint64_t offset, uint64_t bytes, bool done);

#endif
