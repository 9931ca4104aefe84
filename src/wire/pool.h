/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA_MSG_POOL, on a control connection: a program and a member of its pool tell each other, when
 * they meet and again and again from then on, what the other one has to know.  The answer is not a
 * part of the welcome, because that has one length for all versions, and because it changes.
 *
 * A server that does not know the call answers SODA_ST_PROTO, and stays a member: it has no failure
 * domain, and is not drained.  A longer request or answer is one of a later version, whose first
 * part is as here; what follows is not looked at.
 */
#ifndef SODA_WIRE_POOL_H
#define SODA_WIRE_POOL_H

#include <stdbool.h>

#include "wire/wire.h"

#define SODA_WIRE_DOMAIN_MAX 63u

/* What a program says of its pool. Numbers are statistics: the server shows them. */
struct soda_wire_tell {
	uint64_t program;	    /* random, and the same at all members; 0: a tool */
	uint32_t members;	    /* servers that the program's list has */
	uint32_t slabs, missing;    /* slabs; of them, with fewer copies than they should have */
	uint32_t here;		    /* slabs that this server has a copy of */
	uint64_t expelled, rebuilt; /* copies given up, and made anew, since the start */
	uint64_t rebuilt_bytes;
};
#define SODA_WIRE_TELL_BYTES 48u

/* What a server says of itself. */
struct soda_wire_member {
	uint64_t capacity, free_bytes;
	uint32_t flags;			       /* none yet */
	char domain[SODA_WIRE_DOMAIN_MAX + 1]; /* "": it is one of its own */
};
#define SODA_WIRE_MEMBER_BYTES 84u /* zeros behind the name */

/* A failure domain's name: 1 to SODA_WIRE_DOMAIN_MAX of A-Z a-z 0-9 . _ - : */
bool soda_wire_domain_ok(const char *name);

/* Encoders write exactly the named number of bytes; decoders return 0, or -EPROTO: too short, or
 * a name that cannot be. */
void soda_wire_put_tell(uint8_t out[SODA_WIRE_TELL_BYTES], const struct soda_wire_tell *t);
int soda_wire_get_tell(const void *in, size_t bytes, struct soda_wire_tell *t);
void soda_wire_put_member(uint8_t out[SODA_WIRE_MEMBER_BYTES], const struct soda_wire_member *m);
int soda_wire_get_member(const void *in, size_t bytes, struct soda_wire_member *m);

#endif
