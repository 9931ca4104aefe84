/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an agent may ask of a transport, on the side that connects.  The side
 * that listens is in service.h.  An agent never learns which transport it uses.
 *
 *   address  tcp://HOST:PORT        TCP
 *            verbs://HOST:PORT      RDMA: the address is that of an RDMA device
 *            shm:///PATH, shm://@NAME   one machine: UNIX socket (file, abstract)
 *                                   and the region's memory mapped
 *            fault+ADDRESS?k=v&k=v  the decorator of transport/fault/fault.c over any of them
 *
 * A control connection carries calls (RPC), one at a time, and where it is a byte stream also
 * streamed calls, some at a time, with data behind them.  A data connection
 * ("queue pair") carries READs and WRITEs: post, flush, poll.
 *
 *   post_read/post_write   queue a request; nothing travels before flush
 *   flush                  one doorbell for all that was posted
 *   poll                   completions, in the order of the posts
 *
 * A connection that fails stays failed: every later call returns its error, and
 * what was posted and not completed is the caller's to replay on another one.
 *
 * Threads: one caller at a time a connection (the agent's lock).  The data
 * functions marked AS are async-signal-safe: no allocation, no stdio, raw system
 * calls, errno kept.  Errors are 0 or negative errno.
 */
#ifndef SODA_TRANSPORT_H
#define SODA_TRANSPORT_H

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/limits.h"
#include "base/numa/numa_node.h"
#include "wire/wire.h"

struct soda_conn;
struct soda_identity; /* trust/identity.h */

/* Why something failed: a sentence for people. */
struct soda_why {
	char text[256];
};

/* A range of a region whose bytes do not change, an agent's static cache: mapped here, or by key.
 */
struct soda_static_map {
	struct soda_static_map *next;
	uint64_t offset, bytes; /* of the region; whole pages */
	const uint8_t *memory;	/* NULL: READs use rkey instead (verbs) */
	uint32_t rkey;
	_Atomic uint64_t read; /* bytes read from memory since its pages were last given up; the
				  reader's */
};

/*
 * A region as a transport sees it ("memory registration"): made by
 * soda_conn_open_region, passed to post_read and post_write of any data
 * connection of the same client.
 */
struct soda_mr {
	uint64_t bytes;	    /* mapped and readable, whole pages */
	uint8_t *map;	    /* shm: the peer's memory in this process; else NULL */
	uint8_t *dirty_map; /* shm, WRITABLE: a byte a 64 KiB, set by a WRITE; else NULL */
	struct soda_static_map *statics; /* of soda_conn_advise, added by the agent */
	uint64_t dirty_at; /* verbs, WRITABLE: where the peer's dirty map begins; else 0 */
	uint32_t rkey;	   /* verbs */
	bool keyed;	   /* verbs: rkey is valid */
	uint16_t region_id;
	uint16_t writable;
};

/* One finished READ or WRITE. */
struct soda_done {
	uint64_t cookie; /* as posted */
	uint32_t bytes;
	int status;	  /* 0 or negative errno */
	bool installed;	  /* READ: the peer has put the pages into place itself; dest is
			     unchanged */
	bool stored;	  /* READ of soda_conn_post_stored: it is in the store; dest is unchanged */
	const void *data; /* READ, in_place: NULL: the data are at dest; else they lie here,
			     until the next post or poll on the connection, and dest is
			     unchanged */
};

/* An address of a name, as the kernel takes it: a struct sockaddr of so many bytes; 0: none. */
struct soda_place {
	uint32_t bytes;
	_Alignas(8) uint8_t at[128];
};

struct soda_conn_options {
	enum soda_conn_kind kind;
	uint32_t depth; /* data: requests that may be outstanding, 1..1024; 0: 64 */
	bool deep;	/* data: a user with a long queue, off the fault path (write-back) */
	/* control: calls of soda_conn_submit_call() that may be under way, 1..8; 0: 1 */
	unsigned calls;
	int timeout_ms; /* for connecting and the HELLO, in all */
	bool in_place;	/* data: an answer may lie where soda_done.data says */
	/*
	 * data: READs of neighbours into neighbouring memory, flushed together, may travel as one
	 * request where the peer is a memory server itself. They complete one by one all the same.
	 */
	bool merge;
	/*
	 * data: give a peer on this machine a duplicate of our userfaultfd, if it takes one, to
	 * install pages for soda_conn_post_install.
	 */
	bool hand_over;
	int uffd;
	/* data: the caller sends nothing of an object that is not sealed, and asks for nothing */
	bool sealed;
	/*
	 * As whom: a server that cannot prove that it is the one of this identity is refused, and
	 * one that does not ask for our proof.  NULL: nobody proves anything.  It outlives the
	 * connection, and so does the next one.
	 */
	const struct soda_identity *identity;
	/*
	 * With an identity: the client's key, SODA_KEY_BYTES.  Read where the HELLO names a client;
	 * written where a control connection's welcome is a new client's (known is 0), or the
	 * client was adopted.
	 */
	uint8_t *client_key;
	/*
	 * control, with an identity, of a HELLO that names a client: the client's token, of
	 * SODA_WIRE_TOKEN_BYTES, which is shown instead of proving the client's key. NULL: none.
	 */
	const uint8_t *token;
	/*
	 * Where of a name's addresses the server is (transport/stream/names.h): read, and written
	 * where a control connection is made.  NULL: nobody knows.
	 */
	struct soda_place *place;
};

/*
 * Connect and say HELLO.  hello->kind is set from opt.  On success *conn_p is the
 * caller's, to be closed with soda_conn_close, and *welcome_p the server's answer.
 * -EINVAL: not an address (why says what is expected); -ENOTSUP: transport not
 * built, or it cannot prove identities; -EACCES: no proof, or a wrong one, of either side;
 * -ETIMEDOUT, -ECONNREFUSED, -ENOENT, -EHOSTUNREACH...: no answer; -EPROTONOSUPPORT, -ESTALE,
 * -EPERM...: refused, the reason in why; -EPROTO: the peer does not speak SODA.  May block up to
 * the time-out.
 */
int soda_conn_connect(const char *address, const struct soda_wire_hello *hello,
		      const struct soda_conn_options *opt, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why);

/*
 * The same as whom the environment says, and by TLS if it says so (soda_identity_of_environment(),
 * whose errors come first); opt->identity is not looked at.
 */
int soda_conn_connect_as_told(const char *address, const struct soda_wire_hello *hello,
			      const struct soda_conn_options *opt, struct soda_conn **conn_p,
			      struct soda_wire_welcome *welcome_p, struct soda_why *why);

/*
 * A control connection of this process as a client without pages, as whom the environment says: it
 * moves data or sends messages.  timeout_ms 0: SODA_CONNECT_MS.  As soda_conn_connect_as_told.
 */
int soda_conn_join(const char *address, int timeout_ms, struct soda_conn **conn_p,
		   struct soda_wire_welcome *welcome_p, struct soda_why *why);
/* The same with options, of a control connection; opt->identity is not looked at. */
int soda_conn_join_as_told(const char *address, const struct soda_conn_options *opt,
			   struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			   struct soda_why *why);

/* The same as somebody; identity NULL: as nobody. */
int soda_conn_join_as(const char *address, const struct soda_identity *identity, int timeout_ms,
		      struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		      struct soda_why *why);
/* The same with options, of a control connection. */
int soda_conn_join_with(const char *address, const struct soda_conn_options *opt,
			struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			struct soda_why *why);

/*
 * Say goodbye and close: without a goodbye the peer waits for a client's return.  The answer is
 * waited for, for timeout_ms, so that what the peer had for this client is free.  NULL is a no-op.
 */
void soda_conn_leave(struct soda_conn *conn, int timeout_ms);

/*
 * The address that transports know: unix:///PATH, as SODA_DPU may say, is shm:///PATH.
 * -EINVAL: longer than SODA_ADDRESS_MAX.
 */
static inline int soda_address_of(const char *given, char address[SODA_ADDRESS_MAX + 1])
{
	static const char unix_prefix[] = "unix://";
	bool is_unix = !strncmp(given, unix_prefix, strlen(unix_prefix));
	int n = snprintf(address, SODA_ADDRESS_MAX + 1, "%s%s", is_unix ? "shm://" : "",
			 given + (is_unix ? strlen(unix_prefix) : 0));

	return n > SODA_ADDRESS_MAX ? -EINVAL : 0;
}

/* Close; outstanding requests are forgotten. NULL is a no-op. Not AS. */
void soda_conn_close(struct soda_conn *conn);

/*
 * Make every blocked or later call on the connection fail with -ECONNABORTED.
 * The only function that any thread may call at any time before close. AS.
 */
void soda_conn_abort(struct soda_conn *conn);

/*
 * The descriptor to poll(2) for the peer's end, and for completions (not on shm with a one-sided
 * daemon, where soda_conn_poll makes them itself); -1: none.
 * Readable after a flush without polling, and once soda_conn_poll has returned fewer
 * than max, when there is something new. AS.
 */
int soda_conn_fd(const struct soda_conn *conn);

/*
 * What to poll(2) for to learn that the peer has ended the connection, or that it was
 * aborted, and of nothing else: *p's descriptor and events. AS.
 */
void soda_conn_end_poll(const struct soda_conn *conn, struct pollfd *p);

/* "tcp://10.0.0.1:7000", for messages; valid as long as the connection. AS. */
const char *soda_conn_peer(const struct soda_conn *conn);

/*
 * The NUMA node of the network device that the connection goes through, and the device's name;
 * SODA_NODE_ANY (numa_node.h): not known, or none.  Not AS.
 */
int soda_conn_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME]);

