/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side that listens.  A daemon implements struct soda_service; transports
 * own sockets, framing, threads and the HELLO time-out, validate what can be
 * validated without the daemon, and call it.
 *
 * One soda_peer is one accepted connection.  It belongs to the transport; the
 * daemon may keep the pointer from hello until gone returns.
 *
 * Threads: callbacks come from several threads.  call (control plane) runs in a
 * thread of that control connection's own and may block; hello may block for a
 * control connection, not for a data one; translate and release run in the data
 * workers and must not block.
 */
#ifndef SODA_SERVICE_H
#define SODA_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/transport/transport.h"
#include "common/wire.h"

struct soda_peer;
struct soda_listener;

/* Who is at the other end. */
struct soda_peer_info {
	char address[96]; /* for messages */
	bool local;	  /* a UNIX socket: uid, gid and pid are the kernel's word */
	uid_t uid;
	gid_t gid;
	pid_t pid;
};

/* A piece of a region's memory, held between translate and release. */
struct soda_span {
	uint8_t *memory;
	void *hold;	 /* the daemon's */
	uint64_t offset; /* of memory in the region */
	uint32_t bytes;
};

/* What an opened region hands to a transport that can share memory. */
struct soda_share {
	int fd;		      /* memfd, borrowed; -1: nothing to share */
	uint64_t bytes;	      /* of the region's memory in it, from offset 0 */
	uint64_t dirty_bytes; /* of the dirty map behind it; 0: none */
	bool writable;
};

/* Reply of a control call: at most SODA_WIRE_MAX_CONTROL bytes in body. */
struct soda_reply {
	uint8_t *body; /* the transport's buffer */
	size_t bytes;
	struct soda_share share; /* OPEN on a sharing transport */
	struct soda_why why;	 /* the reason, when call returns an error */
};

struct soda_service {
	/*
	 * A connection has introduced itself with a valid magic and version.  Fill
	 * *welcome and set *client_p, or return a negative errno and fill *why.  For a
	 * control HELLO with a higher epoch: return when the older connections of the
	 * client are gone (soda_peer_close, then gone).
	 */
	int (*hello)(void *svc, struct soda_peer *peer, const struct soda_wire_hello *hello,
		     const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		     void **client_p, struct soda_why *why);
	/*
	 * A control request other than HELLO.  shares: this transport can pass
	 * descriptors, fill reply->share in OPEN.  0 or negative errno.
	 */
	int (*call)(void *client, enum soda_msg type, const void *body, size_t bytes, bool shares,
		    struct soda_reply *reply);
	/*
	 * The memory of a validated-by-layout READ (write = false) or WRITE.  The daemon
	 * checks region, range and access.  0, -EINVAL, -EACCES.  Then release exactly
	 * once, also when the connection fails, and maybe just after the client has the
	 * answer; landed: a WRITE has been stored.
	 */
	int (*translate)(void *client, bool write, uint16_t region_id, uint64_t page_offset,
			 uint32_t size, struct soda_span *span);
	void (*release)(void *client, bool write, const struct soda_span *span, bool landed);
	/* The connection has ended; no callback for this peer follows. */
	void (*gone)(void *client, struct soda_peer *peer);
	/* Something bad came in: bad HELLO, bad frame, bad request. Counted by the daemon. */
	void (*rejected)(void *svc, const char *address, const char *why);
};

enum soda_engine { SODA_ENGINE_AUTO = 0, SODA_ENGINE_EPOLL = 1 };

struct soda_listener_options {
	unsigned workers;	  /* data threads; 0: one a processor, at most 4 */
	unsigned max_connections; /* 0: 4096 */
	int hello_timeout_ms;	  /* 0: 5000 */
	enum soda_engine engine;  /* of the data threads; auto: io_uring where the kernel lets us */
};

/*
 * Listen on an address (as in transport.h; tcp port 0 picks one).  Connections
 * are accepted from soda_listener_start on.  -EINVAL, -EADDRINUSE, -EACCES, -ENOTSUP,
 * -EMFILE...; why says what to do.
 */
int soda_listener_open(const char *address, const struct soda_service *ops, void *svc,
		       const struct soda_listener_options *opt, struct soda_listener **listener_p,
		       struct soda_why *why);
int soda_listener_start(struct soda_listener *listener);
/* The address with the real port, for the readiness line. */
const char *soda_listener_address(const struct soda_listener *listener);
/* Accept no more; existing connections go on (drain). */
void soda_listener_stop_accepting(struct soda_listener *listener);
/* Close every connection, await the threads, free. */
void soda_listener_close(struct soda_listener *listener);

/* End a connection from outside; gone follows from the transport's thread. Any thread. */
void soda_peer_close(struct soda_peer *peer);

#endif
