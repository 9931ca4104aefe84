/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory whose descriptor the server has handed out to local clients.  A client can keep the
 * descriptor when the region is closed, and then the memory stays in use; so it stays charged until
 * no process has it any more.
 *
 * inotify tells that: it watches the memfd's inode, and when the last descriptor, mapping or
 * O_PATH reference of any process is gone, the kernel drops the inode and reports the end of the
 * watch (IN_IGNORED).
 *
 *   created -> handed out (watched) -> destroyed: unmapped and closed here -> gone: refunded
 */
#ifndef SODA_MEM_SERVER_HANDED_H
#define SODA_MEM_SERVER_HANDED_H

#include "mem_server/store/store.h"

/*
 * Watch memory that is handed out from now on; called before start.  0; -ENOTSUP or another errno:
 * the kernel does not report the end of a memfd; then memory is refunded as soon as it is
 * destroyed.
 */
int soda_store_watch(struct soda_store *store);

/*
 * To be called before the descriptor is sent to a client; any number of times, any thread. holder:
 * whose it is.  0; -ENOMEM, why: the kernel's limit of watches, or clients keep too many closed
 * regions' memory already: those of one tenant never so many that another one lacks what is kept
 * for it of SODA_KEPT_MAX (base/shares.h).
 */
int soda_memory_hand_out(struct soda_store *store, struct soda_memory *memory,
			 struct soda_holder holder, struct soda_why *why);

/*
 * For store.c.  The memory is unmapped and closed: refund its cost to the store, and to the account
 * if that is not NULL, now or when no process has the memory any more.  handed NULL: it was never
 * handed out.
 */
void soda_handed_end(struct soda_store *store, struct soda_handed *handed, uint64_t cost,
		     struct soda_account *account);
/* Refund memory that no process has any more. The store's lock is held. */
void soda_handed_settle_locked(struct soda_store *store);
/* The account is about to be freed: nothing is refunded to it any more. */
void soda_account_forget(struct soda_store *store, struct soda_account *account);
/*
 * Wait for the next refund, because a client may be about to close descriptors of destroyed memory;
 * not longer than SODA_SERVER_LEAVING_MS after the last memory was destroyed.  refunds: what
 * soda_store_refunds() was before the caller found that too little is free.  True: there has been a
 * refund since.  Any thread.
 */
bool soda_handed_await(struct soda_store *store, uint64_t refunds);

#endif