/* Control connections. */

/*
 * One call: send type and body, await the reply, within timeout_ms.
 * reply (may be NULL with capacity 0) receives up to capacity bytes, *reply_bytes_p
 * (may be NULL) how many the peer sent; -EMSGSIZE if more than capacity.
 * A refusal returns its status as -errno with the peer's reason in why.
 * An error of which soda_call_lost() (base/failure.h) is true leaves the connection failed:
 * -ETIMEDOUT, -ECONNABORTED where the answer makes no sense, and whatever else ends a connection.
 */
int soda_conn_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why);

/*
 * The same; and *fd_p is a descriptor that came with the answer, the caller's to close, or -1: none
 * came, or none can (only on one machine).
 */
int soda_conn_call_fd(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
		      int timeout_ms, struct soda_why *why);

/*
 * Streamed calls: data behind the body, and the answer collected later.  Several may be under way;
 * the answers come in the order of the calls.  Their data lie in memory that may not be there:
 * where that cannot be read zeros travel, and the peer's service is told behind the data.
 */

/* What is sent behind the body. */
struct soda_outflow {
	uint64_t bytes; /* > 0; with the body at most SODA_WIRE_MAX_STREAM */
	/* The next parts, none empty, at most max; how many. `bytes` bytes in all are asked for. */
	int (*next)(struct soda_outflow *out, struct iovec *iov, int max);
};

