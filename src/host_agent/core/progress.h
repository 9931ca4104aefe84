/* SPDX-License-Identifier: BSD-3-Clause */
/* How write-backs get on, for those who wait for them. Any thread; AS but for the wait. */
#ifndef SODA_HOST_PROGRESS_H
#define SODA_HOST_PROGRESS_H

#include <stdint.h>

void soda_progress_start(void);

/* Something is as it was not before: answers came, a connection was lost. */
void soda_progress_tell(void);
/* Answers came: the server is there and takes data. */
void soda_progress_answered(void);

/* Goes up with each soda_progress_tell and each soda_progress_answered. */
uint32_t soda_progress_seen(void);
/* Wait until soda_progress_seen is not `seen` any more. */
void soda_progress_await(uint32_t seen, int64_t timeout_ns);
/* Goes up with each soda_progress_answered. */
uint32_t soda_progress_answers(void);

#endif
