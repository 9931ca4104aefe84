/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda run`: programs that know nothing of SODA, from outside. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

static const char soda[] = "tools/soda/soda";
static const char victim[] = "tests/integration/run/run_victim";

static const char self[] = "tests/integration/run/test_run";

enum { CANNOT = 77, MAY = 78 }; /* exit status of as_nobody() */

static struct program p;
static bool ordinary; /* run what follows as an ordinary user */
static int forbidden; /* with a filter that makes userfaultfd(2) this error, 0: without */

static void run(const char *const *args)
{
	char error[16];
	const char *all[16] = { "--as-nobody", error, soda };
	size_t n = 3;

	snprintf(error, sizeof(error), "%d", forbidden);
	while (*args && n < 15)
		all[n++] = *args++;
	assert_null(*args);
	assert_int_equal(
		program_run_within(ordinary ? self : soda, ordinary ? all : all + 3, 240000, &p),
		0);
}
#define RUN(...) run((const char *const[]){ "run", __VA_ARGS__, NULL })

enum { INLINE, HANDLER };
static const char *const modes[] = { "inline", "handler" };

/* One case in one mode; `status`: of its end; said: what is in its standard error, NULL: nothing.
 */
static void run_mode(const char *name, int mode, const char *log, int status, const char *said)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	setenv("SODA_MODE", modes[mode], 1);
	setenv("SODA_LOG", log, 1);
	RUN("--mem", "8M", "--", path, name);
	if (p.status != status)
		fail_msg("%s, %s mode: status %d: %s", name, modes[mode], p.status, p.err);
	if (said ? !strstr(p.err, said) : p.err[0] != 0)
		fail_msg("%s, %s mode: it says: %s", name, modes[mode], p.err);
	unsetenv("SODA_MODE");
	unsetenv("SODA_LOG");
}

/* A case of the program, in a buffer much smaller than what it uses, in each mode. */
static void run_case(const char *name, const char *warning)
{
	for (int mode = 0; mode < 2; mode++)
		run_mode(name, mode, warning ? "warning" : "error", 0, warning);
}

static void test_blocks(void **state)
{
	run_case("malloc", NULL);
	run_case("brk", NULL);
}

/* May: memory | maps over FAM, moves, protects, locks and discards it | served */
static void test_maps(void **state)
{
	run_case("maps", NULL);
	run_case("linux", NULL);
	run_case("split", NULL);
	run_case("closed", NULL);
	run_case("mlockall", NULL);
	setenv("SODA_CHUNK", "64K", 1); /* large enough for chunks to be guessed to be stored to */
	run_case("closed", NULL);
	unsetenv("SODA_CHUNK");
}

static void test_calls(void **state)
{
	run_case("calls", NULL);
}

/*
 * With every block in fabric memory.
 *
 * May: the C library | ends detached threads, with each block in fabric memory | served
 */
static void test_loader(void **state)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	setenv("SODA_LOG", "error", 1);
	RUN("--mem", "8M", "--threshold", "1", "--", path, "loader");
	unsetenv("SODA_LOG");
	if (p.status)
		fail_msg("status %d: %s", p.status, p.err);
}

/*
 * May: the C library | hands it structures, names and vectors, by fortified and rarer forms
 * too | served
 */
static void test_kernel(void **state)
{
	run_case("ioctl", NULL);
	run_case("forms", NULL);
	run_case("small", NULL);
	run_case("every", NULL);
	run_case("times", NULL);
	run_case("pieces", NULL);
	run_case("rare", NULL);
}

/* May: signals | gives a stack in fabric memory to its handlers | served, by a local one */
static void test_alt_stacks(void **state)
{
	run_case("altstack", NULL);
}

/*
 * May: signals | blocks or takes SIGBUS by sighold(), sigset(), sigblock(), sysv_signal()
 * and the like | served
 * May: signals | enters a context whose mask blocks all | served
 */
static void test_older_names(void **state)
{
	run_case("old signals", NULL);
}

/* May: threads | ends a thread within pthread_once() | served */
static void test_once(void **state)
{
	run_case("once", NULL);
}

/*
 * May: limits and identity | lowers each of its limits (files, file sizes, threads, locked
 * memory, addresses) | served
 */
static void test_limits(void **state)
{
	run_case("limits", NULL);
}

/*
 * May: limits and identity | becomes another user in another root directory, which nobody
 * may trace | served
 */
static void test_identity(void **state)
{
	run_case("identity", NULL);
}

/*
 * May: limits and identity | forbids itself files, sockets, threads and programs by a filter
 * of system calls | served
 */
static void test_filter(void **state)
{
	run_case("filter", NULL);
}

/* Where the case has its file. */
static bool has_direct(void)
{
	char name[] = "/var/tmp/soda-run-XXXXXX";
	int plain = mkstemp(name), fd = open(name, O_RDWR | O_DIRECT);

	assert_true(plain >= 0);
	unlink(name);
	close(plain);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* May: the C library | reads and writes a file with O_DIRECT | served */
static void test_direct(void **state)
{
	if (!has_direct()) {
		print_message("SKIP: no O_DIRECT in /var/tmp\n");
		skip();
	}
	run_case("direct", NULL);
}

/* Transfers that go on while pages leave, by io_submit(), and many at once. */
static void test_submit(void **state)
{
	run_case("submit", NULL);
}

/* io_uring is refused with a sentence that says what to do, in each mode, and once. */
static void test_rings(void **state)
{
	const char *said;
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	for (int mode = 0; mode < 2; mode++) {
		run_mode("refused", mode, "warning", 0, "io_uring is refused to process");
		said = strstr(p.err, "--io-uring=hold");
		assert_non_null(said);
		assert_null(strstr(said + 1, "io_uring"));
	}
	setenv("SODA_LOG", "warning", 1);
	RUN("--mem", "8M", "--quiet", "--", path, "refused");
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err, "");
	RUN("--mem", "8M", "--io-uring=allow", "--", path, "allowed");
	if (p.status)
		fail_msg("status %d: %s", p.status, p.err);
	assert_string_equal(p.err, "");
	unsetenv("SODA_LOG");
}

/* docs/limits.md: with --io-uring=hold the program's fabric memory stays, and more is local. */
static void test_rings_held(void **state)
{
	static const char *const cases[] = { "rings-held", "rings-child" };
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	for (int mode = 0; mode < 2; mode++)
		for (int i = 0; i < 4; i++) {
			setenv("SODA_MODE", mode ? "handler" : "inline", 1);
			/* the page buffer is the tree's, and the program's own */
			RUN("--mem", "8M", "--io-uring=hold", i / 2 ? "--children=exec" : "--quiet",
			    "--", path, cases[i % 2]);
			if (p.status)
				fail_msg("%s, %d, %d: status %d: %s", cases[i % 2], mode, i,
					 p.status, p.err);
			if (strstr(p.out, "no rings here")) {
				unsetenv("SODA_MODE");
				print_message("SKIP: no io_uring here\n");
				skip();
			}
		}
	unsetenv("SODA_MODE");
}

/* A plug-in that was loaded with RTLD_DEEPBIND frees blocks of the program. */
static void test_plugin(void **state)
{
	run_case("plugin", NULL);
}

/*
 * docs/limits.md: a stack for signals may be fabric memory; one of a coroutine may not, in inline
 * mode, of which a line says so before the end.
 */
static void test_stacks(void **state)
{
	run_case("signals", NULL);
	run_mode("coroutine", INLINE, "warning", 128 + SIGSEGV,
		 "a coroutine's stack in fabric memory");
	assert_string_equal(p.out, "local\n");
	if (geteuid())
		return; /* nobody serves the kernel's faults */
	run_mode("coroutine", HANDLER, "error", 0, NULL);
	assert_string_equal(p.out, "local\nboth\n");
}

/* docs/limits.md: memory that is registered with a userfaultfd of the program's own. */
static void test_own_userfaultfd(void **state)
{
	run_case("own uffd", NULL);
}

/* A heap that is opened part by part is local, and one line says so, once there is something of it.
 */
static void test_reserved(void **state)
{
	char path[512];
	const char *said;

	snprintf(path, sizeof(path), "%s", build_path(victim));
	run_mode("reserved", INLINE, "warning", 0, "as a heap: what is there is local");
	said = strstr(p.err, "as a heap");
	assert_null(strstr(said + 1, "as a heap"));
	run_mode("at once", INLINE, "warning", 0, "as a heap: what is there is local");
	RUN("--quiet", "--mem", "8M", "--", path, "reserved");
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err, "");
}

/* The program, or SODA with a word: but handler mode says what it does not serve unprivileged. */
static bool failed(const char *mode)
{
	return p.status || (p.err[0] && (!strcmp(mode, "inline") || !geteuid()));
}

/*
 * Programs that become others, each with fabric memory of its own.
 *
 * May: children | becomes another program, with arguments in FAM | served
 */
static void test_exec(void **state)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	setenv("SODA_LOG", "warning", 1);
	for (int i = 0; i < 2; i++) {
		setenv("SODA_MODE", modes[i], 1);
		RUN("--mem=8M", "--children=all", "--", path, "become");
		if (failed(modes[i]))
			fail_msg("%s mode: status %d: %s", modes[i], p.status, p.err);
	}
	unsetenv("SODA_MODE");
	unsetenv("SODA_LOG");
}

/*
 * The program chooses numbers of descriptors, and closes what it has not opened.
 *
 * May: descriptors | closes one of the runtime's, or puts a file of its own there | refused
 * with EBADF, and a line: "onto descriptor"
 */
static void test_descriptors(void **state)
{
	run_case("descriptors", "onto descriptor");
}

/*
 * Where the C library is not asked, nothing can be spared: it ends, with a line, before it reads
 * zeros.
 *
 * May: descriptors | closes or replaces one of the runtime's past the wrappers | ended by
 * SIGABRT, which says "was closed or replaced by the program"
 */
static void test_robbed(void **state)
{
	for (int mode = 0; mode < 2; mode++) {
		run_mode("robbed", mode, "error", 128 + SIGABRT,
			 "was closed or replaced by the program");
		run_mode("replaced", mode, "error", 128 + SIGABRT,
			 "was closed or replaced by the program");
	}
}

/* May: threads | cancels a thread that is in malloc() | served */
static void test_cancel(void **state)
{
	run_case("cancel", NULL);
}

/* May: signals | waits with a mask that blocks SIGBUS, or starts a thread with one | served */
static void test_masks(void **state)
{
	run_case("masks", NULL);
}

enum { SHELL_TEXT = 6000000 };

/* Whether the file is that many 'a's, to be removed. */
static bool is_text(const char *path)
{
	char *got = calloc(1, SHELL_TEXT + 1);
	FILE *f = fopen(path, "r");
	bool same;

	assert_non_null(f);
	same = fread(got, 1, SHELL_TEXT + 1, f) == SHELL_TEXT && strspn(got, "a") == SHELL_TEXT;
	fclose(f);
	free(got);
	unlink(path);
	return same;
}

/*
 * Shells put files at low numbers: what they have in fabric memory comes out whole.
 *
 * May: descriptors | does as a shell's `exec 4>file` does, with each low number | served
 */
static void test_shell_numbers(void **state)
{
	static const char *const shells[] = { "/bin/dash", "/bin/bash" };
	static const char script[] =
		"x=$(head -c 6000000 /dev/zero | tr '\\0' a)\n"
		"exec 3</dev/null 5>/dev/null 6>/dev/null 7>/dev/null 8>/dev/null 9>/dev/null\n"
		"exec 4>\"$0\"; printf %s \"$x\" >&4; exec 3>&- 4>&- 5>&-\n"
		"test ${#x} = 6000000";
	char dir[] = "/tmp/soda-run-XXXXXX", out[64];

	assert_non_null(mkdtemp(dir));
	snprintf(out, sizeof(out), "%s/out", dir);
	setenv("SODA_LOG", "error", 1);
	for (size_t i = 0; i < 2; i++) {
		if (access(shells[i], X_OK))
			continue;
		RUN("--mem", "8M", "--threshold", "64K", "--quiet", "--", shells[i], "-c", script,
		    out);
		if (p.status || !is_text(out))
			fail_msg("%s: status %d: %s", shells[i], p.status, p.err);
	}
	unsetenv("SODA_LOG");
	rmdir(dir);
}

/* The functions of this library's table: those that it has (T, W) or those that it wants (U). */
static size_t symbols(const char *file, const char *kinds, char names[][40], size_t max)
{
	char command[600], line[300], kind, name[200];
	size_t n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "nm -D %s", build_path(file));
	f = popen(command, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*[0-9a-f] %c %199[^@ \n]", &kind, name) != 2 &&
		    sscanf(line, " %c %199[^@ \n]", &kind, name) != 2)
			continue;
		if (strchr(kinds, kind) && strncmp(name, "soda_", 5) != 0 && strlen(name) < 40) {
			assert_true(n < max);
			strcpy(names[n++], name);
		}
	}
	assert_int_equal(pclose(f), 0);
	return n;
}

/* No function is wrapped that no case calls. */
static void test_all_are_called(void **state)
{
	static char ours[600][40], called[2000][40];
	size_t n, calls, k;

	if (access("/usr/bin/nm", X_OK)) {
		print_message("SKIP: no /usr/bin/nm\n");
		skip();
	}
	n = symbols("src/run/libsoda-run.so", "TW", ours, 600);
	calls = symbols(victim, "Uw", called, 1000);
	calls += symbols("tests/integration/run/run_victim_polls", "Uw", called + calls, 1000);
	assert_true(n > 200);
	for (size_t i = 0; i < n; i++) {
		for (k = 0; k < calls && strcmp(ours[i], called[k]) != 0; k++)
			;
		if (k == calls)
			fail_msg("%s is wrapped, and no case calls it", ours[i]);
	}
}

/*
 * Against a server that does not answer what is written back for as long as the case wants, nor
 * (`refuses`) takes new connections.  kept: the program is told that what it unmaps is kept.
 */
static void run_silent(const char *name, bool refuses, bool kept)
{
	char dir[] = "/tmp/soda-run-XXXXXX", silence[64], address[384], path[512];
	struct server server;
	int n;

	assert_non_null(mkdtemp(dir));
	snprintf(silence, sizeof(silence), "%s/silence", dir);
	snprintf(path, sizeof(path), "%s", build_path(victim));
	assert_int_equal(SERVER_START(&server, "--capacity", "1G"), 0);
	n = snprintf(address, sizeof(address), "fault+%s?do=drop&on=write&while=%s", server.address,
		     silence);
	if (refuses)
		snprintf(address + n, sizeof(address) - (size_t)n, "&do=fail&on=connect&while=%s",
			 silence);
	setenv("SILENCE", silence, 1);
	setenv("SODA_LOG", "warning", 1);
	setenv("SODA_FAULT_TIMEOUT", "500ms", 1);
	RUN("--mem", "256M", "--server", address, "--", path, name);
	setenv("SODA_FAULT_TIMEOUT", "900s", 1);
	unsetenv("SODA_LOG");
	unsetenv("SILENCE");
	if (p.status)
		fail_msg("status %d: %s", p.status, p.err);
	if (kept && !strstr(p.err, "cannot be given back"))
		fail_msg("%s", p.err);
	server_stop(&server);
	server_forget(&server);
	rmdir(dir);
}

/*
 * Nobody sees memory that was unmapped then, and it goes back to the server when that answers
 * again.  New connections are there for new mappings, and may take what is unmapped: it is not
 * always kept.
 */
static void test_silent(void **state)
{
	run_silent("silent", false, false);
	run_silent("left", true, true);
}

/* What the program unmaps goes back to the server's system while it runs. */
static void test_returned(void **state)
{
	char path[512], says[800];
	struct server server;

	assert_int_equal(SERVER_START(&server, "--capacity", "1G"), 0);
	snprintf(says, sizeof(says), "%s", build_path(soda));
	snprintf(says + strlen(says), sizeof(says) - strlen(says), " stat --json %s",
		 server.address);
	setenv("SERVER_SAYS", says, 1);
	snprintf(path, sizeof(path), "%s", build_path(victim));
	for (int mode = 0; mode < 2; mode++) {
		setenv("SODA_MODE", modes[mode], 1);
		RUN("--mem", "8M", "--server", server.address, "--", path, "returned");
		if (failed(modes[mode]))
			fail_msg("%s mode: status %d: %s", modes[mode], p.status, p.err);
	}
	unsetenv("SODA_MODE");
	unsetenv("SERVER_SAYS");
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

/*
 * Where the kernel's faults are served, nothing needs to be held.
 *
 * May: threads | waits at locks, conditions and semaphores in fabric memory | served
 * May: threads | waits in more chunks than a tenth of the page buffer | ended by SIGABRT,
 * which says "a tenth of the page buffer"
 */
static void test_waits(void **state)
{
	run_case("waits", NULL);
	run_mode("held", INLINE, "error", 0, NULL);
	run_mode("too many", INLINE, "error", 128 + SIGABRT, "a tenth of the page buffer");
}

/*
 * May: threads | ends threads that allocate and free, in destructors of their keys too |
 * served
 */
static void test_many(void **state)
{
	run_case("threads", NULL);
}

static void test_fork(void **state)
{
	run_case("fork", NULL);
}

/* Make userfaultfd(2) fail with that error, as containers do. 0 or -1. */
static int forbid(int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Become a user without privilege, for whom the kernel's faults are not served, and the program. */
static int as_nobody(char **argv)
{
	char path[512];
	int fd;

	if (geteuid() == 0 && (setgroups(0, NULL) || setresgid(65534, 65534, 65534) ||
			       setresuid(65534, 65534, 65534)))
		return CANNOT;
	if (atoi(argv[0]) && forbid(atoi(argv[0])))
		return CANNOT;
	argv++;
	snprintf(path, sizeof(path), "%s", build_path(argv[0]));
	if (access(path, X_OK))
		return CANNOT;
	fd = (int)syscall(SYS_userfaultfd, 0);
	if (fd < 0)
		fd = open("/dev/userfaultfd", O_RDWR);
	if (fd >= 0)
		return MAY;
	argv[0] = path;
	execv(path, argv);
	return CANNOT;
}

/*
 * All of it again as an ordinary user, with vm.unprivileged_userfaultfd=0.
 *
 * May: limits and identity | is an ordinary user's, without userfaultfd for the kernel's
 * faults | served
 */
static void test_unprivileged(void **state)
{
	static const char *const cases[] = { "malloc", "brk",	"maps",	   "linux",
					     "split",  "calls", "threads", "waits",
					     "held",   "ioctl", "direct",  "forms",
					     "small",  "every", "times",   "mlockall" };

	ordinary = true;
	RUN("--", "true");
	if (p.status == CANNOT || p.status == MAY) {
		ordinary = false;
		print_message(p.status == MAY
				      ? "SKIP: ordinary users may serve the kernel's faults here\n"
				      : "SKIP: an ordinary user cannot get at this build\n");
		skip();
	}
	assert_int_equal(p.status, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		run_case(cases[i], NULL);
	run_case("fork", NULL);
	run_case("forks", NULL);
	run_mode("too many", HANDLER, "error", 128 + SIGABRT, "a tenth of the page buffer");
	/* where userfaultfd is refused the reason is named, and what to do */
	for (forbidden = EPERM; forbidden; forbidden = forbidden == EPERM ? ENOSYS : 0) {
		run_mode("brk", INLINE, "error", 127, "a seccomp filter forbids the call");
		assert_non_null(strstr(p.err, "allow userfaultfd in the container's profile"));
		assert_non_null(strstr(p.err, "/dev/userfaultfd"));
	}
	ordinary = false;
}

/* The last lines: the data are what was touched, and with 8 MiB of them here the others travel. */
static void expect_summary(double data_mib)
{
	double took = 0, waited = 0, fetched = 0, of = 0;
	const char *line = strstr(p.err, "\n  took ");
	unsigned share = 1000;

	assert_non_null(line);
	assert_int_equal(sscanf(line, " took %lf s threads waited %lf s for far memory, %u %%",
				&took, &waited, &share),
			 3);
	assert_true(took > 0 && waited > 0);
	assert_in_range(share, 0, 100);
	line = strstr(line, "\n  traffic ");
	assert_non_null(line);
	assert_int_equal(sscanf(line, " traffic fetched %*f times the data (%lf MiB of %lf MiB)",
				&fetched, &of),
			 2);
	assert_true(fetched > 1);
	assert_true(of >= data_mib && of < data_mib + 8);
	assert_non_null(strstr(line, "\n  advice     "));
}

/* --json: the same in one line, which comes last and alone. */
static void test_stats_json(void **state)
{
	static const char *const keys[] = {
		"\"status\":0,", "\"took_ns\":",    "\"waited_ns\":", "\"data_bytes\":4",
		"\"rule\":",	 "\"ended\":true,", "\"brk\"]",
	};
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	setenv("SODA_LOG", "error", 1);
	RUN("--mem=8M", "--json", "--", path, "brk");
	assert_int_equal(p.status, 0);
	assert_int_equal(strncmp(p.err, "{\"format\":\"soda-run-stats\",", 27), 0);
	assert_ptr_equal(strchr(p.err, '\n'), p.err + strlen(p.err) - 1);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (!strstr(p.err, keys[i]))
			fail_msg("%s is not in: %s", keys[i], p.err);
	RUN("--json", "--", "sh", "-c", "exit 7");
	assert_int_equal(p.status, 7);
	assert_non_null(strstr(p.err, "\"status\":7,"));
	assert_non_null(strstr(p.err, "\"processes\":[]"));
	unsetenv("SODA_LOG");
}

/* The mode that it chooses by itself, the statistics, and the program's own exit status. */
static void test_stats(void **state)
{
	unsigned long calls = 0, faults = 0;
	char path[512], command[1200];
	const char *line;

	snprintf(path, sizeof(path), "%s", build_path(victim));
	setenv("SODA_LOG", "error", 1);
	RUN("--mem=8M", "--stats", "--", path, "brk");
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.err, "resident at most"));
	assert_non_null(strstr(p.err, "stalled"));
	assert_non_null(strstr(p.err, "  server     private, on this machine"));
	assert_non_null(
		strstr(p.err, "first touches: zeros for 25")); /* 2560 chunks, or some more */
	/* the call, by its name: 40 MiB, of which one fault fills 256 KiB */
	line = strstr(p.err, "case_brk+0x");
	assert_non_null(line);
	while (line > p.err && line[-1] != '\n')
		line--;
	assert_int_equal(sscanf(line, " 40 MiB %lu %lu", &calls, &faults), 2);
	assert_int_equal(calls, 1);
	assert_in_range(faults, 160, 100000);
	expect_summary(40);
	/* and so where nothing that it starts has any */
	RUN("--mem=8M", "--stats", "--children=exec", "--", path, "brk");
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.err, "case_brk+0x"));
	expect_summary(40);
	/* in C++ the program's call, not operator new's, by its name in the source */
	RUN("--mem=8M", "--stats", "--", path, "new");
	if (p.status != 77) {
		assert_int_equal(p.status, 0);
		assert_non_null(strstr(p.err, "program::take(unsigned long)+0x"));
		assert_null(strstr(p.err, "libstdc++"));
	}
	RUN("--stats", "--", "true");
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.err, "no fabric memory was used"));
	assert_non_null(
		strstr(p.err, "\n  advice     nothing to change: the program has no large"));
	RUN("--", path, "no such case");
	assert_int_equal(p.status, 2);
	RUN("--children=exec", "--", "sh", "-c", "echo $LD_PRELOAD; exit 7");
	assert_int_equal(p.status, 7);
	assert_string_equal(p.out, "\n");
	RUN("--children=all", "--", "sh", "-c", "echo $LD_PRELOAD");
	assert_non_null(strstr(p.out, "libsoda-run.so"));
	/* programs that it starts have their own fabric memory, or none: the case looks for it */
	snprintf(command, sizeof(command), "%s brk && %s threads", path, path);
	RUN("--mem=8M", "--children=all", "--", "sh", "-c", command);
	assert_int_equal(p.status, 0);
	RUN("--mem=8M", "--children=exec", "--", "sh", "-c", command);
	assert_int_equal(p.status, 99);
	unsetenv("SODA_LOG");
}

static char page[4 << 20];

static void read_page(const char *path)
{
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	page[fread(page, 1, sizeof(page) - 1, f)] = 0;
	fclose(f);
}

/* What a program did; also one that is killed, and one that used nothing. */
static void check_numbers(const char *html, const char *json)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path(victim));
	RUN("--mem=8M", "--report", html, "--", path, "threads", "<b>&", "\xff");
	assert_int_equal(p.status, 0);
	read_page(json);
	assert_non_null(strstr(page, "\"threads\",\"<b>&\",\"?\"]"));
	assert_non_null(strstr(page, "\"format\":\"soda-run\""));
	assert_non_null(strstr(page, "\"SODA_BUFFER\":\"8M\""));
	RUN("--mem=8M", "--report", html, "--", path, "killed");
	assert_int_equal(p.status, 128 + SIGKILL);
	read_page(json);
	assert_non_null(strstr(page, "\"status\":137"));
	assert_null(strstr(page, "\"resident\":[]"));
	RUN("--report", html, "--", "sh", "-c", "exit 3");
	assert_int_equal(p.status, 3);
	read_page(json);
	assert_non_null(strstr(page, "\"status\":3"));
	assert_non_null(strstr(page, "\"resident\":[]"));
}

/* Without what draws the program runs all the same, and its numbers are kept. */
static void check_without_python(const char *html, const char *json, const char *dir)
{
	char *before = strdup(getenv("PATH"));

	assert_non_null(before);
	unlink(json);
	setenv("PATH", dir, 1);
	RUN("--report", html, "--", "/bin/echo", "started");
	setenv("PATH", before, 1);
	free(before);
	assert_int_equal(p.status, 0);
	assert_string_equal(p.out, "started\n");
	assert_non_null(strstr(p.err, "before python3 is installed"));
	assert_non_null(strstr(p.err, json));
	assert_int_equal(access(json, R_OK), 0);
}

static void test_report_numbers(void **state)
{
	char dir[] = "/tmp/soda-run-XXXXXX", html[64], json[64];

	assert_non_null(mkdtemp(dir));
	snprintf(html, sizeof(html), "%s/page.html", dir);
	snprintf(json, sizeof(json), "%s/page.json", dir);
	setenv("SODA_LOG", "error", 1);
	check_numbers(html, json);
	check_without_python(html, json, dir);
	RUN("--report", "/nowhere/page.html", "--", "echo", "started");
	assert_int_equal(p.status, 127);
	assert_non_null(strstr(p.err, "/nowhere/page.json"));
	assert_string_equal(p.out, "");
	unsetenv("SODA_LOG");
	unlink(html);
	unlink(json);
	rmdir(dir);
}

/* The page of them; what is in it: tests/report. */
static void test_report_page(void **state)
{
	char dir[] = "/tmp/soda-run-XXXXXX", html[64], json[64], path[512];

	assert_non_null(mkdtemp(dir));
	snprintf(html, sizeof(html), "%s/page.html", dir);
	snprintf(json, sizeof(json), "%s/page.json", dir);
	snprintf(path, sizeof(path), "%s", build_path(victim));
	RUN("--mem=8M", "--report", html, "--", path, "threads", "<b>&");
	assert_int_equal(p.status, 0);
	unlink(json);
	if (strstr(p.err, "nothing can be drawn")) {
		rmdir(dir);
		print_message("SKIP: no matplotlib or no jinja2 for python3\n");
		skip();
	}
	assert_string_equal(p.err, "");
	read_page(html);
	assert_non_null(strstr(page, "&lt;b&gt;&amp;"));
	assert_non_null(strstr(page, "<svg"));
	assert_non_null(strstr(page, "</svg>"));
	assert_true(strlen(page) < 1 << 20);
	unlink(html);
	rmdir(dir);
}

/* What cannot be is said, with the reason. */
static void refused(const char *sentence)
{
	assert_int_equal(p.status, 2);
	if (!strstr(p.err, sentence))
		fail_msg("it says: %s", p.err);
}

static void refuse_auto(void)
{
	RUN("--threshold", "auto", "--", "true");
	refused("--threshold auto needs --local SIZE");
	RUN("--local", "64M", "--", "true");
	refused("--local is for --threshold auto");
	RUN("--threshold", "auto", "--threshold", "64K", "--local", "64M", "--", "true");
	refused("--threshold is given more than once, as auto,64K");
	RUN("--threshold", "auto", "--local", "1M", "--", "true");
	refused("local");
	RUN("--threshold", "auto", "--local", "much", "--", "true");
	refused("local");
	RUN("--threshold", "auto", "--local", "64M", "--mem", "1/3", "--", "true");
	refused("is a fraction");
	RUN("--threshold", "auto", "--local", "64M", "--mem", "56M", "--", "true");
	refused("leaves nothing of --local");
	RUN("--threshold", "auto", "--local", "64M", "--mem", "lots", "--", "true");
	refused("is not a size");
	RUN("--threshold", "auto", "--local", "64M", "--stats", "--", "true");
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.err, "small ones were never more than --local has room for"));
}

/* Settings are refused that libsoda would refuse at the first large block, which may never come. */
static void refuse_settings(void)
{
	static const char *const wrong[][3] = {
		{ "--mem", "32X", "--mem: buffer (SODA_BUFFER): '32X' is neither a size" },
		{ "--mem", "1K", "--mem: buffer (SODA_BUFFER) of 1K is too small" },
		{ "--server", "nowhere",
		  "--server: server (SODA_SERVER): 'nowhere' is no address" },
		{ "--server", "tcp://a:1,b:1", "--server: server (SODA_SERVER): " },
		{ "--dpu", "nowhere", "--dpu: dpu (SODA_DPU): 'nowhere' is no address" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		RUN(wrong[i][0], wrong[i][1], "--", "echo", "it ran");
		assert_int_equal(p.status, 2);
		assert_null(strstr(p.out, "it ran"));
		if (!strstr(p.err, wrong[i][2]))
			fail_msg("%s %s: %s", wrong[i][0], wrong[i][1], p.err);
	}
	setenv("SODA_CHUNK", "5", 1);
	RUN("--", "echo", "it ran");
	unsetenv("SODA_CHUNK");
	assert_int_equal(p.status, 2);
	assert_non_null(strstr(p.err, "soda run: SODA_CHUNK"));
	/* a variable that nobody reads is told of, and is no error */
	setenv("SODA_BUFER", "1G", 1);
	RUN("--", "echo", "it ran");
	unsetenv("SODA_BUFER");
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err,
			    "soda run: SODA_BUFER in the environment is no setting and changes "
			    "nothing; is SODA_BUFFER meant?\n");
	/* nor is it one to a program that uses libsoda, and to the private server of that */
	setenv("SODA_BUFER", "1G", 1);
	setenv("SODA_MEM_SERVER_WORKER", "2", 1);
	assert_int_equal(program_run("examples/minimal", (const char *const[]){ NULL }, &p), 0);
	unsetenv("SODA_BUFER");
	unsetenv("SODA_MEM_SERVER_WORKER");
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.err, "is SODA_BUFFER meant?"));
	assert_non_null(strstr(p.err, "is SODA_MEM_SERVER_WORKERS meant?"));
}

static void test_refusals(void **state)
{
	char dir[] = "/tmp/soda-run-XXXXXX", path[64], text[2000];
	FILE *in, *out;
	size_t n;

	RUN("--", "there-is-no-such-program");
	assert_int_equal(p.status, 127);
	assert_non_null(strstr(p.err, "not found"));
	RUN("--mem", "8M");
	assert_int_equal(p.status, 2);
	RUN("--threshold", "lots", "--", "true");
	assert_int_equal(p.status, 2);
	assert_non_null(strstr(p.err, "--threshold lots is neither a size"));
	RUN("--threshold", "0", "--", "true");
	assert_int_equal(p.status, 2);
	refuse_auto();
	refuse_settings();
	/* A static program: an ELF header and no interpreter. */
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/static", dir);
	in = fopen("/proc/self/exe", "r");
	out = fopen(path, "w");
	assert_true(in && out);
	n = fread(text, 1, 64, in);
	assert_int_equal(n, 64);
	memset(text + 56, 0, 2); /* e_phnum */
	assert_int_equal(fwrite(text, 1, n, out), n);
	fclose(in);
	fclose(out);
	assert_int_equal(chmod(path, 0755), 0);
	RUN("--", path);
	assert_int_equal(p.status, 126);
	assert_non_null(strstr(p.err, "statically linked"));
	if (geteuid() == 0) { /* of another user */
		snprintf(text, sizeof(text), "cp %s %s", build_path(victim), path);
		assert_int_equal(system(text), 0);
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(chmod(path, 04755), 0);
		RUN("--", path, "brk");
		assert_int_equal(p.status, 126);
		assert_non_null(strstr(p.err, "set-user-id"));
	}
	unlink(path);
	rmdir(dir);
}

/* GNU sort with its buffer in fabric memory: the same as without. */
static void test_sort(void **state)
{
	char dir[] = "/tmp/soda-run-XXXXXX", in[64], plain[64], out[64], command[512];
	uint64_t x = 88172645463325252u;
	FILE *f;

	if (access("/usr/bin/sort", X_OK)) {
		print_message("SKIP: no /usr/bin/sort\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(in, sizeof(in), "%s/in", dir);
	snprintf(plain, sizeof(plain), "%s/plain", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	f = fopen(in, "w");
	assert_non_null(f);
	for (int i = 0; i < 400000; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		fprintf(f, "%llu\n", (unsigned long long)x);
	}
	assert_int_equal(fclose(f), 0);
	snprintf(command, sizeof(command), "LC_ALL=C sort -S 100M -o %s %s", plain, in);
	assert_int_equal(system(command), 0);
	setenv("LC_ALL", "C", 1);
	for (int i = 0; i < 2; i++) {
		setenv("SODA_MODE", i ? "handler" : "inline", 1);
		setenv("SODA_LOG", "error", 1);
		RUN("--mem", "12M", "--stats", "--", "/usr/bin/sort", "-S", "60M", "-o", out, in);
		if (p.status)
			fail_msg("sort: status %d: %s", p.status, p.err);
		assert_non_null(strstr(p.err, "of 12 MiB"));
		snprintf(command, sizeof(command), "cmp %s %s", plain, out);
		assert_int_equal(system(command), 0);
	}
	unsetenv("SODA_MODE");
	unsetenv("SODA_LOG");
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),	       cmocka_unit_test(test_maps),
		cmocka_unit_test(test_calls),	       cmocka_unit_test(test_many),
		cmocka_unit_test(test_kernel),	       cmocka_unit_test(test_loader),
		cmocka_unit_test(test_direct),	       cmocka_unit_test(test_waits),
		cmocka_unit_test(test_fork),	       cmocka_unit_test(test_stats),
		cmocka_unit_test(test_stats_json),     cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_sort),	       cmocka_unit_test(test_unprivileged),
		cmocka_unit_test(test_report_numbers), cmocka_unit_test(test_report_page),
		cmocka_unit_test(test_exec),	       cmocka_unit_test(test_all_are_called),
		cmocka_unit_test(test_silent),	       cmocka_unit_test(test_returned),
		cmocka_unit_test(test_descriptors),    cmocka_unit_test(test_robbed),
		cmocka_unit_test(test_shell_numbers),  cmocka_unit_test(test_masks),
		cmocka_unit_test(test_cancel),	       cmocka_unit_test(test_submit),
		cmocka_unit_test(test_rings),	       cmocka_unit_test(test_rings_held),
		cmocka_unit_test(test_plugin),	       cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_reserved),       cmocka_unit_test(test_own_userfaultfd),
		cmocka_unit_test(test_older_names),    cmocka_unit_test(test_once),
		cmocka_unit_test(test_alt_stacks),     cmocka_unit_test(test_limits),
		cmocka_unit_test(test_identity),       cmocka_unit_test(test_filter),
	};

	if (argc > 3 && !strcmp(argv[1], "--as-nobody"))
		return as_nobody(argv + 2);
	/* a machine may be busy, and none of this is about patience */
	program_environment();
	if (argc == 2) /* one of them, by hand */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
