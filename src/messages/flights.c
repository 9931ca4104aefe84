/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/flights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "messages/job.h"
#include "wire/field.h"

enum {
	PART_HEADS = SODA_WIRE_MSG_PACKET_BYTES + 8,
	NS_PER_MS = 1000000,
	IN_PLACE = 4096, /* bytes of a packet that is not copied, where it may be a part */
};

/* Parts of large messages */

uint32_t soda_lane_part_size(const struct soda_msg_job *job, uint32_t rank, uint32_t most)
{
	const struct soda_lane *lane = &job->lanes[rank];
	uint32_t left = lane->large_bytes - lane->large_loaded;

	return left < most - PART_HEADS ? left : most - PART_HEADS;
}

uint32_t soda_lane_load_part_locked(struct soda_msg_job *job, uint32_t rank, uint32_t size,
				    uint8_t *at)
{
	struct soda_lane *lane = &job->lanes[rank];
	uint32_t whole = (size + 7) & ~7u;
	struct soda_wire_msg_packet p = { .rank = rank, .bytes = 8 + whole };

	p.messages = lane->large_loaded + size == lane->large_bytes;
	soda_wire_put_msg_packet(at, &p);
	soda_wire_put_u32(at + SODA_WIRE_MSG_PACKET_BYTES, SODA_MSG_PART | size);
	soda_wire_put_u32(at + SODA_WIRE_MSG_PACKET_BYTES + 4, lane->large_bytes);
	memcpy(at + PART_HEADS, lane->large + lane->large_loaded, size);
	memset(at + PART_HEADS + size, 0, whole - size);
	lane->large_loaded += size;
	return PART_HEADS + whole;
}

void soda_lane_pass_part_locked(struct soda_msg_job *job, uint32_t rank, uint32_t size)
{
	struct soda_lane *lane = &job->lanes[rank];

	lane->large_at += size;
	if (lane->large_at == lane->large_bytes) {
		free(lane->large);
		lane->large = NULL;
	}
}

/* Loading */

uint64_t soda_lane_close_due_locked(struct soda_msg_job *job, uint32_t rank, uint64_t now, bool all)
{
	const struct soda_lane *lane = &job->lanes[rank];
	uint64_t due = lane->since_ns + job->flush_ns;

	if (!soda_lane_open_locked(lane))
		return UINT64_MAX;
	if (!all && due > now)
		return due;
	soda_lane_close_locked(job, rank);
	return UINT64_MAX;
}

/* Room for a packet of so many bytes. */
static bool has_room(const struct soda_flight *f, uint32_t bytes)
{
	return f->push.packets < SODA_MSG_PACKETS && f->bytes + bytes <= sizeof(f->body);
}

/* So many bytes follow at the end of body. Where they lie. */
static uint8_t *add_copied(struct soda_flight *f, uint32_t bytes)
{
	uint8_t *at = f->body + f->copied;
	struct iovec *last = f->parts_n ? &f->parts[f->parts_n - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == at)
		last->iov_len += bytes;
	else
		f->parts[f->parts_n++] = (struct iovec){ at, bytes };
	f->copied += bytes;
	f->bytes += bytes;
	return at;
}

/* A packet follows as it lies there, if there is a part for it, and one for what follows it. */
static bool add_in_place(struct soda_flight *f, uint8_t *packet, uint32_t bytes)
{
	if (bytes < IN_PLACE || f->parts_n + 2 > SODA_FLIGHT_PARTS)
		return false;
	f->parts[f->parts_n++] = (struct iovec){ packet, bytes };
	f->bytes += bytes;
	return true;
}

/* A packet has been added; part: bytes of the lane's large message, or 0. */
static void note_packet(struct soda_msg_job *job, struct soda_flight *f, uint32_t rank,
			uint32_t part)
{
	uint32_t i = f->push.packets++;

	f->of[i].rank = rank;
	f->of[i].part = part;
	job->lanes[rank].flying++;
}

static bool load_slot(struct soda_msg_job *job, struct soda_flight *f, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];
	uint32_t bytes = lane->bytes[lane->loaded % SODA_LANE_SLOTS];
	uint8_t *slot = soda_lane_slot(job, rank, lane->loaded);

	if (lane->loaded == lane->tail || !has_room(f, bytes))
		return false;
	if (!add_in_place(f, slot, bytes))
		memcpy(add_copied(f, bytes), slot, bytes);
	lane->loaded++;
	note_packet(job, f, rank, 0);
	return true;
}

static bool load_part(struct soda_msg_job *job, struct soda_flight *f, uint32_t rank)
{
	const struct soda_lane *lane = &job->lanes[rank];
	uint32_t size, bytes;

	if (!lane->large || lane->large_loaded == lane->large_bytes)
		return false;
	size = soda_lane_part_size(job, rank, SODA_MSG_PACKET_MAX);
	bytes = PART_HEADS + ((size + 7) & ~7u);
	if (!has_room(f, bytes))
		return false;
	soda_lane_load_part_locked(job, rank, size, add_copied(f, bytes));
	note_packet(job, f, rank, size);
	return true;
}

/* Packets of one lane; of a blocked one the oldest, unless that is under way. */
static void load_lane(struct soda_msg_job *job, struct soda_flight *f, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (!lane->blocked_ms) {
		while (load_slot(job, f, rank))
			;
		load_part(job, f, rank);
	} else if (!lane->flying && !load_slot(job, f, rank)) {
		load_part(job, f, rank);
	}
}

