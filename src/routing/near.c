/* SPDX-License-Identifier: BSD-3-Clause */
#include "routing/near.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "routing/rings.h"

enum { HEAD = SODA_WIRE_MSG_PACKET_BYTES };

int soda_msg_near_make(uint32_t ranks, uint64_t each, struct soda_msg_near_out *out_p,
		       struct soda_why *why)
{
	struct soda_msg_near_out out = { .bytes = ranks * each };
	void *rings;
	int ret = soda_msg_rings_memory(out.bytes, true, &out.fd, &rings, why);

	if (ret < 0)
		return ret;
	out.rings = rings;
	*out_p = out;
	return 0;
}

void soda_msg_near_destroy(struct soda_msg_near_out *out)
{
	if (!out->rings)
		return;
	munmap(out->rings, out->bytes);
	close(out->fd);
	out->rings = NULL;
}

void *soda_msg_map_sealed(int fd, uint64_t bytes, int protection)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *p;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
	    (uint64_t)st.st_size != bytes)
		return NULL;
	p = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

int soda_msg_near_map(int fd, uint32_t ranks, uint64_t each, struct soda_msg_near_in **in_p)
{
	struct soda_msg_near_in *in = calloc(1, sizeof(*in) + ranks * sizeof(in->taken[0]));

	if (!in)
		return -ENOMEM;
	in->ranks = ranks;
	in->each = each;
	in->whole = malloc(SODA_MSG_PACKET_MAX);
	in->rings = in->whole ? soda_msg_map_sealed(fd, ranks * each, PROT_READ) : NULL;
	if (!in->rings) {
		int ret = in->whole ? -EPROTO : -ENOMEM;

		soda_msg_near_unmap(in);
		return ret;
	}
	*in_p = in;
	return 0;
}

void soda_msg_near_unmap(struct soda_msg_near_in *in)
{
	if (!in)
		return;
	if (in->rings)
		munmap((void *)(uintptr_t)in->rings, in->ranks * in->each);
	free(in->whole);
	free(in);
}

/* So many bytes of a ring from `at` on, in one piece: in `whole`, where they lie in two. */
static const uint8_t *in_one_piece(struct soda_msg_near_in *in, uint32_t ring, uint64_t at,
				   uint32_t bytes)
{
	const uint8_t *begin = in->rings + ring * in->each;
	uint64_t first = in->each - (at & (in->each - 1));

	if (bytes <= first)
		return begin + (at & (in->each - 1));
	memcpy(in->whole, begin + (at & (in->each - 1)), first);
	memcpy(in->whole + first, begin, bytes - first);
	return in->whole;
}

int soda_msg_near_peek(struct soda_msg_near_in *in, uint32_t ring, uint64_t tail,
		       struct soda_wire_msg_packet *p, const uint8_t **runs_p)
{
	uint64_t at = atomic_load_explicit(&in->taken[ring], memory_order_relaxed);
	uint64_t left = tail - at;
	uint8_t head[HEAD];

	if (!left)
		return 0;
	if (left > in->each || left < HEAD)
		return -EPROTO;
	memcpy(head, in_one_piece(in, ring, at, HEAD), HEAD);
	atomic_signal_fence(memory_order_seq_cst); /* the copy is what is checked and used */
	if (soda_wire_get_msg_packet(head, left < SODA_MSG_PACKET_MAX ? left : SODA_MSG_PACKET_MAX,
				     p) < 0)
		return -EPROTO;
	*runs_p = in_one_piece(in, ring, at + HEAD, p->bytes);
	return 1;
}

void soda_msg_near_take(struct soda_msg_near_in *in, uint32_t ring,
			const struct soda_wire_msg_packet *p)
{
	atomic_fetch_add_explicit(&in->taken[ring], HEAD + p->bytes, memory_order_relaxed);
}
