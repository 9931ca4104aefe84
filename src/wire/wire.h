/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between agents: layouts, limits, and the functions that encode,
 * decode and validate them.  Little-endian, packed, no padding.
 *
 * Data plane, on byte streams:
 *
 *   request   frame(8)  imm | length | 0   READ  body = Table I read  (24 bytes)
 *                                          WRITE body = Table I write (12 bytes) + data
 *   reply     frame(8)  imm | length | 0   body = tag (8 bytes) + data
 *
 * Zeros behind the frame bring each message's part before the data to 64 bytes, so
 * that data keeps its alignment on its way through socket buffers: the same copy, 16
 * bytes off, took twice as long (rep movsb, own measurement, Zen 4).
 *
 * A READ with the flag SODA_WIRE_RESIDENCY carries a soda_wire_residency: on streams in the first
 * of the zeros, in messages behind the body.
 *
 * `imm` is what travels as immediate data on RDMA: type in bits 0-7, flags in
 * 8-15, status (enum soda_status) in 16-31.  `length` counts the bytes of the
 * body.  A reply's tag is the read's dest_addr, or the write's first eight bytes
 * (region and page offset: at most one write a chunk is outstanding).  Replies
 * leave in the order of the requests of one connection.
 *
 * Control plane: the same frame, types from SODA_MSG_HELLO on, bodies below; one
 * request outstanding a connection.  Table I: Wahlgren et al., SBAC-PAD 2024.
 */
#ifndef SODA_WIRE_WIRE_H
#define SODA_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SODA_WIRE_MAGIC 0x41444f53u /* "SODA" */
#define SODA_WIRE_VERSION 1u
#define SODA_WIRE_VERSION_PROVED 2u /* a HELLO that a proof follows (wire/proof.h) */
#define SODA_WIRE_PAGE 4096u
#define SODA_WIRE_MAX_DATA (4u << 20)	  /* largest READ or WRITE */
#define SODA_WIRE_MAX_CONTROL (64u << 10) /* largest control body */
#define SODA_WIRE_MAX_STREAM (8u << 20)	  /* largest streamed call, with its data */
#define SODA_WIRE_FLOW_END_BYTES 64u	  /* so that the next call's data are aligned again */
#define SODA_WIRE_MAX_NAME 255u
#define SODA_WIRE_FRAME_BYTES 8u
#define SODA_WIRE_TAG_BYTES 8u
#define SODA_WIRE_HEAD_BYTES 64u /* frame, zeros, and body without data */
#define SODA_WIRE_READ_BYTES 24u
#define SODA_WIRE_WRITE_BYTES 12u

