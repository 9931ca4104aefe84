/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tells threads that wait for write-backs when it pays to look again. Any thread; all but the wait
 * is async-signal-safe.
 */
#ifndef SODA_HOST_PROGRESS_H
#define SODA_HOST_PROGRESS_H

#include <stdint.h>

void soda_progress_start(void);

/* Wake the waiting threads: chunks are not under way any more, or a connection was lost. */
void soda_progress_tell(void);
/* As soda_progress_tell, and WRITEs were answered: the server is there and takes data. */
void soda_progress_answered(void);

/* Goes up with each soda_progress_tell and each soda_progress_answered. */
uint32_t soda_progress_seen(void);
/* Wait until soda_progress_seen() is not `seen` any more, at most timeout_ns. */
void soda_progress_await(uint32_t seen, int64_t timeout_ns);
/* Goes up with each soda_progress_answered. */
uint32_t soda_progress_answers(void);

#endif
