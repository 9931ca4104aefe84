/* SPDX-License-Identifier: BSD-3-Clause */
#include "routing/inbox.h"

#include <assert.h>
#include <errno.h>
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

static void move_head(struct soda_inbox *in, uint64_t to, bool *made_room_p)
{
	*made_room_p = to != in->head && in->wanted;
	if (to != in->head)
		in->wanted = false;
	in->head = to;
}

/*
 * What the rank has pulled, as its program says in memory that it may write at any time: each word
 * is read once.  The end of a phase is said behind the bytes before it.
 */
static int hear_locked(struct soda_inbox *in, bool *made_room_p)
{
	struct soda_msg_rings *rings = atomic_load(&in->rings);
	struct soda_rings_out *out = rings->out;
	uint32_t ended = atomic_load(&out->ended);
	/* with the program's store, when it has read what lies before that */
	uint64_t at = atomic_load(&out->pulled);
	uint32_t more = ended - in->ends_known;

	if (at - in->head > in->tail - in->head || more > in->ends - in->ends_known ||
	    (more && at < in->end_at[(ended - 1) % 2]))
		return -EPROTO;
	move_head(in, at, made_room_p);
	if (*made_room_p)
		atomic_store(&rings->in->wanted, 0);
	in->ends_known = ended;
	return 0;
}

int soda_inbox_hear(struct soda_inbox *in, uint32_t *ends_p, bool *made_room_p)
{
	int ret;

	*made_room_p = false;
	pthread_mutex_lock(&in->lock);
	ret = hear_locked(in, made_room_p);
	*ends_p = in->ends_known;
	pthread_mutex_unlock(&in->lock);
	return ret;
}

bool soda_inbox_share(struct soda_inbox *in, struct soda_msg_rings *rings)
{
	bool unused;

	pthread_mutex_lock(&in->lock);
	unused = !in->tail && !in->ends && !atomic_load(&in->rings);
	if (unused) {
		in->ring = rings->inbox;
		in->size = rings->sizes.inbox_bytes;
		atomic_store(&in->rings, rings);
	}
	pthread_mutex_unlock(&in->lock);
	return unused;
}

static bool has_room_locked(const struct soda_inbox *in, uint64_t bytes)
{
	return in->size - (in->tail - in->head) >= bytes;
}

/* Whether there is room once the rank's program has been heard, if nobody else waits for that. */
static bool hears_room_locked(struct soda_inbox *in, uint64_t bytes)
{
	bool made_room;

	/* nonsense is found by who serves the rings */
	return !in->wanted && !hear_locked(in, &made_room) && has_room_locked(in, bytes);
}

/*
 * Whether there is room.  Of rings the program is heard once more after they say that room is
 * wanted: either this sees that there is some, or the program that it shall tell.
 */
static bool find_room_locked(struct soda_inbox *in, uint64_t bytes)
{
	struct soda_msg_rings *rings = atomic_load(&in->rings);

	if (has_room_locked(in, bytes) || (rings && hears_room_locked(in, bytes)))
		return true;
	if (rings && !in->wanted) {
		atomic_store(&rings->in->wanted, 1);
		if (hears_room_locked(in, bytes)) {
			atomic_store(&rings->in->wanted, 0);
			return true;
		}
	}
	if (!in->wanted) /* who pulls may have shown more than has arrived: it is to say so */
		pthread_cond_signal(&in->news);
	in->wanted = true;
	return false;
}

bool soda_inbox_put(struct soda_inbox *in, uint32_t from, const struct soda_wire_msg_packet *p,
		    const uint8_t *runs)
{
	struct soda_wire_msg_packet packet = { from, p->bytes, p->messages, 0 };
	uint8_t head[SODA_WIRE_MSG_PACKET_BYTES];
	struct soda_msg_rings *rings = atomic_load(&in->rings);
	bool fits;

	soda_wire_put_msg_packet(head, &packet);
	pthread_mutex_lock(&in->lock);
	fits = find_room_locked(in, sizeof(head) + p->bytes);
	if (fits) {
		copy_in(in, head, sizeof(head));
		copy_in(in, runs, p->bytes);
		if (rings) /* with the program's load before it reads them */
			atomic_store(&rings->in->tail, in->tail);
		else
			pthread_cond_signal(&in->news);
	}
	pthread_mutex_unlock(&in->lock);
	if (fits && rings)
		soda_msg_rings_tell(rings);
	return fits;
}

static void share_end_locked(const struct soda_inbox *in, struct soda_rings_in *shared)
{
	uint32_t phase = in->ends - 1;

	atomic_store_explicit(&shared->end_at[phase % 2], in->end_at[phase % 2],
			      memory_order_relaxed);
	/* with the program's load before it reads where */
	atomic_store(&shared->ends, in->ends);
}

void soda_inbox_end(struct soda_inbox *in)
{
	struct soda_msg_rings *rings = atomic_load(&in->rings);

	pthread_mutex_lock(&in->lock);
	assert(in->ends - in->ends_known < 2);
	in->end_at[in->ends++ % 2] = in->tail;
	if (rings)
		share_end_locked(in, rings->in);
	pthread_cond_signal(&in->news);
	pthread_mutex_unlock(&in->lock);
	if (rings)
		soda_msg_rings_tell(rings);
}

/* Whether a packet that was shown ends there: two connections may have been shown different ones.
 */
