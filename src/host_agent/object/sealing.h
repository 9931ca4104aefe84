/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed objects: what their chunks' blocks are on the server, and on the way there, is encrypted
 * and authenticated by this process, with a key that leaves it nowhere (docs/internals/sealing.md).
 *
 * Of each block of 4 KiB the process keeps 24 bytes: the version it was sealed with last, and the
 * tag.  A block without a version has never been sent, and reads as zeros, whatever the server
 * says. The entries of a chunk are written by the sender that has it BUSY, and read by the thread
 * that collects its READ, while it is FETCHING: never both at once, and the chunk's word orders
 * them.
 *
 * Stations: each has an engine of its own (trust/seal.h), which one thread at a time uses: that
 * which has the lock of a channel, or the write-back thread of a server.
 *
 * AS: async-signal-safe, without allocation, without locks.
 */
#ifndef SODA_HOST_SEALING_H
#define SODA_HOST_SEALING_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"

enum {
	SODA_SEALING_SLOTS_MIN = 2, /* of the page buffer, for what has been sealed and not sent */
	SODA_SEALING_SLOTS_MAX = 64,
	SODA_SEALING_CHANNELS = 2 * SODA_CHANNEL_PAIRS_MAX, /* of each server */
};

/* Whether any object is, or was, sealed: else no more than this is asked on the path of a fault. */
extern _Atomic bool soda_sealing_started;
static inline bool soda_sealing_on(void)
{
	return atomic_load_explicit(&soda_sealing_started, memory_order_relaxed);
}

/* The station of a channel (its number among all, move/channel.h), and of a write-back thread. */
static inline uint32_t soda_sealing_channel(uint32_t server, uint32_t channel)
{
	return server * SODA_SEALING_CHANNELS + channel;
}
static inline uint32_t soda_sealing_writer(uint32_t server)
{
	return SODA_MEMBERS_MAX * SODA_SEALING_CHANNELS + server;
}

/*
 * Before the first sealed object: the root key, and the engines of all stations, for `pairs` pairs
 * of channels to each server.  api_lock held.  0, also where it was done before; -ENOTSUP, -ENOMEM,
 * -EIO, with a sentence.
 */
int soda_sealing_start(uint32_t pairs, struct soda_why *why);
/* After that: the engines for one server more, before it is used. api_lock held. 0, -ENOMEM. */
int soda_sealing_add(uint32_t server, uint32_t pairs);
/* At the runtime's end: the keys are forgotten. */
void soda_sealing_stop(void);
/* In a fork's child: no keys. */
void soda_sealing_forget(void);

/* The object of `bytes` bytes, new and not shown yet, is sealed: r->sealing is set. 0; -ENOMEM...
 */
int soda_sealing_begin(struct soda_region *r, uint64_t bytes, struct soda_why *why);
/* Nobody works on the object any more. Nothing where it is not sealed. */
void soda_sealing_end(struct soda_region *r);
/* Memory that its versions and tags take. */
uint64_t soda_sealing_bytes(const struct soda_region *r);

/*
 * Sealed files.  The entries of their table are in memory as they are in the file, so a block has
 * 32 bytes; the server gets them when the file is committed (move/commit.c), together with what it
 * has of the blocks by then.  A chunk is pending from its sealing, or from the loss of what the
 * server had of it, until the server has acknowledged it; a file is committed while it is *held*,
 * when no chunk is sealed, and none is pending.
 */
struct soda_sealed_file;
struct soda_sealed_key;

/* The key of SODA_SEAL_KEY_FILE; api_lock. 0; -EINVAL: none is given; errors of reading it. */
int soda_sealing_file_key(const struct soda_sealed_key **key_p, struct soda_why *why);
/*
 * The object is that of the file, which is the object's from now on, also after an error:
 * r->sealing is set, and what else of r a sealed file has.  0, -ENOMEM, -EIO.
 */
int soda_sealing_begin_file(struct soda_region *r, struct soda_sealed_file *f,
			    struct soda_why *why);
/* The file of an object of which sealed_file is set. Its table may be changed while it is held. */
struct soda_sealed_file *soda_sealing_file(const struct soda_region *r);
/*
 * One thread at a time commits, and may then change this: with which meeting of the server
 * (core/link.h), and the number of the last commit that the file certainly has.
 */
struct soda_sealing_commits {
	uint32_t meeting;
	uint64_t confirmed;
};
struct soda_sealing_commits *soda_sealing_commits(const struct soda_region *r);
/* False: another thread commits. */
bool soda_sealing_commit_begin(struct soda_region *r);
void soda_sealing_commit_end(struct soda_region *r);
void soda_sealing_hold(struct soda_region *r, bool held);
/* How many chunks are pending. */
uint32_t soda_sealing_pending(const struct soda_region *r);
/* Pages of the table that no commit has brought to the file yet. Changed while it is held. */
bool soda_sealing_page_changed(const struct soda_region *r, uint64_t page);
void soda_sealing_pages_set(struct soda_region *r, bool changed);
/* The server has all that was sent of the chunk. AS. */
void soda_sealing_arrived(struct soda_region *r, uint32_t id);
/*
 * The server has not what it had acknowledged: the chunk is about to be dirty again.  Nothing
 * happens where the object is no sealed file.
 */
void soda_sealing_unsent(struct soda_region *r, uint32_t id);
/*
 * Likewise: chunks were lost of which the server may have a part, so that nothing may be committed
 * any more.
 */
void soda_sealing_spoil(struct soda_region *r);
bool soda_sealing_is_spoiled(const struct soda_region *r);

/*
 * Seal the blocks in the mask (of chunk.h) of a BUSY chunk, at their places in `sealed`, which has
 * a chunk's length; it may be `plain`.  Versions are new ones each time.  How many bytes; -EFAULT:
 * `plain` may not be read; -EAGAIN: the file is held; -EIO. AS.
 */
int64_t soda_sealing_seal(uint32_t station, struct soda_region *r, uint32_t id, uint32_t mask,
			  const void *plain, void *sealed);
/*
 * Open a FETCHING chunk that has arrived, in memory of this process alone; `plain` may be `sealed`.
 * 0; -EBADMSG: a block is not what was sent last; nothing at `plain` may be used. AS.
 */
int soda_sealing_open(uint32_t station, const struct soda_region *r, uint32_t id,
		      const void *sealed, void *plain);

/*
 * A place for a sealed chunk until its WRITEs are answered; its credit of the page buffer is
 * taken.  NULL: none is free. AS.
 */
void *soda_sealing_slot_take(void);
void soda_sealing_slot_give(void *slot);
/* About how many are free; and how many there are. AS. */
uint32_t soda_sealing_slots_free(void);
uint32_t soda_sealing_slots(void);
/*
 * One more place, with a credit that the caller has taken, also before soda_sealing_start.  False:
 * there are enough.
 */
bool soda_sealing_slot_add(void);
/* soda_sealing_start will not be called, or has failed: none of them, and their credits back. */
void soda_sealing_slots_remove(void);
/* How many places a buffer of `limit` chunks should have: a sixteenth of them, within limits. */
int64_t soda_sealing_slots_of(int64_t limit);
/* The buffer has `limit` chunks: have as many places as it should, as far as credits are there. */
void soda_sealing_fit(int64_t limit);

#endif
