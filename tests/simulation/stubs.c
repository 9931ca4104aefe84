/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the host agent that begin other programs, or speak with nobody but the kernel. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "host_agent/pages/signals.h"
#include "host_agent/life/start.h"
#include "host_agent/core/helper.h"
#include "host_agent/life/stats.h"
#include "host_agent/life/trace.h"
#include "transport/api/memory.h"
#include "base/numa/numa_node.h"

int soda_private_start(const char *program, int timeout_ms, char *address, size_t address_bytes,
		       struct soda_why *why)
{
	return -ENOTSUP;
}

bool soda_private_started(void)
{
	return false;
}

void soda_private_stop(void)
{
}

int soda_signals_take(int sig, const struct sigaction *ours)
{
	return 0;
}

void soda_signals_give_back(int sig)
{
}

void soda_signals_chain(int sig, siginfo_t *info, void *context)
{
	abort();
}

void soda_stat_socket_start(void)
{
}

void soda_stat_socket_stop(void)
{
}

int soda_stat_socket_fd(void)
{
	return -1;
}

void soda_stat_socket_serve(void)
{
}

int soda_trace_start(const char *path, uint64_t bytes, const struct soda_page_ops **ops_p,
		     struct soda_why *why)
{
	return -ENOTSUP;
}

void soda_trace_stop(void)
{
}

void soda_trace_forget(void)
{
}

void soda_numa_detect(const struct soda_conn *control)
{
}

void soda_numa_run_here(void)
{
}

void soda_numa_place(void *addr, size_t bytes)
{
}
