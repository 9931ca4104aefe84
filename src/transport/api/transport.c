/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of transport.h, kept in one place for all transports: ranges, depth,
 * sticky errors, errno.
 */
#include "transport/api/transport_impl.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/numa/numa_node.h"
#include "trust/identity.h"

void soda_why_set(struct soda_why *why, const char *fmt, ...)
{
	va_list args;

	if (!why)
		return;
	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
}

void soda_conn_init(struct soda_conn *conn, const struct soda_conn_ops *ops,
		    const struct soda_conn_options *opt, const char *prefix, const char *rest)
{
	conn->ops = ops;
	conn->kind = opt->kind;
	conn->depth = opt->depth;
	conn->calls = opt->calls;
	conn->max_data = SODA_WIRE_MAX_DATA;
	atomic_init(&conn->aborted, false);
	snprintf(conn->peer, sizeof(conn->peer), "%s%s", prefix, rest);
}

bool soda_conn_proves(const struct soda_conn_options *opt)
{
	return opt->identity && opt->identity->proves;
}

int soda_transport_connect(const struct soda_transport *transport, soda_connect_fn *connect,
			   const char *rest, const struct soda_wire_hello *hello,
			   const struct soda_conn_options *opt, struct soda_conn **conn_p,
			   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_conn_options full = *opt;
	struct soda_wire_hello introduction = *hello;
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	int ret;

	if (opt->depth > SODA_DEPTH_MAX || opt->calls > SODA_CONN_CALLS ||
	    (opt->kind != SODA_CONN_CONTROL && opt->kind != SODA_CONN_DATA)) {
		soda_why_set(why, "%s%s: a data connection takes 1 to %d outstanding requests",
			     transport->prefix, rest, SODA_DEPTH_MAX);
		return -EINVAL;
	}
	if (opt->identity && !transport->proves && !transport->decorate) {
		soda_why_set(why,
			     "%s%s: this transport cannot prove who is at either end, and a key is"
			     " given: use tcp or shm",
			     transport->prefix, rest);
		return -ENOTSUP;
	}
	full.depth = opt->depth ? opt->depth : SODA_DEPTH;
	full.calls = opt->calls ? opt->calls : 1;
	full.timeout_ms = opt->timeout_ms > 0 ? opt->timeout_ms : SODA_CONNECT_MS;
	introduction.magic = SODA_WIRE_MAGIC;
	introduction.version = soda_conn_proves(opt) ? SODA_WIRE_VERSION_PROVED : SODA_WIRE_VERSION;
	introduction.kind = opt->kind;
	introduction.features = hello->features &
				(SODA_FEATURE_AGENTS | SODA_FEATURE_MEMBER | SODA_FEATURE_SEALING);
	if (opt->sealed && opt->kind == SODA_CONN_DATA)
		introduction.features |= SODA_FEATURE_SEALED;
	if (opt->token && introduction.version == SODA_WIRE_VERSION_PROVED)
		introduction.features |= SODA_FEATURE_TOKEN;
	ret = transport->decorate
		      ? transport->decorate(connect, rest, &introduction, &full, &conn, &welcome,
					    why)
		      : transport->connect(rest, &introduction, &full, &conn, &welcome, why);
	if (ret < 0)
		return ret;
	if (welcome.max_data < conn->max_data)
		conn->max_data = welcome.max_data;
	conn->asks = welcome.agent & SODA_WIRE_AGENT_ASKS;
	conn->keeps =
		welcome.agent & SODA_WIRE_AGENT_POOL && conn->ops->keeps && conn->ops->keeps(conn);
	conn->codes = conn->keeps && welcome.agent & SODA_WIRE_AGENT_CODES;
	conn->merges = full.merge && !welcome.agent;
	*welcome_p = welcome;
	*conn_p = conn;
	return 0;
}

void soda_conn_close(struct soda_conn *conn)
{
	if (conn)
		conn->ops->close(conn);
}

void soda_conn_abort(struct soda_conn *conn)
{
	int saved = errno;

	/* release: a thread that sees the connection end by this abort also sees `aborted` */
	atomic_store_explicit(&conn->aborted, true, memory_order_release);
	conn->ops->abort(conn);
	errno = saved;
}

int soda_conn_fd(const struct soda_conn *conn)
{
	return conn->ops->fd(conn);
}

