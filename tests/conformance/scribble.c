/* SPDX-License-Identifier: BSD-3-Clause */
#include "conformance/scribble.h"

#include "base/lock.h"
#include "messages/job.h"

bool scribble_has_rings(const struct soda_msg_job *job)
{
	return soda_msg_has_rings(job);
}

static void scribble_all(struct soda_rings *rings, uint64_t seed)
{
	_Atomic uint32_t *words = (_Atomic uint32_t *)rings->out;
	size_t n = (size_t)(rings->slots - (uint8_t *)rings->out) / sizeof(*words);

	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		atomic_store(&words[i], (uint32_t)(seed >> 32));
	}
}

void scribble_into(struct soda_msg_job *job, enum scribble what, uint64_t seed)
{
	struct soda_rings *rings = &job->rings;
	struct soda_rings_out *out = rings->out;

	switch (what) {
	case SCRIBBLE_TAIL:
		atomic_store(&rings->tails[2], (uint32_t)seed | SODA_RING_SLOTS * 2);
		break;
	case SCRIBBLE_SIZE:
		atomic_store(&rings->bytes[0], UINT32_MAX);
		atomic_store(&rings->tails[0], 1);
		break;
	case SCRIBBLE_PULLED:
		atomic_store(&out->pulled, seed | 1ull << 63);
		break;
	case SCRIBBLE_ENDED:
		atomic_store(&out->ended, (uint32_t)seed | 8);
		break;
	default:
		scribble_all(rings, seed);
	}
	atomic_fetch_add(&out->doorbell, 1);
	soda_futex_wake_shared(&out->doorbell, 1);
}
