/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs, the side that connects: control connections (control.c), data connections (data.c). */
#ifndef SODA_VERBS_CLIENT_H
#define SODA_VERBS_CLIENT_H

#include "transport/verbs/link/link.h"

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

#endif
