/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HOST:PORT to addresses, for those who connect.
 *
 * A name is looked up by a thread of its own, so that a name server that is silent holds up nobody
 * beyond his deadline; what it has answered is kept, and used where it does not answer any more.
 * Each of several addresses gets a part of the time.
 *
 * A name's addresses need not be one server's.  A session that has met its server at one of them
 * (soda_conn_options.place) goes there first, and to another one only as the client that it is: an
 * answer that does not know that client is another server's, and none.  Once the name has the
 * address no more the server counts as moved, and each address will do.
 */
#ifndef SODA_TRANSPORT_NAMES_H
#define SODA_TRANSPORT_NAMES_H

#include "transport/api/transport_impl.h"

enum { SODA_NAMES_MAX = 16 };

struct soda_names {
	unsigned n; /* 1.. */
	struct soda_place at[SODA_NAMES_MAX];
};

/*
 * The addresses of a host, "" for this one, in the order in which they are to be tried.  0;
 * -ETIMEDOUT: no answer until the deadline, and none before; -EHOSTUNREACH: there is no such name;
 * with a reason.  peer is for why.
 */
int soda_names_find(const char *host, const char *port, const char *peer, uint64_t deadline_ns,
		    struct soda_names *names_p, struct soda_why *why);

/* Connect to one address, and say HELLO. As soda_conn_connect. */
typedef int soda_names_fn(const struct soda_place *at, const char *rest,
			  const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			  uint64_t deadline_ns, struct soda_conn **conn_p,
			  struct soda_wire_welcome *welcome_p, struct soda_why *why);
/* As soda_conn_connect, by fn at one of the addresses of "prefix" HOST:PORT. */
int soda_names_connect(const char *prefix, const char *rest, soda_names_fn *fn,
		       const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		       struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		       struct soda_why *why);

#endif