static bool ends_packet(const struct soda_inbox *in, uint64_t where)
{
	uint8_t head[SODA_WIRE_MSG_PACKET_BYTES];
	struct soda_wire_msg_packet p;
	uint64_t at = in->head;

	if (where == in->shown)
		return true;
	while (at < where && at < in->shown) {
		copy_out(in, at, head, sizeof(head));
		soda_wire_get_msg_packet(head, SODA_MSG_PACKET_MAX, &p);
		at += sizeof(head) + p.bytes;
	}
	return at == where;
}

/* A view begins at what has arrived, and is never behind that. */
static void move_view(const struct soda_inbox *in, struct soda_inbox_view *view)
{
	if (!view->begun || view->at < in->head)
		view->at = in->head;
	if (!view->begun || (int32_t)(in->ends_known - view->ends) > 0)
		view->ends = in->ends_known;
	view->begun = true;
}

int soda_inbox_arrived(struct soda_inbox *in, struct soda_inbox_view *view, uint64_t at,
		       uint32_t ends, bool *made_room_p)
{
	int ret = -EPROTO;

	pthread_mutex_lock(&in->lock);
	if (ends_packet(in, at) && ends - in->ends_known <= 1 &&
	    ends - in->ends_known <= in->ends - in->ends_known &&
	    (ends == in->ends_known || at >= in->end_at[in->ends_known % 2])) {
		move_head(in, at, made_room_p);
		in->ends_known = ends;
		move_view(in, view);
		ret = 0;
	}
	pthread_mutex_unlock(&in->lock);
	return ret;
}

bool soda_inbox_has_locked(const struct soda_inbox *in, const struct soda_inbox_view *view)
{
	return view->at != in->tail || in->ends != in->ends_known || view->ends != in->ends_known ||
	       (in->wanted && view->at != in->head);
}

/* Whole packets of [from, end) that fit. Returns where the next one is. */
static uint64_t copy_packets(const struct soda_inbox *in, uint64_t from, uint64_t end, uint8_t *out,
			     uint32_t room, uint32_t packets)
{
	uint8_t head[SODA_WIRE_MSG_PACKET_BYTES];
	struct soda_wire_msg_packet p;
	uint64_t at = from;

	while (at != end && packets--) {
		uint32_t whole;

		copy_out(in, at, head, sizeof(head));
		/* what is in the ring was checked before it was put there */
		soda_wire_get_msg_packet(head, SODA_MSG_PACKET_MAX, &p);
		whole = (uint32_t)sizeof(head) + p.bytes;
		if (whole > room - (at - from))
			break;
		copy_out(in, at, out + (at - from), whole);
		at += whole;
	}
	return at;
}

/* As soda_inbox_show(), of a view that may go on. */
static uint32_t show_locked(struct soda_inbox *in, struct soda_inbox_view *view, uint8_t *out,
			    uint32_t room, bool *ended_p)
{
	bool ends = in->ends != in->ends_known;
	uint64_t end = ends ? in->end_at[in->ends_known % 2] : in->tail;
	uint64_t at = copy_packets(in, view->at, end, out, room, UINT32_MAX);
	uint32_t bytes = (uint32_t)(at - view->at);

	if (at > in->shown)
		in->shown = at;
	view->at = at;
	*ended_p = ends && at == end;
	view->ends += *ended_p;
	return bytes;
}

uint32_t soda_inbox_show(struct soda_inbox *in, struct soda_inbox_view *view, uint8_t *out,
			 uint32_t room, bool *ended_p)
{
	uint32_t bytes = 0;

	*ended_p = false;
	pthread_mutex_lock(&in->lock);
	move_view(in, view); /* the rank's newer connection may have said more */
	if (view->ends == in->ends_known)
		bytes = show_locked(in, view, out, room, ended_p);
	pthread_mutex_unlock(&in->lock);
	return bytes;
}

uint32_t soda_inbox_look(struct soda_inbox *in, uint64_t from, uint8_t *out, uint32_t room,
			 uint32_t packets, uint64_t *behind_p)
{
	uint64_t at, tail;

	pthread_mutex_lock(&in->lock);
	assert(from - in->head <= in->tail - in->head);
	tail = in->tail;
	pthread_mutex_unlock(&in->lock);
	/* who asks is the one who drops: none of it goes meanwhile */
	at = copy_packets(in, from, tail, out, room, packets);
	*behind_p = tail - at;
	return (uint32_t)(at - from);
}

bool soda_inbox_move(struct soda_inbox *in, uint8_t *ring)
{
	bool unused;

	pthread_mutex_lock(&in->lock);
	unused = !in->tail;
	if (unused)
		in->ring = ring;
	pthread_mutex_unlock(&in->lock);
	return unused;
}

void soda_inbox_span(struct soda_inbox *in, uint64_t *head_p, uint64_t *tail_p)
{
	pthread_mutex_lock(&in->lock);
	*head_p = in->head;
	*tail_p = in->tail;
	pthread_mutex_unlock(&in->lock);
}

uint64_t soda_inbox_drop(struct soda_inbox *in, uint64_t bytes, bool *made_room_p)
{
	uint64_t head;

	pthread_mutex_lock(&in->lock);
	assert(bytes <= in->tail - in->head);
	move_head(in, in->head + bytes, made_room_p);
	in->shown = head = in->head;
	pthread_mutex_unlock(&in->lock);
	return head;
}

void soda_inbox_wake(struct soda_inbox *in)
{
	struct soda_msg_rings *rings = atomic_load(&in->rings);

	pthread_mutex_lock(&in->lock);
	pthread_cond_broadcast(&in->news);
	pthread_mutex_unlock(&in->lock);
	if (rings)
		soda_msg_rings_bell(rings);
}
