/* SPDX-License-Identifier: BSD-3-Clause */
#include "routing/rings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

int soda_msg_rings_memory(uint64_t bytes, bool read_only, int *fd_p, void **memory_p,
			  struct soda_why *why)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("soda-msg-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;
	void *memory = MAP_FAILED;

	if (read_only)
		seals |= F_SEAL_FUTURE_WRITE;
	do
		ret = fd < 0 ? -1 : fallocate(fd, 0, 0, (off_t)bytes);
	while (ret < 0 && fd >= 0 && errno == EINTR);
	if (ret == 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		snprintf(why->text, sizeof(why->text), "messages: no memory for rings: %s",
			 soda_strerror(errno));
		if (fd >= 0)
			close(fd);
		return -ENOMEM;
	}
	if (fcntl(fd, F_ADD_SEALS, seals) < 0) { /* after the agent's own mapping */
		snprintf(why->text, sizeof(why->text),
			 "messages: the agent's kernel cannot seal memory against writing");
		munmap(memory, bytes);
		close(fd);
		return -ENOTSUP;
	}
	*fd_p = fd;
	*memory_p = memory;
	return 0;
}

int soda_msg_rings_make(uint32_t ranks, uint32_t inbox_bytes, struct soda_msg_rings **rings_p,
			struct soda_why *why)
{
	struct soda_msg_rings *r = calloc(1, sizeof(*r));
	void *out = NULL, *in = NULL;
	int ret = -ENOMEM;

	if (!r)
		return ret;
	*r = (struct soda_msg_rings){ .ranks = ranks,
				      .sizes = { soda_rings_slot_bytes(ranks), inbox_bytes },
				      .out_fd = -1,
				      .in_fd = -1,
				      .heads = calloc(ranks, sizeof(r->heads[0])) };
	if (r->heads)
		ret = soda_msg_rings_memory(soda_rings_out_bytes(ranks, r->sizes.slot_bytes), false,
					    &r->out_fd, &out, why);
	r->out = out;
	if (ret == 0)
		ret = soda_msg_rings_memory(soda_rings_in_bytes(ranks, inbox_bytes), true,
					    &r->in_fd, &in, why);
	r->in = in;
	if (ret < 0) {
		soda_msg_rings_destroy(r);
		return ret;
	}
	r->tails = (_Atomic uint32_t *)((uint8_t *)out + soda_rings_tails_at());
	r->bytes = r->tails + ranks;
	r->slots = (uint8_t *)out + soda_rings_slots_at(ranks);
	r->heads_shown = (_Atomic uint32_t *)((uint8_t *)in + soda_rings_heads_at());
	r->inbox = (uint8_t *)in + soda_rings_inbox_at(ranks);
	*rings_p = r;
	return 0;
}

void soda_msg_rings_destroy(struct soda_msg_rings *r)
{
	if (!r)
		return;
	if (r->out)
		munmap(r->out, soda_rings_out_bytes(r->ranks, r->sizes.slot_bytes));
	if (r->in)
		munmap(r->in, soda_rings_in_bytes(r->ranks, r->sizes.inbox_bytes));
	if (r->out_fd >= 0)
		close(r->out_fd);
	if (r->in_fd >= 0)
		close(r->in_fd);
	free(r->heads);
	free(r);
}

bool soda_msg_rings_any(const struct soda_msg_rings *r)
{
	for (uint32_t i = 0; i < r->ranks; i++)
		if (atomic_load(&r->tails[i]) != r->heads[i])
			return true;
	return false;
}

int soda_msg_rings_peek(const struct soda_msg_rings *r, uint32_t lane,
			struct soda_wire_msg_packet *p, const uint8_t **runs_p)
{
	enum { HEAD = SODA_WIRE_MSG_PACKET_BYTES };
	/* with the program's store behind the slot and its size */
	uint32_t tail = atomic_load(&r->tails[lane]);
	uint32_t head = r->heads[lane], at = lane * SODA_RING_SLOTS + head % SODA_RING_SLOTS;
	const uint8_t *slot = r->slots + (size_t)at * r->sizes.slot_bytes;
	uint8_t copy[HEAD];
	uint32_t bytes;

	if (tail == head)
		return 0;
	bytes = atomic_load_explicit(&r->bytes[at], memory_order_relaxed);
	if (tail - head > SODA_RING_SLOTS || bytes > r->sizes.slot_bytes)
		return -EPROTO;
	memcpy(copy, slot, sizeof(copy));
	atomic_signal_fence(memory_order_seq_cst); /* the copy is what is checked and used */
	if (soda_wire_get_msg_packet(copy, bytes, p) < 0 || HEAD + p->bytes != bytes ||
	    p->rank != lane)
		return -EPROTO;
	*runs_p = slot + HEAD;
	return 1;
}

void soda_msg_rings_take(struct soda_msg_rings *r, uint32_t lane)
{
	/* the program's load before it fills the slot again; `sleeping` is looked at behind it */
	atomic_store(&r->heads_shown[lane], ++r->heads[lane]);
}

void soda_msg_rings_bell(struct soda_msg_rings *r)
{
	atomic_fetch_add(&r->out->doorbell, 1);
	soda_futex_wake_shared(&r->out->doorbell, 1);
}

void soda_msg_rings_tell(struct soda_msg_rings *r)
{
	if (!atomic_load(&r->out->sleeping))
		return;
	atomic_fetch_add(&r->out->news, 1);
	soda_futex_wake_shared(&r->out->news, INT_MAX);
}