enum soda_msg {
	SODA_MSG_READ = 1,
	SODA_MSG_WRITE = 2,
	SODA_MSG_READ_REPLY = 3,
	SODA_MSG_WRITE_REPLY = 4,
	SODA_MSG_HELLO = 16,  /* soda_wire_hello -> soda_wire_welcome */
	SODA_MSG_OPEN = 17,   /* soda_wire_open -> soda_wire_opened */
	SODA_MSG_CLOSE = 18,  /* soda_wire_region -> empty */
	SODA_MSG_SYNC = 19,   /* soda_wire_region -> empty, file on stable storage */
	SODA_MSG_STATS = 20,  /* empty -> JSON text */
	SODA_MSG_BYE = 21,    /* empty, or one byte BYE_LATER -> empty; the client leaves: free all
				 it has now, or when its last connection ends */
	SODA_MSG_PING = 22,   /* anything -> the same: is the peer there, and how far away? */
	SODA_MSG_NAME = 23,   /* soda_wire_name -> empty, or one byte: advice on the whole object
				 that the operator's rules give it */
	SODA_MSG_ADVISE = 25, /* soda_wire_advise -> empty, or soda_wire_advised and a memfd, or,
				 on transports with keys, a soda_wire_key; by agents only */
	SODA_MSG_LIST = 24, /* soda_wire_region -> soda_wire_listed ..., in the order of their ids,
			       from that id on and as many as there is room for; an agent answers
			       with what its server says */
	SODA_MSG_WRITTEN = 26, /* empty -> soda_wire_written; by agents only */
	SODA_MSG_KEY = 27,     /* soda_wire_region -> soda_wire_key: of a region that is open;
				  transports with keys add one to the answer of an OPEN, too */
	SODA_MSG_DISCARD = 28, /* soda_wire_discard -> empty; the range reads as zeros */
	SODA_MSG_STORE = 29,   /* soda_wire_store -> soda_wire_stored and a memfd; by agents only */
	SODA_MSG_PUBLISH =
		30,	    /* region_id 16, then a name -> soda_wire_opened: the anonymous region
			       changes no more, and is opened by that name (docs/internals/
			       published.md); asked again it is answered as before */
	SODA_MSG_POOL = 31, /* soda_wire_tell -> soda_wire_member (wire/pool.h); an agent passes it
			       on, but for what it is asked itself */
	SODA_MSG_OK = 32,   /* reply of any control request */
	SODA_MSG_REFUSED = 33, /* reply: status in imm, body = reason, a sentence, not terminated */
	SODA_MSG_ASK = 34,     /* behind a HELLO of version 2, and so the next (wire/proof.h) */
	SODA_MSG_CHALLENGE = 35,
	SODA_MSG_PROOF = 36,
	SODA_MSG_SERVICES = 64, /* this one and those up to 254: of further services of a DPU agent;
				   a peer that does not know such a type says so, and goes on */
	SODA_MSG_TOKEN = 255,	/* the number of the token that the client has (u32; 0: none) ->
				   soda_wire_token (wire/proof.h); where tenants are proved */
};

#define SODA_WIRE_BYE_LATER 1u

/* imm flags */
#define SODA_WIRE_POLLING                                                                          \
	0x01u /* the sender awaits the answer by polling: the server may poll too */
#define SODA_WIRE_RESIDENCY 0x04u /* READ: a soda_wire_residency comes with it */
#define SODA_WIRE_STORED 0x08u	  /* READ, in shared memory: of a chunk of the node's store */
/*
 * WRITE, to an agent in front of a pool: it keeps the data for a while, because the same go to
 * another member next; and a WRITE without data, of those that it has kept: a soda_wire_origin
 * comes in the first of the zeros.  With a soda_wire_code behind it the WRITE is of parity, which
 * the agent computes from what it has kept (SODA_WIRE_AGENT_CODES).  SODA_ST_NOENT: it has them no
 * more, and nothing was done.
 */
#define SODA_WIRE_KEEP 0x20u
#define SODA_WIRE_KEPT 0x40u
/*
 * A call of a service's type on a stream: a body, data, and their status, SODA_WIRE_FLOW_END_BYTES
 * (u32: SODA_ST_OK, or SODA_ST_FAULT: the data are not what the client has; then zeros).
 */
#define SODA_WIRE_STREAMED 0x10u
/*
 * The same by messages of an adapter (verbs): the listening side reads the data where they lie, so
 * the message is a soda_wire_flow, its parts, and the body.
 */
struct soda_wire_flow {
	uint32_t parts;	 /* at most SODA_WIRE_FLOW_PARTS; none where the status is SODA_ST_FAULT */
	uint32_t status; /* as in a stream */
	uint64_t bytes;	 /* of all parts, or that there would have been; > 0 */
};
#define SODA_WIRE_FLOW_BYTES 16u
struct soda_wire_flow_part {
	uint64_t at;
	uint32_t bytes, rkey;
};
#define SODA_WIRE_FLOW_PART_BYTES 16u
#define SODA_WIRE_FLOW_PARTS 128u

