/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Huge pages that a client on the same machine has taken from under the server.
 *
 * Whoever shares a memfd that may be written to can punch a hole in it; no seal forbids one without
 * the other.  A touch of the hole takes a new page.  Where pages come from a pool, the pool may be
 * empty: the touch is a SIGBUS, and would be the server's end.  So the server puts zeros there,
 * which the client has asked for by punching, in ordinary memory that the client does not see,
 * and goes on.  System calls on the hole fail with EFAULT, which ends that connection or SYNC.
 */
#ifndef SODA_MEM_SERVER_PUNCHED_H
#define SODA_MEM_SERVER_PUNCHED_H

#include <stddef.h>

/*
 * A mapping of whole, aligned 2 MiB whose holes are filled from now on.  The first call handles
 * SIGBUS for the process; of other addresses, and of memory that has broken, it stays what it was.
 * 0; -ENOMEM: there are too many.
 */
int soda_punched_watch(void *map, size_t bytes);
/* Before it is unmapped. What is not watched is ignored. */
void soda_punched_forget(const void *map);

#endif