void soda_conn_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	if (conn->ops->end_poll)
		conn->ops->end_poll(conn, p);
	else
		*p = (struct pollfd){ .fd = conn->ops->fd(conn), .events = POLLRDHUP };
}

int soda_conn_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	name[0] = 0;
	if (conn->ops->device)
		return conn->ops->device(conn, name);
	return soda_nic_node_of_socket(conn->ops->fd(conn), name);
}

const char *soda_conn_peer(const struct soda_conn *conn)
{
	return conn->peer;
}

static bool aborted(const struct soda_conn *conn)
{
	/* acquire: pairs with the release in soda_conn_abort */
	return atomic_load_explicit(&conn->aborted, memory_order_acquire);
}

/* 0, or the error that the connection has failed with. */
static int check(const struct soda_conn *conn)
{
	return aborted(conn) ? -ECONNABORTED : conn->error;
}

static int failed(struct soda_conn *conn, int err)
{
	if (!conn->error)
		conn->error = err;
	return aborted(conn) ? -ECONNABORTED : err;
}

int soda_conn_call_fd(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
		      int timeout_ms, struct soda_why *why)
{
	int ret = check(conn);

	assert(conn->kind == SODA_CONN_CONTROL && (ret || !conn->submitted));
	if (fd_p)
		*fd_p = -1;
	if (!ret && fd_p && conn->ops->call_fd)
		ret = conn->ops->call_fd(conn, type, body, body_n, reply, capacity, reply_bytes_p,
					 fd_p, timeout_ms, why);
	else if (!ret)
		ret = conn->ops->call(conn, type, body, body_n, reply, capacity, reply_bytes_p,
				      timeout_ms, why);
	else
		soda_why_set(why, "the connection to %s had failed: %s", conn->peer,
			     soda_strerror(ret));
	return ret < 0 && aborted(conn) ? -ECONNABORTED : ret;
}

int soda_conn_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why)
{
	return soda_conn_call_fd(conn, type, body, body_n, reply, capacity, reply_bytes_p, NULL,
				 timeout_ms, why);
}

void soda_conn_leave(struct soda_conn *conn, int timeout_ms)
{
	struct soda_why ignored;

	if (conn)
		soda_conn_call(conn, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, timeout_ms, &ignored);
	soda_conn_close(conn);
}

bool soda_conn_streams(const struct soda_conn *conn)
{
	return conn->ops->streams ? conn->ops->streams(conn) : conn->ops->submit != NULL;
}

unsigned soda_conn_streams_most(const struct soda_conn *conn)
{
	return conn->ops->streams_most ? conn->ops->streams_most(conn) : UINT_MAX;
}

int soda_conn_submit(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		     int body_n, struct soda_outflow *out, int timeout_ms, struct soda_why *why)
{
	int ret = check(conn);

	assert(conn->kind == SODA_CONN_CONTROL && type >= SODA_MSG_SERVICES && out->bytes);
	assert(conn->submitted < soda_conn_streams_most(conn));
	if (ret == 0)
		ret = conn->ops->submit(conn, type, body, body_n, out, timeout_ms, why);
	conn->submitted += ret == 0 || ret == -EFAULT;
	return ret < 0 && aborted(conn) ? -ECONNABORTED : ret;
}

int soda_conn_submit_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			  int body_n, int timeout_ms, struct soda_why *why)
{
	int ret = check(conn);

	assert(conn->kind == SODA_CONN_CONTROL && type >= SODA_MSG_SERVICES);
	assert(conn->submitted < conn->calls);
	if (ret == 0)
		ret = conn->ops->submit_call(conn, type, body, body_n, timeout_ms, why);
	conn->submitted += ret == 0;
	return ret < 0 && aborted(conn) ? -ECONNABORTED : ret;
}

int soda_conn_collect(struct soda_conn *conn, void *reply, size_t capacity, size_t *reply_bytes_p,
		      int timeout_ms, struct soda_why *why)
{
	int ret = check(conn);

	assert(conn->submitted);
	conn->submitted--;
	if (ret == 0)
		ret = conn->ops->collect(conn, reply, capacity, reply_bytes_p, timeout_ms, why);
	return ret < 0 && aborted(conn) ? -ECONNABORTED : ret;
}

unsigned soda_conn_submitted(const struct soda_conn *conn)
{
	return conn->submitted;
}

