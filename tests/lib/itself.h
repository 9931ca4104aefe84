/* SPDX-License-Identifier: BSD-3-Clause */
/* Things that a process may do to itself once it runs: each is for good, and returns whether
 * it was done. */
#ifndef SODA_TEST_ITSELF_H
#define SODA_TEST_ITSELF_H

#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* No file is to grow, no descriptor or thread to come, no page to be locked, no memory to be had.
 */
static inline bool lower_limits(void)
{
	static const struct {
		int what;
		rlim_t most;
	} limits[] = {
		{ RLIMIT_NOFILE, 16 },	{ RLIMIT_FSIZE, 0 },	     { RLIMIT_NPROC, 1 },
		{ RLIMIT_MEMLOCK, 0 },	{ RLIMIT_STACK, 256 << 10 }, { RLIMIT_DATA, 1 << 20 },
		{ RLIMIT_AS, 1 << 20 },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (setrlimit(limits[i].what, &(struct rlimit){ limits[i].most, limits[i].most }))
			return false;
	return true;
}

/* Another root directory, and another user, as far as it may; nobody may trace it. */
static inline bool change_identity(void)
{
	char dir[] = "/tmp/soda-itself-XXXXXX";

	if (prctl(PR_SET_DUMPABLE, 0))
		return false;
	if (geteuid())
		return true;
	if (!mkdtemp(dir) || chdir(dir) || rmdir(dir) || chroot("."))
		return false;
	return !setgroups(0, NULL) && !setgid(65534) && !setuid(65534) && setuid(0) == -1;
}

/* From now on these system calls are refused: files, sockets, threads, programs. */
static inline bool forbid_calls(void)
{
#define REFUSED(name)                                                                              \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),                                     \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		REFUSED(openat),
		REFUSED(socket),
		REFUSED(connect),
		REFUSED(clone),
		REFUSED(clone3),
		REFUSED(execve),
		REFUSED(userfaultfd),
		REFUSED(memfd_create),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) &&
	       syscall(SYS_openat, -1, "/", 0) == -1 && errno == EPERM;
}

#endif
