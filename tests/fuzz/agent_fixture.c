/* SPDX-License-Identifier: BSD-3-Clause */
/* The DPU agent (agent.h) in front of a memory server that is a process of its own. */
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "calls.h"
#include "dpu_agent/life/agent.h"

enum { PATIENCE_MS = 30000 };

static char address[64];

/* It ends with us: a pipe of which only we have the other end. */
static void start_server(void)
{
	static char program[512], listen[sizeof(address) + 16], parent[32], export_dir[300];
	char *argv[] = { program,
			 listen,
			 parent,
			 export_dir,
			 (char *)(uintptr_t) "--capacity=64M",
			 (char *)(uintptr_t) "--quota=24M",
			 (char *)(uintptr_t) "--grace=0",
			 (char *)(uintptr_t) "--populate=no",
			 (char *)(uintptr_t) "--log=error",
			 NULL };
	extern char **environ;
	int ends[2];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 64);
	pid_t pid;

	FUZZ_MUST(n > 0);
	program[n] = 0;
	for (int up = 0; up < 3; up++)
		*strrchr(program, '/') = 0;
	strcat(program, "/src/mem_server/soda-mem-server");
	FUZZ_MUST(pipe(ends) == 0);
	FUZZ_MUST(fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0);
	snprintf(address, sizeof(address), "shm://@soda-fuzz-%d", (int)getpid());
	snprintf(listen, sizeof(listen), "--listen=%s", address);
	snprintf(parent, sizeof(parent), "--parent-fd=%d", ends[0]);
	snprintf(export_dir, sizeof(export_dir), "--export=%s", fuzz_export_dir());
	FUZZ_MUST(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0);
	close(ends[0]);
}

static void await_server(void)
{
	uint64_t end = soda_dpu_now_ms() + PATIENCE_MS;
	struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					 .version = SODA_WIRE_VERSION,
					 .epoch = 1 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = 1000 };
	struct soda_wire_welcome welcome;
	struct soda_why why;
	struct soda_conn *conn;

	while (soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why) < 0) {
		FUZZ_MUST(soda_dpu_now_ms() < end);
		usleep(10000);
	}
	soda_conn_close(conn);
}

void fuzz_service_start(void)
{
	fuzz_export_restore();
	start_server();
	await_server();
	fuzz_agent_start(address, true);
}

void fuzz_service_begin(struct fuzz_input *in)
{
}

void fuzz_service_end(void)
{
	fuzz_agent_await_idle();
}