void soda_open_body(const struct soda_wire_open *open, const char *name, uint8_t *head,
		    struct iovec iov[2])
{
	iov[0] = (struct iovec){ .iov_base = head,
				 .iov_len = soda_wire_put_marked_open(head, open) };
	iov[1] = (struct iovec){ .iov_base = (void *)(uintptr_t)name, .iov_len = open->name_bytes };
}

int soda_open_reply(const struct soda_wire_open *open, bool writable, const void *reply,
		    size_t bytes, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
		    struct soda_why *why)
{
	struct soda_wire_opened opened;

	if (soda_wire_get_opened(reply, bytes, &opened) < 0 || opened.bytes == 0 ||
	    opened.bytes > SODA_MAX_OBJECT) {
		soda_why_set(why, "the server's answer to an open is not valid");
		return -EPROTO;
	}
	*opened_p = opened;
	*mr_p = (struct soda_mr){
		.bytes = (opened.bytes + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE * SODA_WIRE_PAGE,
		.region_id = open->region_id,
		.writable = writable,
	};
	return 0;
}

static int open_unmapped(struct soda_conn *conn, const struct soda_wire_open *open,
			 const char *name, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
			 int timeout_ms, struct soda_why *why)
{
	uint8_t head[SODA_WIRE_OPEN_MARKED_BYTES], reply[SODA_WIRE_OPENED_BYTES];
	struct iovec iov[2];
	size_t bytes = 0;
	int ret;

	soda_open_body(open, name, head, iov);
	ret = conn->ops->call(conn, SODA_MSG_OPEN, iov, 2, reply, sizeof(reply), &bytes, timeout_ms,
			      why);
	if (ret == -EMSGSIZE)
		ret = -EPROTO;
	if (ret < 0)
		return ret;
	return soda_open_reply(open, !(open->flags & SODA_WIRE_READ_ONLY), reply, bytes, opened_p,
			       mr_p, why);
}

int soda_conn_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			  const char *name, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
			  int timeout_ms, struct soda_why *why)
{
	int ret = check(conn);

	assert(conn->kind == SODA_CONN_CONTROL);
	if (ret < 0) {
		soda_why_set(why, "the connection to %s had failed: %s", conn->peer,
			     soda_strerror(ret));
		return ret;
	}
	if (conn->ops->open_region)
		ret = conn->ops->open_region(conn, open, name, opened_p, mr_p, timeout_ms, why);
	else
		ret = open_unmapped(conn, open, name, opened_p, mr_p, timeout_ms, why);
	return ret < 0 && aborted(conn) ? -ECONNABORTED : ret;
}

int soda_conn_renew_region(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
			   struct soda_why *why)
{
	int ret = check(conn);

	assert(conn->kind == SODA_CONN_CONTROL);
	if (ret == 0 && conn->ops->renew_region)
		ret = conn->ops->renew_region(conn, mr, timeout_ms, why);
	return ret < 0 && aborted(conn) ? -ECONNABORTED : ret;
}

int soda_conn_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	assert(conn->kind == SODA_CONN_DATA);
	return conn->ops->reach_keyed ? conn->ops->reach_keyed(conn, timeout_ms, why) : 0;
}

/* The memory's length is in whole huge pages where the peer's memory consists of them. */
static void unmap(void *map, uint64_t bytes)
{
	if (munmap(map, bytes) < 0)
		munmap(map,
		       (bytes + SODA_BACKING_UNIT - 1) / SODA_BACKING_UNIT * SODA_BACKING_UNIT);
}

void soda_conn_unmap_region(struct soda_mr *mr)
{
	if (mr->map)
		unmap(mr->map, mr->bytes);
	if (mr->dirty_map)
		unmap(mr->dirty_map, soda_dirty_bytes(mr->bytes));
	mr->map = mr->dirty_map = NULL;
	while (mr->statics) {
		struct soda_static_map *map = mr->statics;

		mr->statics = map->next;
		soda_conn_unmap_static(map);
	}
}

bool soda_conn_keeps(const struct soda_conn *conn)
{
	return conn->keeps;
}

bool soda_conn_codes(const struct soda_conn *conn)
{
	return conn->codes;
}

bool soda_conn_asks(const struct soda_conn *conn)
{
	return conn->asks;
}

void soda_conn_tell(struct soda_conn *conn, const struct soda_wire_residency *residency)
{
	conn->residency = *residency;
	conn->tells = true;
}

