/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA_MSG_ADVISE, on the side that connects, and the memory that may come with its
 * answer: a range of a region in a memfd that nobody can change any more, or the key to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "transport/api/transport_impl.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

static int other_memory(struct soda_why *why)
{
	soda_why_set(why, "the agent has passed other memory than was asked for");
	return -EPROTO;
}

static int check_range(const struct soda_wire_advise *asked, const struct soda_wire_advised *got,
		       struct soda_why *why)
{
	if (!got->bytes || got->offset % SODA_WIRE_PAGE || got->bytes % SODA_WIRE_PAGE ||
	    got->offset > asked->offset || got->bytes < asked->bytes ||
	    asked->offset - got->offset > got->bytes - asked->bytes)
		return other_memory(why);
	return 0;
}

/* Check the peer's memfd (size, seals): a touch of the mapped memory must never be a SIGBUS. */
static int check_memory(int fd, const struct soda_wire_advised *got, struct soda_why *why)
{
	int seals = fcntl(fd, F_GET_SEALS), writes = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || !(seals & writes)) {
		soda_why_set(why, "the agent has passed memory that is not sealed");
		return -EPROTO;
	}
	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < got->bytes)
		return other_memory(why);
	return 0;
}

static int map_static(int fd, const struct soda_wire_advised *got, struct soda_static_map **map_p,
		      struct soda_why *why)
{
	struct soda_static_map *map = calloc(1, sizeof(*map));
	void *memory = map ? mmap(NULL, got->bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (memory == MAP_FAILED) {
		free(map);
		soda_why_set(why, "no memory to map %llu bytes of the agent's",
			     (unsigned long long)got->bytes);
		return -ENOMEM;
	}
	/* A child has no FAM: it must not keep the memory alive either. */
	madvise(memory, got->bytes, MADV_DONTFORK);
	madvise(memory, got->bytes, MADV_DONTDUMP);
	*map = (struct soda_static_map){ .offset = got->offset,
					 .bytes = got->bytes,
					 .memory = memory };
	*map_p = map;
	return 0;
}

static int use_key(const void *in, const struct soda_wire_advised *got,
		   struct soda_static_map **map_p, struct soda_why *why)
{
	struct soda_static_map *map = calloc(1, sizeof(*map));
	struct soda_wire_key key;

	if (!map) {
		soda_why_set(why, "no memory for a key to the agent's memory");
		return -ENOMEM;
	}
	soda_wire_get_key(in, SODA_WIRE_KEY_BYTES, &key);
	*map = (struct soda_static_map){ .offset = got->offset,
					 .bytes = got->bytes,
					 .rkey = key.rkey };
	*map_p = map;
	return 0;
}

/* The answer, which may have come with memory (fd) or a key. */
static int take_static(int fd, const uint8_t *reply, size_t bytes,
		       const struct soda_wire_advise *asked, struct soda_static_map **map_p,
		       struct soda_why *why)
{
	bool keyed = fd < 0 && bytes == SODA_WIRE_ADVISED_BYTES + SODA_WIRE_KEY_BYTES;
	struct soda_wire_advised got;
	int ret;

	if (fd < 0 && !keyed)
		return 0;
	ret = soda_wire_get_advised(reply, keyed ? SODA_WIRE_ADVISED_BYTES : bytes, &got);
	if (!ret)
		ret = check_range(asked, &got, why);
	if (!ret && keyed)
		return use_key(reply + SODA_WIRE_ADVISED_BYTES, &got, map_p, why);
	if (!ret)
		ret = check_memory(fd, &got, why);
	return ret ? ret : map_static(fd, &got, map_p, why);
}

int soda_conn_advise(struct soda_conn *conn, const struct soda_wire_advise *advise,
		     struct soda_static_map **map_p, int timeout_ms, struct soda_why *why)
{
	uint8_t body[SODA_WIRE_ADVISE_BYTES], reply[SODA_WIRE_ADVISED_BYTES + SODA_WIRE_KEY_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_static_map *map = NULL;
	size_t bytes = 0;
	int fd = -1, ret;

	soda_wire_put_advise(body, advise);
	ret = soda_conn_call_fd(conn, SODA_MSG_ADVISE, &iov, 1, reply, sizeof(reply), &bytes, &fd,
				timeout_ms, why);
	if (ret == -EMSGSIZE)
		ret = -EPROTO;
	if (!ret)
		ret = take_static(fd, reply, bytes, advise, &map, why);
	soda_fd_close(fd);
	if (!ret)
		*map_p = map;
	return ret;
}

void soda_conn_unmap_static(struct soda_static_map *map)
{
	if (map->memory)
		munmap((void *)map->memory, map->bytes);
	free(map);
}

void soda_mr_drop_keyed(struct soda_mr *mr)
{
	struct soda_static_map **link = &mr->statics;

	while (*link) {
		struct soda_static_map *map = *link;

		if (map->memory) {
			link = &map->next;
			continue;
		}
		*link = map->next;
		soda_conn_unmap_static(map);
	}
}
