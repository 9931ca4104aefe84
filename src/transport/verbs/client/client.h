/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs, the side that connects: HELLO, and its proof (introduce.c), control connections
 * (control.c), data connections (data.c), what streamed calls make readable (flow.c). */
#ifndef SODA_VERBS_CLIENT_H
#define SODA_VERBS_CLIENT_H

#include "transport/verbs/link/link.h"

/*
 * Introduce oneself on a link that is prepared; as, client_key, token: of the options.  Errors as
 * soda_conn_connect.
 */
int soda_verbs_introduce(struct soda_verbs_link *l, const char *rest,
			 const struct soda_wire_hello *hello, const struct soda_identity *as,
			 uint8_t *client_key, const uint8_t *token, uint64_t deadline_ns,
			 struct soda_wire_welcome *welcome_p,
			 struct soda_wire_two_sided *two_sided_p, struct soda_why *why);

/* Connect, and own the link, also on failure.  Errors of soda_conn_connect. */
int soda_verbs_control_create(struct soda_verbs_link *l, const char *rest,
			      const struct soda_wire_hello *hello,
			      const struct soda_conn_options *opt, uint64_t deadline_ns,
			      struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			      struct soda_why *why);
int soda_verbs_data_create(struct soda_verbs_link *l, const char *rest,
			   const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			   uint64_t deadline_ns, struct soda_conn **conn_p,
			   struct soda_wire_welcome *welcome_p, struct soda_why *why);

/* The data of one streamed call at a time: keys to it, for the length of the call. */
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
