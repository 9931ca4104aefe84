/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a data connection by tcp makes of an error of its socket.  A filter (seccomp) has the kernel
 * answer so; it stays, so that each case is a process of its own.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/tcp/tcp.h"

enum { BYTES = 4096, CANNOT = 200, OTHER = 201 };

static int answer_with(long call, int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* A READ, or nothing, is under way when the system call fails so: the connection's error. */
static int outcome(long call, int err, bool reads)
{
	static uint8_t memory[BYTES];
	const struct soda_conn_options opt = { .kind = SODA_CONN_DATA, .depth = 4 };
	const struct soda_mr mr = { .bytes = BYTES };
	struct soda_conn *conn;
	struct soda_done done;
	int fds[2], ret = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ||
	    soda_tcp_data_create(fds[0], "peer", &opt, &conn))
		return OTHER;
	conn->max_data = SODA_WIRE_MAX_DATA;
	if (answer_with(call, err))
		return CANNOT;
	if (reads)
		ret = soda_conn_post_read(conn, &mr, 0, BYTES, memory, 0);
	if (!ret)
		ret = soda_conn_flush(conn, false);
	if (!ret)
		ret = soda_conn_poll(conn, &done, 1, 0, 0);
	return ret < 0 ? -ret : OTHER;
}

static void expect(long call, int err, bool reads, int want)
{
	pid_t pid = fork();
	int status;

	assert_return_code(pid, errno);
	if (!pid)
		_exit(outcome(call, err, reads));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == CANNOT) {
		print_message("SKIP: this kernel has no filters of system calls\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), want);
}

/* The kernel's TLS: a record was changed on its way, or is none of data. A lost connection. */
static void errors_of_tls(void **state)
{
	expect(SYS_recvmsg, EBADMSG, true, EPROTO);
	expect(SYS_recvmsg, EIO, true, EPROTO);
	expect(SYS_recvfrom, EBADMSG, false, EPROTO); /* nothing is under way */
	expect(SYS_sendmsg, EBADMSG, true, EPROTO);
}

/* What else there is stays what it is. */
static void other_errors(void **state)
{
	expect(SYS_recvmsg, ECONNRESET, true, ECONNRESET);
	expect(SYS_sendmsg, EFAULT, true, EFAULT); /* the data of a WRITE may not be read */
	expect(SYS_sendmsg, EPIPE, true, ECONNRESET);
	expect(SYS_recvfrom, ETIMEDOUT, false, ETIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_of_tls),
		cmocka_unit_test(other_errors),
	};

	return cmocka_run_group_tests_name("tcp_errors", tests, NULL, NULL);
}
