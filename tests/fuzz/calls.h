/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A script of what clients ask of a daemon (struct soda_service), without a transport between:
 * HELLOs, every control call well-formed or not, READs and WRITEs, connections that end.  The
 * fixture that a target links has the daemon: the memory server, or the DPU agent.
 *
 *   ops: what 8, then
 *     0      HELLO of a new client: chunk 8
 *     1      HELLO of a known one: whose 8, kind 8, epoch 8, secret 8
 *     2      HELLO as it is: 56 bytes
 *     3      a call as it is: connection 8, type 8, length 16, body
 *     4      OPEN: connection 8, region 8, flags 8, bytes 32, name 8
 *     5      CLOSE, SYNC, KEY, LIST, STATS, WRITTEN, BYE, PING: connection 8, which 8, region 8
 *     6      NAME: connection 8, region 8, length 8, text
 *     7      ADVISE: connection 8, region 8, advice 8, page 16, pages 16
 *     8      DISCARD: connection 8, region 8, page 16, pages 16
 *     9      READs or WRITEs: connection 8, how many 8, region 8, of each: page 16, pages 8, kind 8
 *     10     a connection ends: which 8
 */
#ifndef SODA_TESTS_FUZZ_CALLS_H
#define SODA_TESTS_FUZZ_CALLS_H

#include "fuzz.h"
#include "transport/api/service.h"

/* The fixture's. */
extern const struct soda_service *fuzz_service;
extern void *fuzz_svc;
void fuzz_service_start(void);
/*
 * Before each input, of which a fixture may take its part from the front; and after it, when no
 * connection is left: wait until the clients have gone.
 */
void fuzz_service_begin(struct fuzz_input *in);
void fuzz_service_end(void);

/* The files of the directory that is exported, as they are before each input. */
const char *fuzz_export_dir(void);
void fuzz_export_restore(void);

#endif
