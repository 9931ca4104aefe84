/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA_MSG_ADVISE, on the side that connects, and the memory that may come with its
 * answer: a range of a region in a memfd that nobody can change any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "transport_impl.h"

/* What the peer says of its memory is checked: its touch must never be a SIGBUS. */
static int check_memory(int fd, const struct soda_wire_advise *asked,
			const struct soda_wire_advised *got, struct soda_why *why)
{
	int seals = fcntl(fd, F_GET_SEALS), need = F_SEAL_SHRINK | F_SEAL_WRITE;
	struct stat st;

	if (seals < 0 || (seals & need) != need) {
		soda_why_set(why, "the agent has passed memory that is not sealed");
		return -EPROTO;
	}
	if (!got->bytes || got->offset % SODA_WIRE_PAGE || got->bytes % SODA_WIRE_PAGE ||
	    got->offset > asked->offset || got->bytes < asked->bytes ||
	    asked->offset - got->offset > got->bytes - asked->bytes || fstat(fd, &st) < 0 ||
	    st.st_size < 0 || (uint64_t)st.st_size < got->bytes) {
		soda_why_set(why, "the agent has passed other memory than was asked for");
		return -EPROTO;
	}
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

int soda_conn_advise(struct soda_conn *conn, const struct soda_wire_advise *advise,
		     struct soda_static_map **map_p, int timeout_ms, struct soda_why *why)
{
	uint8_t body[SODA_WIRE_ADVISE_BYTES], reply[SODA_WIRE_ADVISED_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_static_map *map = NULL;
	struct soda_wire_advised got;
	size_t bytes = 0;
	int fd = -1, ret;

	soda_wire_put_advise(body, advise);
	ret = soda_conn_call_fd(conn, SODA_MSG_ADVISE, &iov, 1, reply, sizeof(reply), &bytes, &fd,
				timeout_ms, why);
	if (ret == -EMSGSIZE)
		ret = -EPROTO;
	if (!ret && fd >= 0) {
		ret = soda_wire_get_advised(reply, bytes, &got);
		if (!ret)
			ret = check_memory(fd, advise, &got, why);
		if (!ret)
			ret = map_static(fd, &got, &map, why);
	}
	if (fd >= 0)
		close(fd);
	if (!ret)
		*map_p = map;
	return ret;
}

void soda_conn_unmap_static(struct soda_static_map *map)
{
	munmap((void *)map->memory, map->bytes);
	free(map);
}
