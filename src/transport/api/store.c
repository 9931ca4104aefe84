/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA_MSG_STORE, on the side that connects, and the memory that comes with its answer: memfds that
 * the processes of one user share, in which pages come and go, but whose sizes are sealed.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "transport/api/transport_impl.h"
#include "wire/store_map.h"

static int other_memory(struct soda_why *why, const char *what)
{
	soda_why_set(why, "the agent's answer for its store %s", what);
	return -EPROTO;
}

/* Whether a file of so many bytes is cut as the answer says. */
static bool fits(const struct soda_wire_stored *got, uint64_t bytes)
{
	uint32_t chunk = got->chunk_bytes;

	return chunk >= SODA_WIRE_PAGE && chunk <= SODA_WIRE_MAX_DATA && !(chunk & (chunk - 1)) &&
	       got->chunks == (bytes + chunk - 1) / chunk &&
	       got->parts == (bytes + SODA_WIRE_STORE_PART - 1) / SODA_WIRE_STORE_PART &&
	       got->map_bytes == soda_store_map_bytes(got->chunks) &&
	       got->member < SODA_STORE_MEMBERS;
}

/* A touch of the memfd's memory must be a fault of ours or none: never one of its size. */
static int check_memory(int fd, uint64_t bytes, struct soda_why *why)
{
	const int resized = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & resized) != resized)
		return other_memory(why, "has memory that is not sealed against another size");
	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size != bytes)
		return other_memory(why, "has memory of another size than it says");
	return 0;
}

static uint64_t memory_bytes(const struct soda_wire_store *ask, uint64_t bytes,
			     const struct soda_wire_stored *got)
{
	uint64_t at = ask->part * SODA_WIRE_STORE_PART;

	if (ask->part == SODA_WIRE_STORE_MAP)
		return got->map_bytes;
	return bytes - at < SODA_WIRE_STORE_PART ? bytes - at : SODA_WIRE_STORE_PART;
}

static int check(int fd, const uint8_t *reply, size_t reply_bytes,
		 const struct soda_wire_store *ask, uint64_t bytes, struct soda_wire_stored *got,
		 struct soda_why *why)
{
	if (fd < 0)
		return other_memory(why, "comes without memory");
	if (soda_wire_get_stored(reply, reply_bytes, got) || !fits(got, bytes))
		return other_memory(why, "is of another file");
	if (ask->part != SODA_WIRE_STORE_MAP && ask->part >= got->parts)
		return other_memory(why, "has fewer parts");
	return check_memory(fd, memory_bytes(ask, bytes, got), why);
}

int soda_conn_store(struct soda_conn *conn, const struct soda_wire_store *ask, uint64_t bytes,
		    struct soda_wire_stored *got_p, int *fd_p, int timeout_ms, struct soda_why *why)
{
	uint8_t body[SODA_WIRE_STORE_AS_BYTES], reply[SODA_WIRE_STORED_BYTES];
	struct iovec iov = { body, soda_wire_put_store(body, ask) };
	struct soda_wire_stored got;
	size_t n = 0;
	int fd = -1, ret;

	if (!conn->ops->call_fd) /* no descriptor can come with the answer */
		return -ENOTSUP;
	ret = soda_conn_call_fd(conn, SODA_MSG_STORE, &iov, 1, reply, sizeof(reply), &n, &fd,
				timeout_ms, why);
	if (ret == -EMSGSIZE)
		ret = -EPROTO;
	if (!ret)
		ret = check(fd, reply, n, ask, bytes, &got, why);
	if (ret) {
		soda_fd_close(fd);
		return ret;
	}
	*got_p = got;
	*fd_p = fd;
	return 0;
}
