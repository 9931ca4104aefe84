/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_PSS_H
#define LIGRA_PSS_H

#include <stdint.h>

/* Anonymous plus shared memory of this process now (smaps Pss); 0 where the kernel does not say. */
uint64_t pss_bytes(void);

#endif
