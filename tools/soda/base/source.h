/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where `soda stat` and `soda top` get counters from: a program of this machine, or a
 * server or agent, whose connection is kept from one answer to the next.
 */
#ifndef SODA_STAT_SOURCE_H
#define SODA_STAT_SOURCE_H

#include <jansson.h>

#include "transport/api/transport.h"

struct soda_stat_source {
	const char *target;	/* borrowed */
	struct soda_conn *conn; /* of a server; NULL: none yet */
};

/* target: a process id, or the address of a server or agent. 0, -EINVAL with the reason in why. */
int soda_stat_open(struct soda_stat_source *source, const char *target, struct soda_why *why);
/*
 * The counters now: a new reference, or NULL with the reason in why.  Waits for at most
 * timeout_ms for each of its steps.  May be tried again after a failure.
 */
json_t *soda_stat_read(struct soda_stat_source *source, int timeout_ms, struct soda_why *why);
void soda_stat_close(struct soda_stat_source *source, int timeout_ms);
/*
 * Open, read once and close: the counters now, a new reference; NULL after a message on stderr that
 * begins with `who`.
 */
json_t *soda_stat_ask(const char *who, const char *target);

/*
 * soda_conn_join_as() whom the environment says (SODA_TENANT, SODA_KEY_FILE, SODA_SERVER_NAME); and
 * errors of soda_identity_load().
 */
int soda_stat_join(const char *address, int timeout_ms, struct soda_conn **conn_p,
		   struct soda_wire_welcome *welcome_p, struct soda_why *why);

/*
 * The counters by a connection that the caller has (soda_stat_join()): a new reference, within
 * timeout_ms. 0; -EPROTO: the answer is not JSON; -ENOMEM; errors of soda_conn_call().
 */
int soda_stat_fetch(struct soda_conn *conn, int timeout_ms, json_t **stats_p, struct soda_why *why);

#endif
