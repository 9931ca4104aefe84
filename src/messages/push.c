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
	lane->tail++;
}

/* The lane has something to send, now or after the time that messages wait. */
static void wake_sender_locked(struct soda_msg_job *job, bool now)
{
	if (now || job->sleeping)
		pthread_cond_signal(&job->work);
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
		wake_sender_locked(job, true);
	}
	if (lane->tail - lane->head == SODA_LANE_SLOTS)
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
	if (size)
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

SODA_API int soda_msg_progress(struct soda_msg_job *job)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	job->flush = true;
	pthread_cond_signal(&job->work);
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
		pthread_cond_signal(&job->work);
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}
