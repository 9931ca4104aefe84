/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_WARM_H
#define LIGRA_WARM_H

#include "graph/format/error.h"

#include <stdint.h>

/*
 * Touch so many bytes and give them back.  The host of a virtual machine has no memory yet behind a
 * page that was never touched, or that it took back: its first touch costs several times a copy,
 * and would be counted against whoever happens to be given the page.  What is freed here is what
 * the kernel hands out next.  0 or -ENOMEM.
 */
int warm_up(uint64_t bytes, struct soda_graph_error *err);

#endif
