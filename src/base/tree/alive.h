/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which program runs in a process, so that what it held can be told from what another one holds
 * that has its process id since, by a fork or by an exec.  After proc(5), of one line in /proc.
 */
#ifndef SODA_BASE_ALIVE_H
#define SODA_BASE_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The calling process: its id, as the /proc that it sees has it, in the high 32 bits; in the low
 * ones a mark of the program that runs in it: of when the process started, and of where its stack
 * is, which an exec changes. Never 0, but where there is no /proc: 0.
 */
uint64_t soda_alive_self(void);

/*
 * Whether that program may still have memory: false only where its process has ended, be it that
 * nobody has waited for it yet, or runs another program. What cannot be read counts as alive.
 */
bool soda_alive(uint64_t who);

static inline int32_t soda_alive_pid(uint64_t who)
{
	return (int32_t)(who >> 32);
}

#endif
