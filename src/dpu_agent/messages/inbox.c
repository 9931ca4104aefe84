/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/messages/inbox.h"

#include <assert.h>
#include <string.h>

#include "base/wait.h"

void soda_inbox_init(struct soda_inbox *in, uint8_t *ring, uint64_t size)
{
	*in = (struct soda_inbox){ .ring = ring, .size = size };
	pthread_mutex_init(&in->lock, NULL);
	soda_cond_init(&in->news);
}

void soda_inbox_destroy(struct soda_inbox *in)
{
	pthread_cond_destroy(&in->news);
	pthread_mutex_destroy(&in->lock);
}

static uint64_t until_wrap(const struct soda_inbox *in, uint64_t at, uint64_t bytes)
{
	uint64_t left = in->size - (at & (in->size - 1));

	return bytes < left ? bytes : left;
}

static void copy_in(struct soda_inbox *in, const uint8_t *from, uint64_t bytes)
{
	uint64_t first = until_wrap(in, in->tail, bytes);

	memcpy(in->ring + (in->tail & (in->size - 1)), from, first);
	memcpy(in->ring, from + first, bytes - first);
	in->tail += bytes;
}

static void copy_out(const struct soda_inbox *in, uint64_t at, uint8_t *to, uint64_t bytes)
{
	uint64_t first = until_wrap(in, at, bytes);

	memcpy(to, in->ring + (at & (in->size - 1)), first);
	memcpy(to + first, in->ring, bytes - first);
}

bool soda_inbox_put(struct soda_inbox *in, uint32_t from, const struct soda_wire_msg_packet *p,
		    const uint8_t *runs)
{
	struct soda_wire_msg_packet packet = { from, p->bytes, p->messages };
	uint8_t head[SODA_WIRE_MSG_PACKET_BYTES];
	bool fits;

	soda_wire_put_msg_packet(head, &packet);
	pthread_mutex_lock(&in->lock);
	fits = in->size - (in->tail - in->head) >= sizeof(head) + p->bytes;
	if (fits) {
		copy_in(in, head, sizeof(head));
		copy_in(in, runs, p->bytes);
		pthread_cond_signal(&in->news);
	} else {
		in->wanted = true;
	}
	pthread_mutex_unlock(&in->lock);
	return fits;
}

void soda_inbox_end(struct soda_inbox *in)
{
	pthread_mutex_lock(&in->lock);
	assert(!in->ending);
	in->ending = true;
	in->end_at = in->tail;
	pthread_cond_signal(&in->news);
	pthread_mutex_unlock(&in->lock);
}

bool soda_inbox_has_locked(const struct soda_inbox *in)
{
	return in->head != in->tail || in->ending;
}

uint32_t soda_inbox_take(struct soda_inbox *in, uint8_t *out, uint32_t room, bool *ended_p,
			 bool *made_room_p)
{
	uint8_t head[SODA_WIRE_MSG_PACKET_BYTES];
	struct soda_wire_msg_packet p;
	uint32_t bytes = 0;
	uint64_t end;

	pthread_mutex_lock(&in->lock);
	end = in->ending ? in->end_at : in->tail;
	while (in->head != end) {
		uint32_t whole;

		copy_out(in, in->head, head, sizeof(head));
		/* what is in the ring was checked before it was put there */
		soda_wire_get_msg_packet(head, SODA_MSG_PACKET_MAX, &p);
		whole = (uint32_t)sizeof(head) + p.bytes;
		if (whole > room - bytes)
			break;
		copy_out(in, in->head, out + bytes, whole);
		bytes += whole;
		in->head += whole;
	}
	*ended_p = in->ending && in->head == in->end_at;
	if (*ended_p)
		in->ending = false;
	*made_room_p = bytes && in->wanted;
	if (bytes)
		in->wanted = false;
	pthread_mutex_unlock(&in->lock);
	return bytes;
}

void soda_inbox_wake(struct soda_inbox *in)
{
	pthread_mutex_lock(&in->lock);
	pthread_cond_broadcast(&in->news);
	pthread_mutex_unlock(&in->lock);
}
