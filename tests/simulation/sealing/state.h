/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory of an agent's --seal-state, which is a tmpfs: it stays when the agent is killed. */
#ifndef SODA_SIM_STATE_H
#define SODA_SIM_STATE_H

#include <stdbool.h>

/* Its name to the agent, and its descriptor. */
#define SIM_STATE "sim-seal-state"
enum { SIM_STATE_FD = 1 << 22 };

/* openat(2), unlinkat(2) and so on, of a file in it. */
int sim_state_open(const char *name, int flags);
int sim_state_unlink(const char *name);
bool sim_state_has(const char *name);
/* It is a descriptor of such a file. */
bool sim_state_owns(int fd);
/* How many files there are. */
unsigned sim_state_files(void);

#endif
