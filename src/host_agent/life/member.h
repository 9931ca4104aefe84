/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the program and the members of its pool tell each other (wire/pool.h): each server its
 * failure domain and what it has free, the program what it has there, which the server's
 * statistics show.  With a single server nothing is told.
 */
#ifndef SODA_HOST_MEMBER_H
#define SODA_HOST_MEMBER_H

#include "host_agent/core/link.h"

/*
 * The keeper has met the server, whose control connection nobody else uses yet.  0, also where the
 * server does not know the call; errors of the connection.
 */
int soda_member_meet(struct soda_link *link, struct soda_conn *control, struct soda_why *why);
/*
 * The keeper of a server that is UP: ask it again, if it is time.  A server whose slabs have other
 * copies is not waited for when it is silent: the session is AWAY then.
 */
void soda_member_ask(struct soda_link *link);

#endif
