/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rank this process is, of how many, of which job, and the job's secret: as `soda msg run`,
 * mpirun or srun tells it in the environment.  Nothing is asked of a launcher, so a program may use
 * MPI as well.
 *
 *   launcher            rank                    ranks                   the job's name
 *   soda msg run, user  SODA_MSG_RANK           SODA_MSG_RANKS          SODA_MSG_JOB
 *   mpirun, Open MPI    OMPI_COMM_WORLD_RANK    OMPI_COMM_WORLD_SIZE    ompi.PMIX_NAMESPACE
 *   srun                SLURM_PROCID            SLURM_STEP_NUM_TASKS
 * slurm.SLURM_JOB_ID.SLURM_STEP_ID mpirun, MPICH, PMI  PMI_RANK                PMI_SIZE
 * pmi.PMI_JOBID, where it is set PMIx                PMIX_RANK               SODA_MSG_RANKS
 * pmix.PMIX_NAMESPACE
 *
 * The first line of which the rank is set counts.  SODA_MSG_RANKS and SODA_MSG_JOB come before
 * what the launcher says.
 */
#ifndef SODA_MESSAGES_LAUNCH_H
#define SODA_MESSAGES_LAUNCH_H

#include <stdint.h>

#include "transport/api/transport.h"
#include "wire/wire.h"

enum {
	SODA_LAUNCH_KEY_MIN = 16, /* bytes of a key out of a file */
	SODA_LAUNCH_KEY_MAX = 1024,
};

struct soda_launch {
	uint32_t rank, ranks;
};

/* 0; -EINVAL: no launcher, or what it says is no rank; why has a sentence. */
int soda_launch_find(struct soda_launch *launch_p, struct soda_why *why);

/* The job's name. 0; -EINVAL: the launcher gives none, or it is too long. */
int soda_launch_name(char name[SODA_WIRE_MAX_NAME + 1], struct soda_why *why);

/*
 * The job's secret: SODA_MSG_KEY, or the first line of the file SODA_MSG_KEY_FILE, which must be
 * this user's and nobody else's to read or write; "" where neither is set. 0; -EINVAL: no
 * such key; -EACCES: others may read or write the file; errors of open(2) and read(2).
 */
int soda_launch_key(char key[SODA_LAUNCH_KEY_MAX + 1], struct soda_why *why);

/* How messages are gathered: SODA_MSG_PACKET, SODA_MSG_SLOTS, SODA_MSG_FLUSH_US. */
struct soda_launch_sizes {
	uint32_t packet_bytes; /* of a packet, at most: 4 KiB to SODA_MSG_PACKET_MAX, whole words */
	uint32_t slots;	       /* packets of a lane, 1 to SODA_RING_SLOTS */
	uint32_t flush_us;
};

/* What the environment says of them, and what is usual. 0; -EINVAL: it says no such number. */
int soda_launch_sizes(struct soda_launch_sizes *sizes_p, struct soda_why *why);

#endif
