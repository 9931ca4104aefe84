/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files that only their owner reads, with keys in them, which programs open by name.  Each is a
 * memfd of the kernel's: whoever has one open reads on in that when another takes its place.
 */
#ifndef SODA_SIM_PRIVATE_H
#define SODA_SIM_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* In the place of the one of this name, or none. The name begins with '/'. */
void sim_private_put(const char *path, const char *text, size_t bytes);
bool sim_private_owns(const char *path);
/* open(2) and stat(2) of one that is owned. */
int sim_private_open(const char *path);
int sim_private_stat(const char *path, struct stat *st);
/* By which name it can be opened where system calls do not lead here. */
const char *sim_private_name(const char *path, char out[32]);

#endif
