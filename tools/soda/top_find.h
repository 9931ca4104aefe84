/* SPDX-License-Identifier: BSD-3-Clause */
/* Whom to look at when nobody was named. */
#ifndef SODA_TOP_FIND_H
#define SODA_TOP_FIND_H

/*
 * Programs of this machine that use SODA, and what SODA_SERVER and SODA_DPU name; at most max
 * names, each to be freed. Returns how many.
 */
int soda_top_find(char **names, int max);

#endif