/* Whether this connection carries streamed calls. */
bool soda_conn_streams(const struct soda_conn *conn);
/* How many of them may be under way, without an answer that was collected: 1 or more. */
unsigned soda_conn_streams_most(const struct soda_conn *conn);
/*
 * Send a call of a service's type.  0; -EFAULT: not all data could be read: the call was made all
 * the same; or an error of which soda_call_lost() is true, of soda_conn_call().
 */
int soda_conn_submit(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		     int body_n, struct soda_outflow *out, int timeout_ms, struct soda_why *why);
/* Await the answer to the oldest submitted call that has none yet: as soda_conn_call(), which is
 * made while there is none. */
int soda_conn_collect(struct soda_conn *conn, void *reply, size_t capacity, size_t *reply_bytes_p,
		      int timeout_ms, struct soda_why *why);
/*
 * Send a plain call of a service's type, likewise without awaiting the answer: as many of them as
 * soda_conn_options.calls may be under way.  The peer takes one after the other.  0, or an error of
 * which soda_call_lost() is true.
 */
int soda_conn_submit_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			  int body_n, int timeout_ms, struct soda_why *why);
/* Calls whose answers have not been collected. */
unsigned soda_conn_submitted(const struct soda_conn *conn);

/*
 * SODA_MSG_OPEN, and make the region reachable.  *mr_p is filled; undo with
 * soda_conn_unmap_region (after SODA_MSG_CLOSE or the loss of the connection).
 * Errors of soda_conn_call, -ENOMEM.
 */