/* Status on the wire; fixed numbers, because errno values differ between systems. */
enum soda_status {
	SODA_ST_OK = 0,
	SODA_ST_INVALID = 1,   /* EINVAL */
	SODA_ST_NOSPC = 2,     /* ENOSPC */
	SODA_ST_NOENT = 3,     /* ENOENT */
	SODA_ST_ACCES = 4,     /* EACCES */
	SODA_ST_BUSY = 5,      /* EBUSY */
	SODA_ST_FBIG = 6,      /* EFBIG */
	SODA_ST_IO = 7,	       /* EIO */
	SODA_ST_PROTO = 8,     /* EPROTO */
	SODA_ST_VERSION = 9,   /* EPROTONOSUPPORT */
	SODA_ST_STALE = 10,    /* ESTALE: unknown client, wrong secret or old epoch */
	SODA_ST_SHUTDOWN = 11, /* ESHUTDOWN: draining */
	SODA_ST_DQUOT = 12,    /* EDQUOT */
	SODA_ST_NOMEM = 13,    /* ENOMEM */
	SODA_ST_NOTSUP = 14,   /* ENOTSUP */
	SODA_ST_PERM = 15,     /* EPERM */
	SODA_ST_EXIST = 16,    /* EEXIST */
	SODA_ST_FAULT = 17,    /* EFAULT */
	SODA_ST_CANCELED = 18, /* ECANCELED */
	SODA_ST_PIPE = 19,     /* EPIPE; in a notice of movement alone */
	SODA_ST_TOOBIG = 20,   /* E2BIG */
	SODA_ST_MAX = 20,
};

/* Both directions; an unknown value maps to EPROTO or SODA_ST_IO. err is positive. */
int soda_status_to_errno(unsigned status);
unsigned soda_status_from_errno(int err);

struct soda_wire_frame {
	uint8_t type;
	uint8_t flags;
	uint16_t status;
	uint32_t length;
};

/* Table I, read: region_id 16, page_offset 48, dest_addr 64, size 32, dest_rkey 32 bits. */
struct soda_wire_read {
	uint16_t region_id;
	uint64_t page_offset; /* 4 KiB pages; 48 bits travel */
	uint64_t dest_addr;   /* request tag on byte streams */
	uint32_t size;	      /* bytes */
	uint32_t dest_rkey;
};

/*
 * What the client will not ask for soon, for an agent that fetches ahead (SODA_WIRE_AGENT_ASKS):
 * bit i of `after` stands for the chunk i + 1 behind the READ's first one, bit i of `before` for
 * the one i + 1 before it; set: the client has it, awaits it, or knows that it is zeros.  A
 * chunk is what the HELLO says.  A hint, true when it was sent.
 */
struct soda_wire_residency {
	uint64_t after, before;
};
#define SODA_WIRE_RESIDENCY_BYTES 16u

/* Table I, write: region_id 16, page_offset 48, size 32 bits, then the data. */
struct soda_wire_write {
	uint16_t region_id;
	uint64_t page_offset;
	uint32_t size;
};

/*
 * Which data a WRITE with SODA_WIRE_KEPT means: those of the last WRITE of the same range, of this
 * region of the same program, which is another client there.  secret: that client's, which shows
 * that the program is the same; with tenants it is 0, and both are one tenant's.
 */
struct soda_wire_origin {
	uint64_t client_id, secret;
	uint16_t region_id;
};
#define SODA_WIRE_ORIGIN_BYTES 18u

/*
 * Of which data a WRITE of a piece of parity is, which does not travel: u8 data_n, u8 parity, u8
 * last, u8 0, and the origin of each of the data_n pieces, in their order, of which the agent has
 * kept a WRITE of the same range.  parity: which row of the code (pool/erasure.h).  last: it need
 * not keep them any longer.
 */
enum { SODA_WIRE_CODE_DATA_MAX = 8, SODA_WIRE_CODE_PARITY_MAX = 2 };
struct soda_wire_code {
	uint8_t data_n, parity;
	bool last;
	struct soda_wire_origin from[SODA_WIRE_CODE_DATA_MAX];
};
#define SODA_WIRE_CODE_HEAD_BYTES 4u
#define SODA_WIRE_CODE_BYTES_MAX                                                                   \
	(SODA_WIRE_CODE_HEAD_BYTES + SODA_WIRE_CODE_DATA_MAX * SODA_WIRE_ORIGIN_BYTES)

