/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parent's side of a fork: what its children may still ask for, as it was at their fork.
 *
 * A child gets the pages that are resident at the fork by the kernel's copy-on-write, as of any
 * memory.  What is not resident then it asks for later (child.h), and a thread of the parent
 * answers (serve.h).  A *view* says for one fork which chunks the child may ask for: all that were
 * neither resident nor known to be zeros.  Until the parent stores to such a chunk, or discards or
 * frees it, its content is what it was at the fork, and is read as any fault reads it.  Before the
 * first such store the content is kept here, once for all views that want it:
 *
 *   not kept --- the parent is about to make a page of it writable: soda_page_ops ---> kept
 *            --- the parent is about to discard or free it: soda_forks_keep() -------> kept
 *            --- no room is left for it: the view is *broken*, the parent says so once,
 *                and the child is refused from then on
 *   kept     --- the last view that wants it ends ---> forgotten
 *
 * A copy serves the views up to the one that was the youngest when it was made, back to the copy
 * before it of the same chunk.
 *
 * The instant of the fork must be the same for all threads.  So each change of pages that a child
 * could miss (pages become writable, pages go) is a *section*; a fork closes a gate, waits until no
 * thread is in a section, and opens the gate once the child is there.  Who waits at the gate for
 * too long, because the fork waits for a lock that it holds, goes on, and the view is broken.
 *
 * Order of locks: soda_regions_lock (held during the fork), any lock of the data path, and
 * SODA_RANK_VIEWS last, which is held for a copy of one chunk in memory.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_VIEWS_H
#define SODA_HOST_VIEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/page_ops.h"

/* Put the sections around these functions.  Once, before the first fault. */
void soda_views_watch(const struct soda_page_ops **ops_p);

/*
 * A fork begins; soda_regions_lock is held.  Closes the gate and makes the view of what is not
 * resident: its number, never 0, with one reader; or 0: there is none (no memory, too many views, a
 * thread that does not leave its section).  In the parent soda_views_forked() opens the gate again,
 * also after a 0.
 */
uint32_t soda_views_fork(void);
void soda_views_forked(void);
/* In the child: no view is there, and nobody waits at the gate or has the lock. */
void soda_views_forget(void);

/* One more process may ask, or one less; the view ends with its last reader. */
void soda_views_join(uint32_t view);
void soda_views_leave(uint32_t view);

/* Whether a living view wants the chunk, and has no copy of it. AS. */
bool soda_views_want(uint32_t id);
/* Keep the chunk's content, if a view wants it. AS. */
void soda_views_keep(uint32_t id, const void *content);
/* Break each view that wants the chunk: its content goes, and could not be read. AS. */
void soda_views_lose(uint32_t id);

/*
 * The bytes of a chunk as of the view.  1: they were kept, and are copied to `to`.  0: they are
 * what the chunk has now.  -EINVAL: the view does not want the chunk; -ENODATA: it is broken.
 */
int soda_views_find(uint32_t view, uint32_t id, uint32_t offset, uint32_t bytes, void *to);

#endif
