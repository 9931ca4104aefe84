/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker process.  Its parent sends a plan and reads soda_bench_ready; then each
 * round (flags) that it asks for is answered by a soda_bench_sample, until end of file.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "soda/bench/worker/worker.h"

static int answer(int fd, const void *data, size_t bytes)
{
	return write(fd, data, bytes) == (ssize_t)bytes ? 0 : -EPIPE;
}

static int serve_rounds(int fd, struct soda_bench_team *team)
{
	struct soda_bench_sample sample;
	uint32_t flags;
	int err;

	while (read(fd, &flags, sizeof(flags)) == (ssize_t)sizeof(flags)) {
		soda_bench_team_round(team, flags, &sample);
		err = answer(fd, &sample, sizeof(sample));
		if (err || sample.err)
			return err ? err : sample.err;
	}
	return 0;
}

int soda_bench_worker_run(int fd)
{
	const struct soda_bench_memory *memory;
	struct soda_bench_ready ready = { 0 };
	struct soda_bench_plan plan;
	struct soda_bench_team *team = NULL;
	uint64_t *words;
	int err;

	if (read(fd, &plan, sizeof(plan)) != (ssize_t)sizeof(plan))
		return 1;
	memory = plan.floor	? &soda_bench_floor
		 : plan.file[0] ? &soda_bench_soda_file
				: &soda_bench_soda;
	ready.err = memory->open(&plan, &words, &ready);
	if (!ready.err) {
		ready.err = soda_bench_team_create(&plan, memory, words, &team);
		if (ready.err)
			snprintf(ready.why, sizeof(ready.why), "cannot fill the region: %s",
				 strerror(-ready.err));
	}
	if (!ready.err && memory->prepare)
		ready.err = memory->prepare(&plan, &ready);
	err = answer(fd, &ready, sizeof(ready));
	if (err || ready.err)
		return 1;
	err = serve_rounds(fd, team);
	soda_bench_team_destroy(team);
	memory->close();
	return err ? 1 : 0;
}
