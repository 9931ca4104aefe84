/* SPDX-License-Identifier: BSD-3-Clause */
/* Children: start, await, judge. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/proc.h"

extern char **environ;

static int turn_fd = -1;   /* this side's end of the socket pair */
static pid_t child_pid;	   /* in the parent, while a trial runs */
static struct limit limit; /* of the trial */

void turn_pass(void)
{
	send(turn_fd, "", 1, MSG_NOSIGNAL); /* to one that has ended: await tells */
}

bool turn_await(void)
{
	struct pollfd p = { .fd = turn_fd, .events = POLLIN };
	char c;

	while (!poll(&p, 1, LIMIT_LOOK_MS))
		if (limit_over(&limit))
			return false;
	return read(turn_fd, &c, 1) == 1;
}

pid_t child_stop(void)
{
	siginfo_t info = { 0 };

	kill(child_pid, SIGSTOP);
	/* WNOWAIT: how it ended is for trial_run to see */
	if (waitid(P_PID, (id_t)child_pid, &info, WSTOPPED | WEXITED | WNOWAIT))
		return 0;
	return info.si_code == CLD_STOPPED ? child_pid : 0;
}

void child_continue(void)
{
	kill(child_pid, SIGCONT);
}

void *shared_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* What the developer's shell sets for soda must not change what is tested. */
static void clean_environment(void)
{
	static const char *const keep[] = {
		"SODA_MECHANISMS=", "SODA_MODE=",	"SODA_EVICT=", "SODA_SEAL=",
		"SODA_BUILD_DIR=",  "SODA_SOURCE_DIR=", "SODA_TEST_"
	};
	char name[128];

again:
	for (char **e = environ; *e; e++) {
		bool kept = strncmp(*e, "SODA_", 5) != 0;

		for (size_t i = 0; i < sizeof(keep) / sizeof(keep[0]); i++)
			kept = kept || strncmp(*e, keep[i], strlen(keep[i])) == 0;
		if (kept)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		unsetenv(name);
		goto again;
	}
}

/* cmocka catches crashes to go on with the next test; a child is to die of them. */
static void default_signals(void)
{
	static const int caught[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS };

	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		signal(caught[i], SIG_DFL);
}

static _Noreturn void child_main(const struct trial *t, int err_fd)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(err_fd, STDERR_FILENO);
	default_signals();
	clean_environment();
	t->child(t->arg);
	exit(0);
}

/* The child is gone, or has been killed with all that it started. */
static void await_child(pid_t pid, int pidfd, struct outcome *out)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	do
		out->hung = poll(&p, 1, LIMIT_LOOK_MS) == 0;
	while (out->hung && !limit_over(&limit));
	if (out->hung) {
		limit_tell("a case");
		kill(-pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &out->status, 0), pid);
}

/* Handler mode of an ordinary user says what it cannot do, as it should, at each start. */
static void remove_documented_warning(char *text)
{
	static const char warning[] = "soda: warning: faults inside system calls are not served";
	char *begin, *end;

	while (geteuid() && (begin = strstr(text, warning)) && (end = strchr(begin, '\n')))
		memmove(begin, end + 1, strlen(end + 1) + 1);
}

static void read_err(int fd, struct outcome *out)
{
	ssize_t n = pread(fd, out->err, sizeof(out->err) - 1, 0);

	out->err[n > 0 ? n : 0] = '\0';
	remove_documented_warning(out->err);
}

void trial_run(const struct trial *t, struct outcome *out)
{
	int turns[2], err_fd = proc_output("stderr"), pidfd;
	double begin = now_seconds();
	int outer_fd = turn_fd; /* of a trial that runs this one beside itself */
	pid_t outer_pid = child_pid, pid;
	struct limit outer_limit = limit;

	assert_return_code(err_fd, errno);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, turns), errno);
	fflush(NULL);
	limit_begin(&limit, (t->seconds ? t->seconds : CASE_SECONDS) * 1000l);
	pid = fork();
	assert_return_code(pid, errno);
	if (!pid) {
		close(turns[0]);
		turn_fd = turns[1];
		child_main(t, err_fd);
	}
	setpgid(pid, pid);
	child_pid = pid;
	close(turns[1]);
	turn_fd = turns[0];
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_return_code(pidfd, errno);
	if (t->during)
		t->during(t->arg);
	await_child(pid, pidfd, out);
	out->seconds = now_seconds() - begin;
	read_err(err_fd, out);
	close(pidfd);
	close(err_fd);
	close(turns[0]);
	turn_fd = outer_fd;
	child_pid = outer_pid;
	limit = outer_limit;
}

static void show(const struct outcome *out)
{
	if (out->hung)
		print_error("hung: killed after %.0f s\n", out->seconds);
	else if (WIFSIGNALED(out->status))
		print_error("ended by signal %d (%s)\n", WTERMSIG(out->status),
			    strsignal(WTERMSIG(out->status)));
	else
		print_error("exited with %d\n", WEXITSTATUS(out->status));
	/* not print_error, which cuts long texts off: the last line is the one that tells */
	fprintf(stderr, "its stderr: %s\n", out->err[0] ? out->err : "(nothing)");
}

static void expect(const struct outcome *out, bool ok, const char *what)
{
	if (ok && !out->hung)
		return;
	print_error("expected: %s\n", what);
	show(out);
	fail();
}

void expect_exit(const struct outcome *out, int code)
{
	expect(out, WIFEXITED(out->status) && WEXITSTATUS(out->status) == code, "an exit");
}

void expect_quiet_success(const struct outcome *out)
{
	expect_exit(out, 0);
	expect(out, !out->err[0], "nothing on stderr");
}

void expect_signal(const struct outcome *out, int signal)
{
	expect(out, WIFSIGNALED(out->status) && WTERMSIG(out->status) == signal, strsignal(signal));
}

void expect_one_line(const struct outcome *out, ...)
{
	const char *end = strchr(out->err, '\n'), *word;
	va_list words;

	expect(out, end && !end[1], "one line on stderr");
	va_start(words, out);
	while ((word = va_arg(words, const char *)))
		expect(out, strstr(out->err, word) != NULL, word);
	va_end(words);
}

void expect_says(const struct outcome *out, const char *text)
{
	expect(out, strstr(out->err, text) != NULL, text);
}

void expect_passes(void (*child)(const void *arg), const void *arg)
{
	struct trial t = { .child = child, .arg = arg };
	struct outcome out;

	trial_run(&t, &out);
	expect_quiet_success(&out);
}