int soda_conn_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			  const char *name, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
			  int timeout_ms, struct soda_why *why);
void soda_conn_unmap_region(struct soda_mr *mr);

/*
 * The control connection is another one than that of soda_conn_open_region, and the
 * region is open still: make *mr reachable again, where that ends with the connection
 * (verbs).  While no data connection uses it.  Errors of soda_conn_call.
 */
int soda_conn_renew_region(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
			   struct soda_why *why);

/*
 * SODA_MSG_ADVISE.  *map_p is NULL, or where the static cache's memory is mapped, or its
 * key: the caller's, to be put into mr->statics, which soda_conn_unmap_region unmaps, or for
 * soda_conn_unmap_static.  A key is valid until an ADVISE of other kind or a CLOSE is called
 * for, and no longer than the connection.  Errors of soda_conn_call (a memory server refuses
 * with -ENOTSUP), -EPROTO, -ENOMEM.
 */
int soda_conn_advise(struct soda_conn *conn, const struct soda_wire_advise *advise,
		     struct soda_static_map **map_p, int timeout_ms, struct soda_why *why);
void soda_conn_unmap_static(struct soda_static_map *map);
/*
 * SODA_MSG_STORE: join the store of the node, or get a part of its memory.  *fd_p is a memfd of the
 * peer's, the caller's to close, sealed against another size, of got_p->map_bytes bytes or, a part,
 * of the bytes that the file has there.  *got_p is consistent with a file of `bytes` bytes.
 * -ENOTSUP: the peer has no store for this connection; other errors of soda_conn_call, -EPROTO.
 */
int soda_conn_store(struct soda_conn *conn, const struct soda_wire_store *ask, uint64_t bytes,
		    struct soda_wire_stored *got_p, int *fd_p, int timeout_ms,
		    struct soda_why *why);
/* Forget what of mr->statics is reached by key: the keys have ended with their connection. */
void soda_mr_drop_keyed(struct soda_mr *mr);

/* Data connections. */

/*
 * Make READs of statics with a key go by them: without it they are requests.  0, also
 * where there is nothing to do; errors of soda_conn_connect, and then READs stay
 * requests.  While others post and poll, but nobody closes; one caller at a time.
 */
int soda_conn_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why);

static inline bool soda_static_covers(const struct soda_static_map *s, uint64_t offset,
				      uint64_t bytes)
{
	return offset >= s->offset && bytes <= s->bytes && offset - s->offset <= s->bytes - bytes;
}

/* The static cache that has these bytes mapped here, or NULL. AS. */
static inline struct soda_static_map *soda_mr_mapped_static(const struct soda_mr *mr,
							    uint64_t offset, uint32_t bytes)
{
	struct soda_static_map *s = mr->statics;

	while (s && (!s->memory || !soda_static_covers(s, offset, bytes)))
		s = s->next;
	return s;
}

/*
 * Where `bytes` bytes at `offset` of the region can be read in this process
 * without a request (a one-sided READ with no round trip), or NULL. AS.
 * Valid until soda_conn_unmap_region.
 */
static inline const void *soda_mr_direct(const struct soda_mr *mr, uint64_t offset, uint32_t bytes)
{
	const struct soda_static_map *s;

	if (mr->map && offset <= mr->bytes && bytes <= mr->bytes - offset)
		return mr->map + offset;
	s = soda_mr_mapped_static(mr, offset, bytes);
	return s ? s->memory + (offset - s->offset) : NULL;
}