enum soda_conn_kind { SODA_CONN_CONTROL = 1, SODA_CONN_DATA = 2 };

struct soda_wire_hello {
	uint32_t magic, version;
	uint32_t kind;		/* enum soda_conn_kind */
	uint32_t features;	/* SODA_FEATURE_... */
	uint32_t chunk_bytes;	/* the client's; 0 for tools that only ask for statistics */
	uint32_t uid, gid, pid; /* as claimed; on UNIX sockets the kernel's word counts */
	uint64_t client_id;	/* 0: a new client (control connections only) */
	uint64_t secret;	/* proves a client id; from the welcome; 0 in version 2 */
	uint64_t epoch;		/* counts a client's reconnections from 1; a control HELLO with a
				   higher epoch closes and drains all of the older ones; a data
				   HELLO must carry the current one */
};
#define SODA_WIRE_HELLO_BYTES 56u

/*
 * On UNIX sockets: READ and WRITE may travel through a queue in shared memory, which
 * comes with the answer (transport/shm_queue.h).  A descriptor that comes with the
 * HELLO is the client's userfaultfd.
 */
#define SODA_FEATURE_QUEUE 1u
/* verbs, a data connection to a two-sided peer: it asks nothing, it reads by keys. */
#define SODA_FEATURE_KEYED 2u
/* A data connection: all that it carries of objects is sealed by the client, or was. */
#define SODA_FEATURE_SEALED 4u
/*
 * A control HELLO of version 2 that names a client, whose key the sender does not have: in place of
 * the session mac its PROOF shows the client's token (trust/token.h).
 */
#define SODA_FEATURE_TOKEN 8u
/*
 * A control HELLO that an agent has passed on: that one seals what the client stores, so what the
 * server has of it as sealed is none of the next agent's affair.
 */
#define SODA_FEATURE_SEALING 16u
/* How many agents the client's HELLO has passed on its way, in these bits; soda_wire_agents(). */
#define SODA_FEATURE_AGENTS_SHIFT 8
#define SODA_FEATURE_AGENTS (0xfu << SODA_FEATURE_AGENTS_SHIFT)

static inline unsigned soda_wire_agents(const struct soda_wire_hello *hello)
{
	return (hello->features & SODA_FEATURE_AGENTS) >> SODA_FEATURE_AGENTS_SHIFT;
}

/*
 * Which member of its pool an agent shall connect the client to, by the member's tag (pool/pool.h);
 * 0: the first one.  Of control connections; a data connection is of the session that it names.
 */
#define SODA_FEATURE_MEMBER_SHIFT 16
#define SODA_FEATURE_MEMBER (0xffffu << SODA_FEATURE_MEMBER_SHIFT)

static inline uint16_t soda_wire_member_tag(const struct soda_wire_hello *hello)
{
	return (uint16_t)(hello->features >> SODA_FEATURE_MEMBER_SHIFT);
}

struct soda_wire_welcome {
	uint32_t version;
	uint32_t max_data;    /* largest READ or WRITE the server takes */
	uint64_t instance_id; /* random at the server's start */
	uint64_t client_id;
	uint64_t secret;
	uint64_t capacity, free_bytes;
	uint32_t known; /* 1: client_id was known and its regions are intact */
	uint32_t agent; /* 0: the server itself; else an agent between, random at its start, and
			   another number once it has lost WRITEs of this client that it had
			   acknowledged */
};
/*
 * Bit of the agent's number: it answers WRITEs before the server has them.  If it is
 * another agent than before, those that no SYNC followed may never have come there.
 */
#define SODA_WIRE_AGENT_EARLY 1u
/*
 * Another one: it fetches ahead, and READs with a soda_wire_residency spare it what is not needed.
 */
