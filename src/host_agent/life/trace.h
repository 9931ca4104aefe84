/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA_TRACE: writes down in which order chunks became resident and were first
 * stored to (base/page_trace.h).  Its table of page operations stands in front of the real one and
 * passes each call on, so that the path of a fault does not know of it.
 */
#ifndef SODA_HOST_TRACE_H
#define SODA_HOST_TRACE_H

#include <stdint.h>

#include "host_agent/core/page_ops.h"
#include "transport/api/transport.h"

/*
 * Make the file, of at most `bytes`; from now on every call of *ops_p is written
 * down and passed on.  No object exists yet.  -EEXIST (somebody may be writing to
 * it), -ENOSPC and other errors of making a file; why says which.
 */
int soda_trace_start(const char *path, uint64_t bytes, const struct soda_page_ops **ops_p,
		     struct soda_why *why);
/* Cut the file to what was written; what other threads still do is not in it. */
void soda_trace_stop(void);
/* In a fork's child: close the descriptor, nothing else. */
void soda_trace_forget(void);

#endif