/* The static cache that has a key to these bytes, or NULL. AS. */
static inline const struct soda_static_map *soda_mr_keyed(const struct soda_mr *mr, uint64_t offset,
							  uint32_t bytes)
{
	const struct soda_static_map *s = mr->statics;

	while (s && (s->memory || !soda_static_covers(s, offset, bytes)))
		s = s->next;
	return s;
}

/*
 * Queue a READ of `bytes` at `offset` (both whole pages) into dest, or a WRITE of
 * src.  dest and src belong to the transport until the completion.
 * 0; -EAGAIN: depth outstanding; -EINVAL: range; -EACCES: a WRITE to a region that
 * is not writable; or the connection's error. AS.
 */
int soda_conn_post_read(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, void *dest, uint64_t cookie);
int soda_conn_post_write(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const void *src, uint64_t cookie);
/*
 * An agent in front of a pool may keep the data of a WRITE for a while (soda_conn_keeps): post_kept
 * asks for that, and post_again is a WRITE of the same data, of the same range, to a region of
 * another of its members, for which nothing travels.  soda_done.status is -ENOENT where they are
 * kept no more: then nothing was written.  origin: until the end of the call. As post_write. AS.
 */
bool soda_conn_keeps(const struct soda_conn *conn);
int soda_conn_post_kept(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, const void *src, uint64_t cookie);
int soda_conn_post_again(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const struct soda_wire_origin *origin, uint64_t cookie);
/*
 * Likewise a WRITE of parity, which the agent computes from the pieces of data that it has kept, if
 * it can (soda_conn_codes).  code: soda_wire_put_code's code_bytes; the transport's until the
 * completion.
 */
bool soda_conn_codes(const struct soda_conn *conn);
int soda_conn_post_coded(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const uint8_t *code, uint32_t code_bytes, uint64_t cookie);

/*
 * The same as post_read; but where the peer has our userfaultfd (soda_conn_installs)
 * it may put the pages at `place` instead, write-protected or not: then
 * soda_done.installed is set.  The peer leaves pages that are there already as they are, and
 * where it fails half-way the data come as with post_read.  place: aligned to the
 * HELLO's chunk size. AS.
 */
int soda_conn_post_install(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			   uint32_t bytes, void *dest, void *place, bool protect, uint64_t cookie);
bool soda_conn_installs(const struct soda_conn *conn);
/*
 * The same as post_read for a chunk of a file that has joined the node's store: where the peer has
 * a store for the region, it answers when the chunk is there, with soda_done.stored and without
 * data.  A peer that has none sends the data. AS.
 */
int soda_conn_post_stored(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			  uint32_t bytes, void *dest, uint64_t cookie);

/*
 * Make sure that the peer installs nothing more of what is outstanding; the connection is used for
 * this and for close only from now on.  Afterwards each place has all, some or none of its pages.
 * 0; -EAGAIN: the peer is installing one of them, ask again. AS.
 */
int soda_conn_revoke(struct soda_conn *conn);

/*
 * Whether the peer wants to know which chunks of a region are here already; and to tell the peer so
 * with the next READ.  AS.
 */
bool soda_conn_asks(const struct soda_conn *conn);
void soda_conn_tell(struct soda_conn *conn, const struct soda_wire_residency *residency);

/*
 * Send what was posted.  polling: the answers will be awaited by polling, so that
 * the peer may poll for the next request.  0, or the connection's error; -EFAULT, here or from
 * soda_conn_poll: the data of a WRITE may not be read, and the connection is over. AS.
 */
int soda_conn_flush(struct soda_conn *conn, bool polling);

/*
 * Collect up to max completions: those that are there, and if there is none, the
 * first that comes within timeout_ns (0: do not wait; < 0: no limit), busy-waiting
 * for at most spin_ns of it.  Returns how many; 0 when the time is over or nothing
 * that was flushed is outstanding; or the connection's error, after which no
 * completion follows.  With nothing outstanding it tells whether the peer is still
 * there. AS.
 */
int soda_conn_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		   int64_t spin_ns);

/* Requests posted and not yet completed. AS. */
unsigned soda_conn_outstanding(const struct soda_conn *conn);

#endif
