/* SPDX-License-Identifier: BSD-3-Clause */
/* What machine this is, for results. */
#ifndef SODA_TOOL_MACHINE_H
#define SODA_TOOL_MACHINE_H

#include <jansson.h>

/* A new reference: cpu, kernel, architecture, processors, memory_bytes, soda, date. */
json_t *soda_machine_describe(void);

#endif