#define SODA_WIRE_AGENT_ASKS 2u
/* A third one: it has a store, which programs on its machine may join (SODA_MSG_STORE). */
#define SODA_WIRE_AGENT_STORES 4u
/*
 * A fourth one: it stands in front of a pool of memory servers, which it names when it is asked
 * (SODA_WIRE_POOL_MEMBERS), and a client of which has a session for each (soda_wire_member_tag()).
 * An agent of an older release may have the bit by chance, and refuses the question.
 */
#define SODA_WIRE_AGENT_POOL 8u
/* A fifth one: it has tokens for its clients (SODA_MSG_TOKEN). */
#define SODA_WIRE_AGENT_TOKENS 16u
/* A sixth one: it computes parity from the WRITEs that it keeps (SODA_WIRE_KEPT). */
#define SODA_WIRE_AGENT_CODES 32u
#define SODA_WIRE_AGENT_FLAGS                                                                      \
	(SODA_WIRE_AGENT_EARLY | SODA_WIRE_AGENT_ASKS | SODA_WIRE_AGENT_STORES |                   \
	 SODA_WIRE_AGENT_POOL | SODA_WIRE_AGENT_TOKENS | SODA_WIRE_AGENT_CODES)
#define SODA_WIRE_WELCOME_BYTES 56u

/* Flags of a region: how a file is opened, 0: anonymous memory. */
#define SODA_WIRE_READ_ONLY 0x1u
#define SODA_WIRE_WRITABLE 0x2u /* one client; the file changes on SODA_MSG_SYNC */
#define SODA_WIRE_PRIVATE 0x4u	/* a writable copy, the file unchanged */
#define SODA_WIRE_CREATE 0x8u	/* with WRITABLE: make the file if there is none */
#define SODA_WIRE_PUBLISHED                                                                        \
	0x10u /* with READ_ONLY: the name is one of SODA_MSG_PUBLISH; bytes is not looked at */

/*
 * Anonymous memory, of which the server has ciphertext that a DPU agent has made: by LIST the next
 * agent learns that, and that without the keys it is not to be used.  With WRITABLE or READ_ONLY: a
 * sealed file (sealed_file.h); the region is all of it, `bytes` its size with header and table, and
 * SYNC changes all that it changes or nothing; CLOSE writes nothing back.
 */
#define SODA_WIRE_SEALED 0x20u
/*
 * With SEALED, of a file: a DPU agent seals it, and not its program, which knows nothing of header
 * and table.  LIST has both flags of such a file, and neither of one that its program seals.  Alone
 * in the question for a content (pool.h): if the file is sealed, of all of it.
 */
#define SODA_WIRE_SEALED_BY_AGENT 0x40u

/*
 * SODA_MSG_OPEN; flags as above; followed by the file name.  mark: a random number of the client's,
 * for each object with a WRITABLE file: the server leaves it with the file.  again: the client has
 * had the object before; ESTALE if another one has had the file to write since, so that its mark is
 * there, or the file has changed otherwise.  A mark of 0 does not travel.
 */
struct soda_wire_open {
	uint16_t region_id; /* the client chooses; EBUSY if it is in use */
	uint16_t name_bytes;
	uint32_t flags;
	uint64_t bytes;
	uint64_t mark;
	uint64_t again; /* 0 or 1 */
};
#define SODA_WIRE_OPEN_BYTES 16u
#define SODA_WIRE_OPEN_MARK_BYTES 16u
#define SODA_WIRE_OPEN_MARKED_BYTES (SODA_WIRE_OPEN_BYTES + SODA_WIRE_OPEN_MARK_BYTES)

struct soda_wire_opened {
	uint64_t bytes; /* the object's size; backing is rounded up to whole 2 MiB */
	uint64_t
		file_id; /* 0 for anonymous; another one when the file is another, or has changed */
	uint64_t generation; /* of the file's contents as loaded */
};
#define SODA_WIRE_OPENED_BYTES 24u

