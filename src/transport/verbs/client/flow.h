/* SPDX-License-Identifier: BSD-3-Clause */
/* The data of one streamed call at a time: keys to it, for the length of the call. */
#ifndef SODA_VERBS_FLOW_H
#define SODA_VERBS_FLOW_H

#include "transport/verbs/link/link.h"

struct soda_verbs_flow {
	struct ibv_mr *mrs[SODA_WIRE_FLOW_PARTS];
	unsigned mrs_n;
	int fd; /* where there is `copies` */
	uint8_t *copies;
	struct ibv_mr *mr;
};

/*
 * Make what `out` has readable by the peer, until release. 0; -EFAULT: some of it is not there;
 * -ENOMEM and other errors: the device takes no more.
 */
int soda_verbs_flow_expose(struct soda_verbs_flow *f, struct ibv_pd *pd, struct soda_outflow *out,
			   struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS], uint32_t *n_p);
/* The call has been answered. */
void soda_verbs_flow_release(struct soda_verbs_flow *f);
/* The connection has ended. */
void soda_verbs_flow_end(struct soda_verbs_flow *f);

#endif
