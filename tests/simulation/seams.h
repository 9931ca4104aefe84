/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of the C library that the simulated programs call and that would wait, tell the
 * time, or touch what several processes share.  seams.syms gives each program's calls of them to
 * the functions of the same name with sim_ before it.
 */
#ifndef SODA_SIM_SEAMS_H
#define SODA_SIM_SEAMS_H

#include "fibers.h"

/* Descriptors of the simulation: numbers that the kernel does not give. */
enum { SIM_FD = 1 << 20 };

/* ready: what of poll(2)'s events there is now. */
int sim_fd_new(enum sim_process p, short (*ready)(void *arg), void *arg);
void sim_fd_close(int fd);
/* Something may be ready that was not. */
void sim_fd_changed(void);
/* The process is gone, and so are its descriptors. */
void sim_fd_kill(enum sim_process p);

/* Of 1,000 allocations of the process, and of 1,000 descriptors that it wants, how many fail. */
void sim_starve(enum sim_process p, unsigned memory, unsigned descriptors);
bool sim_lacks_descriptor(void);

#endif
