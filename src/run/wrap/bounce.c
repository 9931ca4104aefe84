/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local memory between a system call and fabric memory.  The kernel reads and
 * writes the bounce buffer; the program's thread copies, and takes faults like other code.  So
 * system calls work in every mode and without privilege, with O_DIRECT, too, and on buffers larger
 * than the page buffer.
 */
#include "run/core/run.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The thread's own bounce buffer, and whether it is in use. */
static __thread void *kept __attribute__((tls_model("initial-exec")));
static __thread bool busy __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void give_back(void *p)
{
	kept = NULL;
	syscall(SYS_munmap, p, RUN_BOUNCE);
}

static void make_key(void)
{
	pthread_key_create(&key, give_back);
}

static void *fresh(size_t bytes)
{
	void *p = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* The thread's own, unless this is a signal handler that has interrupted its use. */
void *run_bounce_get(size_t bytes, size_t *bytes_p)
{
	*bytes_p = bytes > RUN_BOUNCE ? bytes : RUN_BOUNCE;
	if (bytes > RUN_BOUNCE || busy)
		return fresh(*bytes_p);
	busy = true;
	if (!kept && (kept = fresh(RUN_BOUNCE))) {
		pthread_once(&once, make_key);
		run_inside++;
		pthread_setspecific(key, kept);
		run_inside--;
	}
	if (!kept)
		busy = false;
	return kept;
}

void run_bounce_put(void *p, size_t bytes)
{
	if (p == kept)
		busy = false;
	else if (p)
		syscall(SYS_munmap, p, bytes);
}
