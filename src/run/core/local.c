/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `--threshold auto`: blocks below the threshold are local while there is room for them, and in
 * fabric memory from then on.  A thread that has asked for STEP bytes of them looks how much
 * anonymous memory the process has resident that is not fabric memory, and what the other processes
 * of this `soda run` have noted for themselves.  What is local stays so: its addresses are known to
 * the program.  docs/internals/small-blocks.md says why.
 */
#include "run/core/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

enum { STEP = 1 << 20 };

static uint64_t limit;	     /* bytes that all processes may have local; constant */
static _Atomic bool moved;   /* new small blocks of this process are in fabric memory */
static _Atomic bool looking; /* one thread at a time */

static __thread size_t asked __attribute__((tls_model("initial-exec")));

void run_local_start(uint64_t bytes)
{
	limit = bytes;
}

/* Anonymous memory of this process that is resident, in bytes; -1: /proc does not tell. */
static int64_t anonymous(void)
{
	long long all, resident, shared;
	char text[128];
	ssize_t n;
	int fd;

	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return -1;
	text[n] = 0;
	if (sscanf(text, "%lld %lld %lld", &all, &resident, &shared) != 3)
		return -1;
	return (resident - shared) * sysconf(_SC_PAGESIZE);
}

int64_t run_local_bytes(void)
{
	int64_t bytes = anonymous();

	if (bytes >= 0 && atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		bytes -= soda_buffer_used(&soda_agent.buffer) * (int64_t)soda_chunk_bytes();
	return bytes;
}

static void look(void)
{
	int64_t bytes = run_local_bytes();
	char text[16];

	if (bytes >= 0 && run_share_local(bytes) <= (int64_t)limit)
		return;
	atomic_store(&moved, true);
	atomic_store_explicit(&run_settings.threshold, 1, memory_order_relaxed);
	if (bytes < 0)
		soda_log_warning("soda run: process %d: /proc/self/statm does not tell how much "
				 "memory is local: small blocks are in fabric memory from now on",
				 getpid());
	else
		soda_log_info("soda run: process %d has %s local: small blocks are in fabric "
			      "memory from now on",
			      getpid(), soda_format_size((uint64_t)bytes, text));
}

void run_local_asked(size_t bytes)
{
	int saved = errno;

	if (!limit || atomic_load_explicit(&moved, memory_order_relaxed) || run_rings_held())
		return;
	asked += bytes;
	if (asked < STEP || run_inside || atomic_exchange(&looking, true))
		return;
	asked = 0;
	run_inside++;
	look();
	run_inside--;
	atomic_store(&looking, false);
	errno = saved;
}
