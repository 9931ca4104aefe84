/* SPDX-License-Identifier: BSD-3-Clause */
/* What the runtime's own tables take, the kernel's page tables apart. */
#ifndef SODA_HOST_METADATA_H
#define SODA_HOST_METADATA_H

#include <stdint.h>

/* Touched pages of the chunk table, thread contexts, object records. */
uint64_t soda_metadata_bytes(void);

#endif
