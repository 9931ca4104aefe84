/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "messages/job.h"
#include "wire/field.h"

enum { RUN = 8 }; /* bytes before the messages of a run */

uint8_t *soda_lane_slot(struct soda_msg_job *job, uint32_t rank, uint32_t slot)
{
	return job->slots +
	       ((size_t)rank * SODA_LANE_SLOTS + slot % SODA_LANE_SLOTS) * job->slot_bytes;
}

bool soda_lane_open_locked(const struct soda_lane *lane)
{
	return lane->tail - lane->head < SODA_LANE_SLOTS && lane->messages;
}

static uint32_t padded(uint32_t bytes)
{
	return (bytes + 7) & ~7u;
}

/* End the open slot's last run: its count, and zeros up to a multiple of 8. */
static void end_run(struct soda_lane *lane, uint8_t *slot)
{
	uint32_t *bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];

	if (!lane->run)
		return;
	soda_wire_put_u32(slot + lane->run + 4, lane->run_count);
	memset(slot + *bytes, 0, padded(*bytes) - *bytes);
	*bytes = padded(*bytes);
	lane->run = 0;
}

void soda_lane_close_locked(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];
	uint8_t *slot = soda_lane_slot(job, rank, lane->tail);
	uint32_t *bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];
	struct soda_wire_msg_packet p = { .rank = rank, .messages = lane->messages };

	end_run(lane, slot);
	p.bytes = *bytes - SODA_WIRE_MSG_PACKET_BYTES;
	soda_wire_put_msg_packet(slot, &p);
	lane->messages = 0;
	soda_lane_put_locked(job, rank, *bytes);
}

void soda_lane_put_locked(struct soda_msg_job *job, uint32_t rank, uint32_t bytes)
{
	struct soda_lane *lane = &job->lanes[rank];

	lane->bytes[lane->tail % SODA_LANE_SLOTS] = bytes;
	if (soda_msg_has_rings(job)) {
		job->stats.sent_calls++;
		job->stats.sent_bytes += bytes;
		soda_rings_put(&job->rings, rank, lane->tail, bytes);
	}
	lane->tail++;
}

uint32_t soda_lane_used_locked(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (soda_msg_has_rings(job)) {
		uint32_t taken = soda_rings_taken(&job->rings, rank);

		/* an agent that says anything else is of no use, and is not followed */
		if (taken - lane->head <= lane->tail - lane->head)
			lane->head = taken;
	}
	return lane->tail - lane->head;
}

/* The lane has something to send, now or after the time that messages wait. */
static void wake_sender_locked(struct soda_msg_job *job, bool now)
{
	if (now || job->sleeping)
		soda_msg_work_locked(job);
}

static bool fits(const struct soda_msg_job *job, const struct soda_lane *lane, uint32_t bytes)
{
	uint32_t at = lane->bytes[lane->tail % SODA_LANE_SLOTS];

	if (lane->run && lane->run_size == bytes)
		return padded(at + bytes) <= job->slot_bytes;
	return padded(at) + RUN + padded(bytes) <= job->slot_bytes;
}

static void begin_slot(struct soda_msg_job *job, struct soda_lane *lane)
{
	lane->bytes[lane->tail % SODA_LANE_SLOTS] = SODA_WIRE_MSG_PACKET_BYTES;
	lane->run = 0;
	lane->since_ns = soda_msg_now_ns();
	wake_sender_locked(job, false);
}

/* A message that fits into a slot. */
static int push_small_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
			     uint32_t size)
{
	struct soda_lane *lane = &job->lanes[rank];
	uint32_t *bytes;
	uint8_t *slot;

	if (lane->tail - lane->head < SODA_LANE_SLOTS && lane->messages && !fits(job, lane, size)) {
		soda_lane_close_locked(job, rank);
		if (!soda_msg_has_rings(job))
			wake_sender_locked(job, true);
	}
	if (lane->tail - lane->head == SODA_LANE_SLOTS &&
	    soda_lane_used_locked(job, rank) == SODA_LANE_SLOTS)
		return -EAGAIN;
	if (!lane->messages)
		begin_slot(job, lane);
	slot = soda_lane_slot(job, rank, lane->tail);
	bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];
	if (!lane->run || lane->run_size != size) {
		end_run(lane, slot);
		lane->run = *bytes;
		lane->run_size = size;
		lane->run_count = 0;
		soda_wire_put_u32(slot + *bytes, size);
		*bytes += RUN;
	}
	if (size == sizeof(uint64_t)) /* the most frequent one, without a call */
		memcpy(slot + *bytes, data, sizeof(uint64_t));
	else if (size)
		memcpy(slot + *bytes, data, size);
	*bytes += size;
	lane->run_count++;
	lane->messages++;
	return 0;
}

/* A message that the sender cuts into parts. */
static int push_large_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
			     uint32_t size)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (lane->large)
		return -EAGAIN;
	lane->large = malloc(size);
	if (!lane->large)
		return soda_msg_failed(-ENOMEM, "no memory for a message of %u bytes", size);
	memcpy(lane->large, data, size);
	lane->large_bytes = size;
	lane->large_at = 0;
	wake_sender_locked(job, true);
	return 0;
}

static int push_locked(struct soda_msg_job *job, uint32_t rank, const void *data, uint32_t size)
{
	int ret = soda_msg_error_locked(job);

	if (ret < 0)
		return ret;
	if (job->finish)
		return soda_msg_failed(-EPIPE, "this rank has said that it pushes no more"
					       " (soda_msg_finish)");
	if (size > SODA_MSG_LARGE ||
	    SODA_WIRE_MSG_PACKET_BYTES + RUN + padded(size) > job->slot_bytes)
		ret = push_large_locked(job, rank, data, size);
	else
		ret = push_small_locked(job, rank, data, size);
	if (ret == 0) {
		job->stats.pushed++;
		job->stats.pushed_bytes += size;
	} else if (ret == -EAGAIN) {
		job->stats.stalls++;
		job->denied = rank;
	}
	return ret;
}

SODA_API int soda_msg_push(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	if (rank >= job->ranks)
		return soda_msg_failed(-EINVAL, "there is no rank %u: the job has %u", rank,
				       job->ranks);
	if (bytes > SODA_MSG_BYTES_MAX)
		return soda_msg_failed(-EMSGSIZE, "a message has at most %u bytes, not %zu",
				       SODA_MSG_BYTES_MAX, bytes);
	pthread_mutex_lock(&job->lock);
	ret = push_locked(job, rank, data, (uint32_t)bytes);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

bool soda_msg_under_way_locked(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks; i++)
		if (soda_lane_used_locked(job, i))
			return true;
	return false;
}

void soda_msg_flush_locked(struct soda_msg_job *job)
{
	if (!soda_msg_has_rings(job)) {
		job->flush = true;
		soda_msg_work_locked(job);
		return;
	}
	for (uint32_t i = 0; i < job->ranks; i++)
		if (soda_lane_open_locked(&job->lanes[i]))
			soda_lane_close_locked(job, i);
}

SODA_API int soda_msg_progress(struct soda_msg_job *job)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	soda_msg_flush_locked(job);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

SODA_API int soda_msg_finish(struct soda_msg_job *job)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	if (ret == 0 && job->finish)
		ret = soda_msg_failed(-EPIPE, "this rank has finished already");
	if (ret == 0) {
		job->finish = true;
		soda_msg_work_locked(job);
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}
