/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA_MSG_POOL, on a control connection: a program and a member of its pool tell each other, when
 * they meet and again and again from then on, what the other one has to know.  The answer is not a
 * part of the welcome, because that has one length for all versions, and because it changes.
 *
 * An agent passes what a program says on to the member that the connection is for, and its answer
 * back.
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

/*
 * What the operator wants of the server: that it becomes empty, or that it stays; or that for the
 * next SODA_POOL_SPREAD_MS what it has may move to servers that have more free.
 */
enum soda_wire_pool_ask {
	SODA_WIRE_POOL_TELL = 0,
	SODA_WIRE_POOL_DRAIN = 1,
	SODA_WIRE_POOL_KEEP = 2,
	SODA_WIRE_POOL_SPREAD = 3,
	/* No operator's: what a READ_ONLY file has.  A soda_wire_open, with its name, follows the
	   soda_wire_tell, of which only `ask` counts, and a soda_wire_content the answer. */
	SODA_WIRE_POOL_CONTENT = 4,
	/*
	 * Of an agent alone: the answer is the list of the servers that it stands in front of, as
	 * text with commas between, not terminated; nothing, if it is one server.  A client without
	 * pages may ask, too.
	 */
	SODA_WIRE_POOL_MEMBERS = 5,
};

/* Why slabs of a program stay on a server that is drained. */
enum soda_wire_held {
	SODA_WIRE_HELD_NOT = 0,	 /* they do not: they are moved, or there are none */
	SODA_WIRE_HELD_ROOM = 1, /* no other server may, or can, take one of them */
	/* 2 and 3 were of versions in which sealed slabs, and pieces of erasure codes, stayed */
	/* files that are written, or that no other server has, and published objects */
	SODA_WIRE_HELD_FILE = 4,
};

/* What a program says of its pool. Numbers are statistics: the server shows them. */
struct soda_wire_tell {
	uint64_t program;	    /* random, and the same at all members; 0: a tool */
	uint32_t members;	    /* servers that the program's list has */
	uint32_t slabs, missing;    /* slabs; of them, with fewer copies than they should have */
	uint32_t here;		    /* slabs that this server has a copy of */
	uint64_t expelled, rebuilt; /* copies given up, and made anew, since the start */
	uint64_t moved;		    /* copies moved from servers that are drained, or to balance */
	uint64_t rebuilt_bytes;	    /* what was copied for both */
	uint32_t ask, held;	    /* enum soda_wire_pool_ask, soda_wire_held */
};
#define SODA_WIRE_TELL_BYTES 64u

/* flags of a member */
#define SODA_WIRE_MEMBER_DRAINS 1u  /* it takes nothing new, and what it has shall move away */
#define SODA_WIRE_MEMBER_SPREADS 2u /* what it has may move to who has more free */

/* What a server says of itself. */
struct soda_wire_member {
	uint64_t capacity, free_bytes;
	uint32_t flags;			       /* SODA_WIRE_MEMBER_... */
	char domain[SODA_WIRE_DOMAIN_MAX + 1]; /* "": it is one of its own */
};
#define SODA_WIRE_MEMBER_BYTES 84u /* zeros behind the name */

/*
 * What a file has: of the open region region_id of a READ_ONLY file, as it lies in memory; or,
 * region_id 0, of the file of that name, as an OPEN of it would find it.  `bytes` are the first
 * ones that count, 0: all.  Two files are the same content when file_bytes and hash are.
 */
enum soda_wire_content_state {
	SODA_WIRE_CONTENT_KNOWN = 1,
	SODA_WIRE_CONTENT_COMPUTING = 2, /* hash and file_bytes are 0: ask again later */
};
enum soda_wire_content_kind { SODA_WIRE_CONTENT_SHA256 = 1 };

#define SODA_WIRE_HASH_BYTES 32u
struct soda_wire_content {
	uint32_t state, kind; /* enum soda_wire_content_state, soda_wire_content_kind */
	uint64_t file_bytes;  /* of the whole file */
	uint8_t hash[SODA_WIRE_HASH_BYTES];
};
#define SODA_WIRE_CONTENT_BYTES 48u

/* A failure domain's name: 1 to SODA_WIRE_DOMAIN_MAX of A-Z a-z 0-9 . _ - : */
bool soda_wire_domain_ok(const char *name);

/* Encoders write exactly the named number of bytes; decoders return 0, or -EPROTO: too short, or
 * a name, an ask, a state or a kind that cannot be. */
void soda_wire_put_tell(uint8_t out[SODA_WIRE_TELL_BYTES], const struct soda_wire_tell *t);
int soda_wire_get_tell(const void *in, size_t bytes, struct soda_wire_tell *t);
void soda_wire_put_member(uint8_t out[SODA_WIRE_MEMBER_BYTES], const struct soda_wire_member *m);
int soda_wire_get_member(const void *in, size_t bytes, struct soda_wire_member *m);
void soda_wire_put_content(uint8_t out[SODA_WIRE_CONTENT_BYTES], const struct soda_wire_content *c);
int soda_wire_get_content(const void *in, size_t bytes, struct soda_wire_content *c);

#endif
