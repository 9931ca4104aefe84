/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that starts anew finds its variables as the linker left them. Not each simulation has
 * all programs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nodes.h"
#include "fibers.h"
#include "seeds.h"

#define SECTIONS(name)                                                                             \
	extern char __start_sim_##name##_data[] __attribute__((weak)),                             \
		__stop_sim_##name##_data[] __attribute__((weak)),                                  \
		__start_sim_##name##_bss[] __attribute__((weak)),                                  \
		__stop_sim_##name##_bss[] __attribute__((weak));

SECTIONS(agent)
SECTIONS(server)
SECTIONS(server2)
SECTIONS(server3)
SECTIONS(server4)
SECTIONS(server5)
SECTIONS(server6)
SECTIONS(server7)
SECTIONS(host1)
SECTIONS(host2)
SECTIONS(host3)
SECTIONS(host4)

enum { PAGE = 4096 };

/* Variables with a value, and those that begin as zero. */
struct part {
	char *start, *stop, *copy; /* of the first kind */
};

#define PARTS(name)                                                                                \
	{                                                                                          \
		{ __start_sim_##name##_data, __stop_sim_##name##_data, NULL },                     \
		{                                                                                  \
			__start_sim_##name##_bss, __stop_sim_##name##_bss, NULL                    \
		}                                                                                  \
	}

static struct part parts[SIM_PROCESSES][2] = {
	[SIM_AGENT] = PARTS(agent),	   [SIM_SERVER] = PARTS(server),
	[SIM_SERVER + 1] = PARTS(server2), [SIM_SERVER + 2] = PARTS(server3),
	[SIM_SERVER + 3] = PARTS(server4), [SIM_SERVER + 4] = PARTS(server5),
	[SIM_SERVER + 5] = PARTS(server6), [SIM_SERVER + 6] = PARTS(server7),
	[SIM_HOST] = PARTS(host1),	   [SIM_HOST2] = PARTS(host2),
	[SIM_HOST2 + 1] = PARTS(host3),	   [SIM_HOST2 + 2] = PARTS(host4),
};

void sim_memory_prepare(void)
{
	for (int p = 0; p < SIM_PROCESSES; p++) {
		struct part *data = &parts[p][0];
		size_t bytes = (size_t)(data->stop - data->start);

		if (!bytes)
			continue;
		data->copy = malloc(bytes);
		memcpy(data->copy, data->start, bytes);
	}
}

#ifdef SIM_COVERAGE
/* The counters of what was executed lie among the variables. */
void __gcov_dump(void);
void __gcov_reset(void);
#else
static void __gcov_dump(void)
{
}

static void __gcov_reset(void)
{
}
#endif

/* Most of it was never touched: whole pages are the kernel's zeros again. */
static void zero(char *start, char *stop)
{
	char *first = (char *)(((uintptr_t)start + PAGE - 1) & -(uintptr_t)PAGE);
	char *last = (char *)((uintptr_t)stop & -(uintptr_t)PAGE);

	if (first >= last || madvise(first, (size_t)(last - first), MADV_DONTNEED)) {
		memset(start, 0, (size_t)(stop - start));
		return;
	}
	memset(start, 0, (size_t)(first - start));
	memset(last, 0, (size_t)(stop - last));
}

void sim_memory_fresh(int p)
{
	const struct part *data = &parts[p][0];

	__gcov_dump();
	memcpy(data->start, data->copy, (size_t)(data->stop - data->start));
	zero(parts[p][1].start, parts[p][1].stop);
	__gcov_reset();
}