/* Whether the lane's turn has come, so that it is not tried without end while others can go on. */
static bool is_due(const struct soda_lane *lane, uint64_t now)
{
	return !lane->blocked_ms || lane->retry_ns <= now;
}

/* Packets of all lanes. */
static void load_lanes(struct soda_msg_job *job, struct soda_flights *all, struct soda_flight *f,
		       uint64_t now)
{
	for (uint32_t i = 0; i < job->ranks; i++) {
		uint32_t rank = (all->first + i) % job->ranks;

		if (is_due(&job->lanes[rank], now))
			load_lane(job, f, rank);
	}
}

static uint64_t close_all_due(struct soda_msg_job *job, bool all, uint64_t now)
{
	uint64_t next;

	if (all || soda_gathers_due_locked(job) <= now)
		soda_gathers_empty_locked(job);
	next = soda_gathers_due_locked(job);
	for (uint32_t i = 0; i < job->ranks; i++) {
		uint64_t due = soda_lane_close_due_locked(job, i, now, all);

		next = due < next ? due : next;
	}
	soda_quick_open_locked(&job->quick);
	return next;
}

bool soda_flights_load_locked(struct soda_msg_job *job, struct soda_flights *all,
			      uint64_t *next_ns_p)
{
	struct soda_flight *f = soda_flight(all, all->made + 1);
	uint64_t now = soda_msg_now_ns();
	bool none = all->made == all->answered;
	if (all->made - all->answered >= soda_flights_most(all->taken))
		return false;
	/* while something is under way more may come to what is open */
	*next_ns_p = close_all_due(job, job->finish || (job->flush && none), now);
	if (none)
		job->flush = false;
	f->push = (struct soda_wire_msg_push){ .number = all->made + 1,
					       .ahead = (uint32_t)(all->made - all->answered) };
	f->bytes = f->copied = 0;
	f->parts_n = 0;
	add_copied(f, SODA_WIRE_MSG_PUSH_BYTES);
	load_lanes(job, all, f, now);
	if (!f->push.packets && none)
		load_lanes(job, all, f, UINT64_MAX);
	if (!f->push.packets)
		return false;
	if (none) /* with others before it the agent had better go on */
		f->push.wait_ms = SODA_MSG_ROOM_MS;
	soda_wire_put_msg_push(f->body, &f->push);
	all->first = (f->of[0].rank + 1) % job->ranks;
	all->made++;
	return true;
}

/* Settling */

/* Of a lane the first ones are taken, and none that was loaded behind a refused one. */
static bool in_order(const struct soda_msg_job *job, const struct soda_flight *f,
		     const uint8_t *taken)
{
	for (uint32_t i = 0; i < f->push.packets; i++) {
		uint32_t rank = f->of[i].rank;

		if (taken[i] && f->push.number <= job->lanes[rank].stale)
			return false;
		if (taken[i] && i && rank == f->of[i - 1].rank && !taken[i - 1])
			return false;
	}
	return true;
}

static void set_blocked(struct soda_lane *lane, bool blocked)
{
	uint32_t longer = lane->blocked_ms * 2;

	if (!blocked)
		lane->blocked_ms = 0;
	else if (!lane->blocked_ms)
		lane->blocked_ms = 1;
	else
		lane->blocked_ms =
			longer < SODA_MSG_LINK_BLOCKED_MS ? longer : SODA_MSG_LINK_BLOCKED_MS;
	lane->retry_ns = soda_msg_now_ns() + lane->blocked_ms * (uint64_t)NS_PER_MS;
}

/* A lane's packets have left it, and others, perhaps, were refused: those are loaded again. */
static void settle_lane(struct soda_lane *lane, const struct soda_flights *all, uint64_t number,
			bool refused)
{
	if (number <= lane->stale)
		return; /* the refusal of one before it is known */
	set_blocked(lane, refused);
	if (!refused)
		return;
	lane->loaded = lane->head;
	lane->large_loaded = lane->large_at;
	lane->stale = all->made;
}

/* Packets of one lane, from the i-th on. The first that is another lane's. */
static uint32_t settle_packets(struct soda_msg_job *job, const struct soda_flights *all,
			       const struct soda_flight *f, uint32_t i, const uint8_t *taken)
{
	uint32_t rank = f->of[i].rank, refused = 0;
	struct soda_lane *lane = &job->lanes[rank];

	for (; i < f->push.packets && f->of[i].rank == rank; i++) {
		lane->flying--;
		refused += !taken[i];
		if (taken[i] && f->of[i].part)
			soda_lane_pass_part_locked(job, rank, f->of[i].part);
		else if (taken[i])
			lane->head++;
	}
	job->stats.refused += refused;
	settle_lane(lane, all, f->push.number, refused);
	return i;
}

int soda_flights_settle_locked(struct soda_msg_job *job, struct soda_flights *all,
			       const uint8_t *taken, size_t n)
{
	const struct soda_flight *f = soda_flight(all, all->answered + 1);

	if (n != f->push.packets || !in_order(job, f, taken))
		return -EPROTO;
	all->answered++;
	for (uint32_t i = 0; i < f->push.packets;)
		i = settle_packets(job, all, f, i, taken);
	all->taken = memchr(taken, 0, n) ? 0 : all->taken + 1;
	soda_msg_news_locked(job);
	return 0;
}