/* verbs: how the memory of a region, or of a part of it, is reached. */
struct soda_wire_key {
	uint32_t rkey;
	uint64_t dirty_at; /* where its dirty map begins (transport_impl.h); 0: none */
};
#define SODA_WIRE_KEY_BYTES 12u

/*
 * verbs, behind the welcome of a two-sided peer: a request is one SEND with immediate data,
 * `imm`, and the body of the stream format, of at most message_bytes of data and its head; as
 * many as credits at a time.  Answers: a SEND of tag and data; or, SODA_ANSWER_WRITE, of a
 * READ that succeeds a WRITE with immediate data to dest_addr by dest_rkey.
 */
struct soda_wire_two_sided {
	uint32_t message_bytes; /* 0: the peer is one-sided */
	uint8_t credits;
	uint8_t features; /* SODA_TWO_SIDED_...; a client of an older release takes both for more
			     credits than it ever uses */
	uint16_t answer;  /* enum soda_answer_by */
};
#define SODA_WIRE_TWO_SIDED_BYTES 8u
/* It knows SODA_WIRE_KEEP and SODA_WIRE_KEPT, if it is an agent that keeps. */
#define SODA_TWO_SIDED_KEEPS 1u

enum soda_answer_by { SODA_ANSWER_WRITE = 0, SODA_ANSWER_SEND = 1 };

struct soda_wire_region {
	uint16_t region_id;
};
#define SODA_WIRE_REGION_BYTES 2u

/* One open region of the client, in the answer of SODA_MSG_LIST. */
struct soda_wire_listed {
	uint16_t region_id;
	uint32_t flags; /* as in its OPEN, without CREATE */
	uint64_t bytes;
	uint64_t file_id;
	uint64_t generation;
};
#define SODA_WIRE_LISTED_BYTES 32u

/* SODA_MSG_NAME: region_id 16, then the name. */

/* SODA_MSG_ADVISE */
enum soda_wire_advice {
	SODA_WIRE_NORMAL = 0, /* ends STATIC_CACHE of what lies inside, changes nothing else */
	SODA_WIRE_STATIC_CACHE = 8,  /* the agent keeps the range, which changes no more */
	SODA_WIRE_DYNAMIC_CACHE = 9, /* it may cache the region; ends STATIC_CACHE */
	SODA_WIRE_NO_CACHE = 10,     /* it may not; ends STATIC_CACHE, too */
};

struct soda_wire_advise {
	uint16_t region_id;
	uint16_t advice;	/* enum soda_wire_advice */
	uint64_t offset, bytes; /* whole pages of the region */
};
#define SODA_WIRE_ADVISE_BYTES 24u

/* STATIC_CACHE: what of the region the memory that comes with it holds, from its beginning on. */
struct soda_wire_advised {
	uint64_t offset, bytes;
};
#define SODA_WIRE_ADVISED_BYTES 16u

/*
 * SODA_MSG_DISCARD: part of an anonymous region has no content any more, and its memory may go
 * back to the system.  The client has no READ or WRITE of it under way, and begins none before
 * the answer.
 */
struct soda_wire_discard {
	uint16_t region_id;
	uint64_t offset, bytes; /* whole pages of the region */
};
#define SODA_WIRE_DISCARD_BYTES 24u

/*
 * SODA_MSG_WRITTEN: WRITEs of the client are numbered as they come.  All that were answered
 * before the request have numbers below `next`; all below `oldest` are done with: on the
 * server, or replaced by a later one of the same range; or lost, of which there were `lost`.
 */
struct soda_wire_written {
	uint64_t next, oldest, lost;
};
#define SODA_WIRE_WRITTEN_BYTES 24u

/*
 * SODA_MSG_STORE: a client on the agent's machine joins the node's store with a READ_ONLY file, and
 * asks for its memory.  part SODA_WIRE_STORE_MAP joins, and brings the map (store_map.h says what
 * is in it); part i, of a region that has joined, the memfd that holds the i-th GiB of the file.
 * The client leaves with the region's CLOSE, or when the agent ends its session.
 */