static int post(struct soda_conn *conn, struct soda_post *p)
{
	int saved = errno, ret = check(conn);

	assert(conn->kind == SODA_CONN_DATA);
	if (ret < 0)
		return ret;
	if (p->bytes == 0 || p->bytes > conn->max_data || p->bytes % SODA_WIRE_PAGE ||
	    p->offset % SODA_WIRE_PAGE || p->offset > p->mr->bytes ||
	    p->bytes > p->mr->bytes - p->offset)
		return -EINVAL;
	if (p->write && !p->mr->writable)
		return -EACCES;
	if (conn->outstanding == conn->depth)
		return -EAGAIN;
	p->residency = conn->tells && !p->write ? &conn->residency : NULL;
	p->merge = conn->merges && !p->write;
	ret = conn->ops->post(conn, p);
	if (ret == 0)
		conn->outstanding++;
	if (!p->write)
		conn->tells = false;
	errno = saved;
	return ret;
}

int soda_conn_post_read(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, void *dest, uint64_t cookie)
{
	return post(conn, &(struct soda_post){ .mr = mr,
					       .offset = offset,
					       .cookie = cookie,
					       .data = dest,
					       .bytes = bytes });
}

static int post_data(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
		     uint32_t bytes, const void *src, uint64_t cookie, bool keep)
{
	return post(conn, &(struct soda_post){ .mr = mr,
					       .offset = offset,
					       .cookie = cookie,
					       .data = (void *)(uintptr_t)src,
					       .bytes = bytes,
					       .write = true,
					       .keep = keep });
}

int soda_conn_post_write(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const void *src, uint64_t cookie)
{
	return post_data(conn, mr, offset, bytes, src, cookie, false);
}

int soda_conn_post_kept(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, const void *src, uint64_t cookie)
{
	return post_data(conn, mr, offset, bytes, src, cookie, conn->keeps);
}

int soda_conn_post_again(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const struct soda_wire_origin *origin, uint64_t cookie)
{
	assert(conn->keeps);
	return post(conn, &(struct soda_post){ .mr = mr,
					       .offset = offset,
					       .cookie = cookie,
					       .origin = origin,
					       .bytes = bytes,
					       .write = true });
}

int soda_conn_post_coded(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const uint8_t *code, uint32_t code_bytes, uint64_t cookie)
{
	assert(conn->codes);
	return post(conn, &(struct soda_post){ .mr = mr,
					       .offset = offset,
					       .cookie = cookie,
					       .code = code,
					       .code_bytes = code_bytes,
					       .bytes = bytes,
					       .write = true });
}

int soda_conn_post_install(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			   uint32_t bytes, void *dest, void *place, bool protect, uint64_t cookie)
{
	return post(conn, &(struct soda_post){ .mr = mr,
					       .offset = offset,
					       .cookie = cookie,
					       .data = dest,
					       .place = soda_conn_installs(conn) ? place : NULL,
					       .bytes = bytes,
					       .protect = protect });
}

int soda_conn_post_stored(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			  uint32_t bytes, void *dest, uint64_t cookie)
{
	return post(conn, &(struct soda_post){ .mr = mr,
					       .offset = offset,
					       .cookie = cookie,
					       .data = dest,
					       .bytes = bytes,
					       .stored = true });
}

bool soda_conn_installs(const struct soda_conn *conn)
{
	return conn->ops->installs && conn->ops->installs(conn);
}

int soda_conn_revoke(struct soda_conn *conn)
{
	int saved = errno;
	int ret = conn->ops->revoke ? conn->ops->revoke(conn) : 0;

	errno = saved;
	return ret;
}

int soda_conn_flush(struct soda_conn *conn, bool polling)
{
	int saved = errno, ret = check(conn);

	assert(conn->kind == SODA_CONN_DATA);
	if (!ret)
		ret = conn->ops->flush(conn, polling);
	errno = saved;
	return ret < 0 ? failed(conn, ret) : 0;
}

int soda_conn_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		   int64_t spin_ns)
{
	int saved = errno, ret = check(conn);

	assert(conn->kind == SODA_CONN_DATA && max > 0);
	if (!ret)
		ret = conn->ops->poll(conn, done, max, timeout_ns, spin_ns);
	errno = saved;
	if (ret < 0)
		return failed(conn, ret);
	assert((unsigned)ret <= conn->outstanding);
	conn->outstanding -= (uint32_t)ret;
	return ret;
}

unsigned soda_conn_outstanding(const struct soda_conn *conn)
{
	return conn->outstanding;
}
