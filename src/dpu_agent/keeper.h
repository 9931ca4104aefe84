/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keeper: a thread that sees to sessions whose upstream has failed and to those
 * that no client is connected to.  What a client left behind, acknowledged, is
 * brought to the server, over new connections if need be; then the session ends.
 */
#ifndef SODA_DPU_AGENT_KEEPER_H
#define SODA_DPU_AGENT_KEEPER_H

#include <stdint.h>

struct soda_dpu;

/* 0, negative errno. */
int soda_keeper_start(struct soda_dpu *dpu);
/*
 * No client connects any more: wait until all sessions have ended, at most patience_ms;
 * the others lose what they have.  Ends the thread.
 */
void soda_keeper_stop(struct soda_dpu *dpu, uint32_t patience_ms);

#endif