struct soda_wire_store {
	uint16_t region_id;
	uint16_t part;
	/*
	 * Behind an agent in front of a pool, of a file that is read from several servers: the
	 * same program's region of another server with the same content, which has joined.  This
	 * region's is the same object, and the same member.  client_id 0: none.
	 */
	struct soda_wire_origin as;
};
#define SODA_WIRE_STORE_BYTES 4u
#define SODA_WIRE_STORE_AS_BYTES (SODA_WIRE_STORE_BYTES + SODA_WIRE_ORIGIN_BYTES)
#define SODA_WIRE_STORE_MAP 0xffffu
#define SODA_WIRE_STORE_PART (1ull << 30) /* bytes of the file in a memfd, fewer in the last */

struct soda_wire_stored {
	uint64_t map_bytes;
	uint32_t chunk_bytes; /* the client's, as its HELLO says */
	uint32_t chunks;      /* of the file, the last one maybe short */
	uint16_t parts;
	uint16_t member; /* whose place in the map is the client's */
};
#define SODA_WIRE_STORED_BYTES 20u

/*
 * Encoders write exactly the named number of bytes.  Decoders check nothing but
 * the layout, and return -EPROTO when `bytes` is not what the layout needs.
 */
void soda_wire_put_frame(uint8_t out[SODA_WIRE_FRAME_BYTES], const struct soda_wire_frame *f);
void soda_wire_get_frame(const uint8_t in[SODA_WIRE_FRAME_BYTES], struct soda_wire_frame *f);
void soda_wire_put_flow_end(uint8_t out[SODA_WIRE_FLOW_END_BYTES], unsigned status);
/* 0; -EPROTO: no status that it may have. */
int soda_wire_get_flow_end(const uint8_t in[SODA_WIRE_FLOW_END_BYTES], unsigned *status_p);
void soda_wire_put_flow(uint8_t *out, const struct soda_wire_flow *f);
/*
 * Of a message of so many bytes, with its parts; *body_p: where the body begins.  -EPROTO: lengths
 * that do not fit, parts without bytes, or whose sum is another.
 */
int soda_wire_get_flow(const uint8_t *in, size_t bytes, struct soda_wire_flow *f,
		       struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS], size_t *body_p);
void soda_wire_put_flow_part(uint8_t *out, const struct soda_wire_flow_part *p);
void soda_wire_put_read(uint8_t out[SODA_WIRE_READ_BYTES], const struct soda_wire_read *r);
void soda_wire_get_read(const uint8_t in[SODA_WIRE_READ_BYTES], struct soda_wire_read *r);
void soda_wire_put_residency(uint8_t out[SODA_WIRE_RESIDENCY_BYTES],
			     const struct soda_wire_residency *h);
void soda_wire_get_residency(const uint8_t in[SODA_WIRE_RESIDENCY_BYTES],
			     struct soda_wire_residency *h);
void soda_wire_put_write(uint8_t out[SODA_WIRE_WRITE_BYTES], const struct soda_wire_write *w);
void soda_wire_get_write(const uint8_t in[SODA_WIRE_WRITE_BYTES], struct soda_wire_write *w);
void soda_wire_put_origin(uint8_t out[SODA_WIRE_ORIGIN_BYTES], const struct soda_wire_origin *o);
void soda_wire_get_origin(const uint8_t in[SODA_WIRE_ORIGIN_BYTES], struct soda_wire_origin *o);
/* How many bytes it has become. */
uint32_t soda_wire_put_code(uint8_t out[SODA_WIRE_CODE_BYTES_MAX], const struct soda_wire_code *c);
/* Of exactly that many bytes; false: they are no code. */
bool soda_wire_get_code(const uint8_t *in, uint32_t bytes, struct soda_wire_code *c);
void soda_wire_put_hello(uint8_t out[SODA_WIRE_HELLO_BYTES], const struct soda_wire_hello *h);
int soda_wire_get_hello(const void *in, size_t bytes, struct soda_wire_hello *h);
void soda_wire_put_welcome(uint8_t out[SODA_WIRE_WELCOME_BYTES], const struct soda_wire_welcome *w);
int soda_wire_get_welcome(const void *in, size_t bytes, struct soda_wire_welcome *w);
void soda_wire_put_open(uint8_t out[SODA_WIRE_OPEN_BYTES], const struct soda_wire_open *o);
/* With its mark, if it has one.  How many bytes it is. */
size_t soda_wire_put_marked_open(uint8_t out[SODA_WIRE_OPEN_MARKED_BYTES],
				 const struct soda_wire_open *o);
