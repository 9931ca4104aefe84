/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory whose descriptor local clients have got.  They can keep it when the region is closed, and
 * the memory is there as long as they do: so it stays charged until it is known to be gone.
 *
 * How that is known: inotify watches the memfd's inode.  When the last descriptor, mapping or
 * O_PATH reference is gone, of whatever process, the kernel drops the inode and says that the watch
 * has ended (IN_IGNORED).
 *
 *   created -> handed out (watched) -> destroyed: unmapped and closed here -> gone: refunded
 */
#ifndef SODA_MEM_SERVER_HANDED_H
#define SODA_MEM_SERVER_HANDED_H

#include "mem_server/store/store.h"

/*
 * From now on memory that is handed out is watched; before start.  -ENOTSUP or another errno: the
 * kernel does not tell; what is destroyed is refunded at once then.
 */
int soda_store_watch(struct soda_store *store);

/*
 * The descriptor is about to leave the server; any number of times, any thread.  0; -ENOMEM, why:
 * the kernel's limit of watches, or clients keep too much already.
 */
int soda_memory_hand_out(struct soda_store *store, struct soda_memory *memory,
			 struct soda_why *why);

/*
 * For store.c.  It is unmapped and closed: refund its cost, to the account as well if there is
 * one, now or when it is gone.  handed NULL: it never left.
 */
void soda_handed_end(struct soda_store *store, struct soda_handed *handed, uint64_t cost,
		     struct soda_account *account);
/* Refund what has gone; the store's lock is held. */
void soda_handed_settle_locked(struct soda_store *store);
/* The account goes: nothing is refunded to it from now on. */
void soda_account_forget(struct soda_store *store, struct soda_account *account);
/*
 * Somebody may just be about to let go of what was destroyed: wait for the next refund, not longer
 * than SODA_SERVER_LEAVING_MS after the last destruction.  refunds: soda_store_refunds() of before
 * the caller saw that there is too little; any thread.  Whether there has been one since.
 */
bool soda_handed_await(struct soda_store *store, uint64_t refunds);

#endif