/* *name_p points into `in`, name_bytes long, not terminated. */
int soda_wire_get_open(const void *in, size_t bytes, struct soda_wire_open *o, const char **name_p);
void soda_wire_put_opened(uint8_t out[SODA_WIRE_OPENED_BYTES], const struct soda_wire_opened *o);
int soda_wire_get_opened(const void *in, size_t bytes, struct soda_wire_opened *o);
void soda_wire_put_key(uint8_t out[SODA_WIRE_KEY_BYTES], const struct soda_wire_key *k);
int soda_wire_get_key(const void *in, size_t bytes, struct soda_wire_key *k);
void soda_wire_put_two_sided(uint8_t out[SODA_WIRE_TWO_SIDED_BYTES],
			     const struct soda_wire_two_sided *a);
/* -EPROTO also where a value cannot be; zeros are none. */
int soda_wire_get_two_sided(const void *in, size_t bytes, struct soda_wire_two_sided *a);
void soda_wire_put_listed(uint8_t out[SODA_WIRE_LISTED_BYTES], const struct soda_wire_listed *l);
void soda_wire_get_listed(const uint8_t in[SODA_WIRE_LISTED_BYTES], struct soda_wire_listed *l);

void soda_wire_put_advise(uint8_t out[SODA_WIRE_ADVISE_BYTES], const struct soda_wire_advise *a);
int soda_wire_get_advise(const void *in, size_t bytes, struct soda_wire_advise *a);
void soda_wire_put_advised(uint8_t out[SODA_WIRE_ADVISED_BYTES], const struct soda_wire_advised *a);
int soda_wire_get_advised(const void *in, size_t bytes, struct soda_wire_advised *a);
void soda_wire_put_discard(uint8_t out[SODA_WIRE_DISCARD_BYTES], const struct soda_wire_discard *d);
int soda_wire_get_discard(const void *in, size_t bytes, struct soda_wire_discard *d);
void soda_wire_put_written(uint8_t out[SODA_WIRE_WRITTEN_BYTES], const struct soda_wire_written *w);
int soda_wire_get_written(const void *in, size_t bytes, struct soda_wire_written *w);
/* How many bytes it is. */
size_t soda_wire_put_store(uint8_t out[SODA_WIRE_STORE_AS_BYTES], const struct soda_wire_store *s);
int soda_wire_get_store(const void *in, size_t bytes, struct soda_wire_store *s);
void soda_wire_put_stored(uint8_t out[SODA_WIRE_STORED_BYTES], const struct soda_wire_stored *s);
int soda_wire_get_stored(const void *in, size_t bytes, struct soda_wire_stored *s);

/*
 * Validate a data-plane request against a region of region_bytes bytes: size
 * not 0, at most SODA_WIRE_MAX_DATA, a multiple of the page, and wholly inside
 * the region rounded up to whole pages.  0, -EINVAL or -EPROTO (size).
 */
int soda_wire_check_range(uint64_t page_offset, uint32_t size, uint64_t region_bytes);
/* A DISCARD likewise, of any number of whole pages but 0. 0, -EINVAL. */
int soda_wire_check_discard(const struct soda_wire_discard *d, uint64_t region_bytes);

/* Whether a buffer or a job may have this name: 1 to SODA_WIRE_MAX_NAME printable ASCII, no space.
 */
bool soda_wire_name_ok(const char *name, size_t bytes);

#endif
