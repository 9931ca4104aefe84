/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that has use for SIGBUS or SIGSEGV itself, and one that forks.  The program's own
 * bus error is a touch behind the end of a mapped file.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 128 };

static struct world world;

static uint64_t *filled(void)
{
	return patterned_object(world.address, "2M", 2, CHUNKS * CHUNK);
}

static void check_all(const uint64_t *fam)
{
	check_pattern(fam, CHUNKS * CHUNK, 0);
}

/* Two pages of a file that has none. */
static volatile char *bus_error_page(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	void *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	close(fd);
	return p;
}

static volatile char *bus_page;
static volatile int caught;
static void *volatile caught_at;
static sigjmp_buf back;

static void own_handler(int sig)
{
	caught++;
	siglongjmp(back, 1);
}

static void own_action(int sig, siginfo_t *info, void *context)
{
	caught_at = info->si_addr;
	own_handler(sig);
}

static void raise_own(void)
{
	if (!sigsetjmp(back, 1))
		(void)*bus_page;
}

static void install(bool by_signal)
{
	struct sigaction act = { .sa_sigaction = own_action, .sa_flags = SA_SIGINFO };

	if (by_signal)
		CHECK(signal(SIGBUS, own_handler) != SIG_ERR);
	else
		CHECK_EQ(sigaction(SIGBUS, &act, NULL), 0);
}

struct handler_case {
	bool before, by_signal;
};

static void child_own_handler(const void *arg)
{
	const struct handler_case *c = arg;
	struct sigaction seen;
	uint64_t *fam;

	bus_page = bus_error_page();
	if (c->before)
		install(c->by_signal);
	fam = filled();
	if (!c->before)
		install(c->by_signal);
	for (int i = 0; i < 3; i++) {
		raise_own();
		check_all(fam);
	}
	CHECK_EQ(caught, 3);
	CHECK_EQ(sigaction(SIGBUS, NULL, &seen), 0);
	if (c->by_signal) {
		CHECK(seen.sa_handler == own_handler, "not the program's own handler");
	} else {
		CHECK(seen.sa_sigaction == own_action, "not the program's own action");
		CHECK(caught_at == (void *)bus_page, "%p", caught_at);
	}
	CHECK(stats_now().fetches > 0, "nothing was fetched");
}

/*
 * May: signals | has a handler for SIGBUS, from before the start or after it | it gets the
 * bus errors that are not of FAM
 */
static void test_own_handler(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct handler_case c = { .before = i & 1, .by_signal = i & 2 };

		expect_passes(child_own_handler, &c);
	}
}

static void child_default(const void *arg)
{
	const uint64_t *fam = filled();

	check_all(fam);
	(void)*bus_error_page();
}

/* May: signals | has a bus error of its own, and no handler | ended by SIGBUS */
static void test_own_bus_error_without_handler(void **state)
{
	struct trial t = { .child = child_default };
	struct outcome out;

	trial_run(&t, &out);
	expect_signal(&out, SIGBUS);
}

/*
 * A program that closes memory and has a handler for whoever touches it, as garbage collectors do:
 * it gets its own signals and no other, whether it closed FAM or memory of its own.
 */
static void touch_closed(volatile char *page)
{
	caught_at = NULL;
	if (!sigsetjmp(back, 1))
		(void)*page;
	CHECK(caught_at == (void *)page, "%p", caught_at);
}

static void child_own_segv(const void *arg)
{
	struct sigaction act = { .sa_sigaction = own_action, .sa_flags = SA_SIGINFO }, seen;
	bool before = *(const bool *)arg;
	char *own = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *fam;

	CHECK(own != MAP_FAILED);
	if (before)
		CHECK_EQ(sigaction(SIGSEGV, &act, NULL), 0);
	fam = (char *)filled();
	if (!before)
		CHECK_EQ(sigaction(SIGSEGV, &act, NULL), 0);
	for (int i = 0; i < 3; i++) {
		touch_closed(own);
		fam[i * CHUNK + 8] = (char)(i + 1);
		CHECK_EQ(mprotect(fam + i * CHUNK, 4096, PROT_NONE), 0);
		CHECK_EQ(soda_sync(fam, CHUNKS * CHUNK), 0);
		touch_closed(fam + i * CHUNK);
		CHECK_EQ(mprotect(fam + i * CHUNK, 4096, PROT_READ | PROT_WRITE), 0);
		CHECK_EQ(fam[i * CHUNK + 8], i + 1);
	}
	CHECK_EQ(caught, 6);
	CHECK_EQ(sigaction(SIGSEGV, NULL, &seen), 0);
	CHECK(seen.sa_sigaction == own_action, "not the program's own action");
}

/* May: signals | closes FAM by mprotect(), and has a handler for SIGSEGV | it gets its own */
static void test_own_segv(void **state)
{
	expect_passes(child_own_segv, &(bool){ false });
	expect_passes(child_own_segv, &(bool){ true });
}

static void child_default_segv(const void *arg)
{
	const char *how = arg;
	uint64_t *fam = filled();

	if (*how == 'k')
		kill(getpid(), SIGSEGV);
	if (*how == 'c')
		mprotect(fam, 4096, PROT_NONE);
	(void)*(volatile char *)(*how == 'c' ? (char *)fam
					     : mmap(NULL, 4096, PROT_NONE,
						    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

/* May: signals | touches what it has closed, and has no handler | ended by SIGSEGV */
static void test_segv_without_handler(void **state)
{
	const char *ways[] = { "own", "closed", "killed" };

	for (int i = 0; i < 3; i++) {
		struct trial t = { .child = child_default_segv, .arg = ways[i] };
		struct outcome out;

		trial_run(&t, &out);
		expect_signal(&out, SIGSEGV);
	}
}

/* A thread that has every signal blocked, as servers have them, faults all the same. */
static void *blocked_thread(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
	check_all(arg);
	CHECK_EQ(sigprocmask(SIG_SETMASK, &all, NULL), 0);
	check_all(arg);
	return NULL;
}

static void child_blocked(const void *arg)
{
	bool before = *(const bool *)arg;
	pthread_t thread;
	sigset_t bus;
	uint64_t *fam;

	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	if (before)
		CHECK_EQ(sigprocmask(SIG_BLOCK, &bus, NULL), 0);
	fam = filled();
	CHECK_EQ(pthread_create(&thread, NULL, blocked_thread, fam), 0);
	pthread_join(thread, NULL);
	check_all(fam);
}

/* May: signals | blocks all signals | served */
static void test_blocked_sigbus(void **state)
{
	expect_passes(child_blocked, &(bool){ false });
	expect_passes(child_blocked, &(bool){ true });
}

static void child_ignored(const void *arg)
{
	CHECK(signal(SIGBUS, SIG_IGN) != SIG_ERR);
	check_all(filled());
	CHECK(signal(SIGBUS, SIG_DFL) == SIG_IGN, "what the program had set");
}

/* May: signals | ignores SIGBUS | served */
static void test_ignored_sigbus(void **state)
{
	expect_passes(child_ignored, NULL);
}

/* Handlers for other signals touch FAM while a thread is in the middle of faults. */
static uint64_t *volatile tick_fam;
static volatile int ticks;

static void tick(int sig)
{
	int saved = errno;
	size_t i = (size_t)(ticks++ * 7919) % CHUNKS * CHUNK_WORDS;

	if (tick_fam[i] != mix(i, 0))
		_exit(98);
	errno = saved;
}

static void child_ticks(const void *arg)
{
	struct sigaction act = { .sa_handler = tick, .sa_flags = SA_RESTART };
	uint64_t *fam = filled();

	tick_fam = fam;
	CHECK_EQ(sigaction(SIGALRM, &act, NULL), 0);
	ualarm(1000, 1000);
	for (double end = now_seconds() + 1; now_seconds() < end;) {
		errno = 77;
		check_all(fam);
		CHECK_EQ(errno, 77);
	}
	ualarm(0, 0);
	CHECK(ticks > 100, "%d ticks", ticks);
}

/* May: signals | touches FAM in a handler of another signal | served */
static void test_fam_in_other_handlers(void **state)
{
	expect_passes(child_ticks, NULL);
}

/* Started by a process that had it blocked, as its system call leaves it. */
static void child_inherits_blocked(const void *arg)
{
	sigset_t bus;
	uint64_t *fam;

	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &bus, NULL, (size_t)8), 0);
	fam = filled();
	check_all(fam);
	soda_free(fam);
}

/* May: signals | is started with SIGBUS blocked | served */
static void test_inherited_mask(void **state)
{
	expect_passes(child_inherits_blocked, NULL);
}

static volatile uint64_t loaded;

/* A thread that calls nothing, and so may be cancelled at any time: in a fault, too. */
static void *only_loads(void *arg)
{
	const uint64_t *fam = arg;
	int before;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
	for (;;)
		for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += CHUNK_WORDS)
			loaded = fam[i];
	return NULL;
}

static void child_cancelled(const void *arg)
{
	uint64_t *fam = filled();
	pthread_t thread;

	for (int round = 0; round < 30; round++) {
		CHECK_EQ(pthread_create(&thread, NULL, only_loads, fam), 0);
		sleep_ms(2);
		CHECK_EQ(pthread_cancel(thread), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		check_all(fam);
	}
	soda_free(fam);
}

/* May: threads | cancels a thread at any instruction, in a fault too | served */
static void test_cancelled_in_fault(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: the end of a thread that is cancelled anywhere is too much for a "
		      "sanitizer\n");
	skip();
#endif
	expect_passes(child_cancelled, NULL);
}

/* The functions' older names, under which <signal.h> warns of them. */
int old_sighold(int sig) __asm__("sighold");
int old_sigblock(int mask) __asm__("sigblock");
int old_sigsetmask(int mask) __asm__("sigsetmask");
sighandler_t old_sigset(int sig, sighandler_t handler) __asm__("sigset");
sighandler_t old_signal(int sig, sighandler_t handler) __asm__("__sysv_signal");

static void child_older_names(const void *arg)
{
	uint64_t *fam = filled();

	CHECK_EQ(old_sighold(SIGBUS), 0);
	check_all(fam);
	old_sigblock(-1);
	check_all(fam);
	old_sigsetmask(-1);
	check_all(fam);
	CHECK(old_sigset(SIGBUS, own_handler) != SIG_ERR);
	check_all(fam);
	CHECK(old_signal(SIGBUS, SIG_DFL) == own_handler);
	check_all(fam);
	soda_free(fam);
}

/*
 * May: signals | blocks or takes SIGBUS by sighold(), sigset(), sigblock(), sysv_signal()
 * and the like | served
 */
static void test_older_names(void **state)
{
	expect_passes(child_older_names, NULL);
}

static void touch_fam(int sig)
{
	check_all(tick_fam);
	own_handler(sig);
}

/* The program's own bus error, whose handler loads fabric memory, and jumps without a mask. */
static void child_fam_in_own_handler(const void *arg)
{
	struct sigaction act = { .sa_handler = touch_fam, .sa_flags = SA_NODEFER };
	sigset_t now;

	bus_page = bus_error_page();
	tick_fam = filled();
	CHECK_EQ(sigaction(SIGBUS, &act, NULL), 0);
	for (int i = 0; i < 3; i++)
		if (!sigsetjmp(back, 0))
			(void)*bus_page;
	CHECK_EQ(caught, 3);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	for (int sig = 1; sig < 32; sig++)
		CHECK(!sigismember(&now, sig), "signal %d is blocked", sig);
	check_all(tick_fam);
}

/* May: signals | touches FAM in its own handler of SIGBUS, and jumps out of it | served */
static void test_fam_in_own_handler(void **state)
{
	expect_passes(child_fam_in_own_handler, NULL);
}

/* The program takes pages of an object away: their touch ends it, and says why; 's': a store. */
static void child_takes_away(const void *arg)
{
	const char *how = arg;
	struct soda_config cfg = SODA_CONFIG_INIT;
	volatile char *fam;

	cfg.server = world.address;
	cfg.buffer = "4M";
	start(&cfg);
	fam = alloc_checked(4 * CHUNK);
	fam[CHUNK] = 1;
	(void)fam[2 * CHUNK];
	CHECK_EQ(madvise((char *)fam + CHUNK, 2 * CHUNK, MADV_DONTNEED), 0);
	if (*how == 's')
		fam[CHUNK] = 2;
	else
		(void)fam[*how == 'd' ? CHUNK : 2 * CHUNK];
	_exit(0);
}

/*
 * May: memory | takes pages of an object away by madvise(MADV_DONTNEED) | ended by SIGBUS at
 * their touch, which says "the program has taken it away"
 */
static void test_taken_away(void **state)
{
	const char *ways[] = { "dirty", "clean", "store" };

	for (int i = 0; i < 3; i++) {
		struct trial t = { .child = child_takes_away, .arg = ways[i] };
		struct outcome out;

		trial_run(&t, &out);
		expect_signal(&out, SIGBUS);
		expect_says(&out, "the program has taken it away");
	}
}

/* docs/limits.md: system calls on pages that are not resident. */
static bool kernel_faults_served(void)
{
	int fd = open("/proc/sys/vm/unprivileged_userfaultfd", O_RDONLY);
	char allowed = '0';

	if (fd >= 0) {
		CHECK_EQ(read(fd, &allowed, 1), 1);
		close(fd);
	}
	return stats_now().mode == SODA_MODE_HANDLER &&
	       (geteuid() == 0 || allowed == '1' || access("/dev/userfaultfd", R_OK | W_OK) == 0);
}

static void child_system_calls(const void *arg)
{
	uint64_t *fam = filled();
	int fd = memfd_create("file", MFD_CLOEXEC);
	size_t chunk = 50 * CHUNK_WORDS;
	bool served = kernel_faults_served();
	ssize_t n;

	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	n = write(fd, fam + chunk, 4096);
	if (served)
		CHECK_EQ(n, 4096);
	else
		CHECK(n == -1 && errno == EFAULT, "%zd, %s", n, strerror(errno));
	/* pinned, it works everywhere */
	CHECK_EQ(soda_advise(fam + chunk, CHUNK, SODA_PIN), 0);
	CHECK_EQ(pwrite(fd, fam + chunk, 4096, 0), 4096);
	fam[chunk] = 0;
	CHECK_EQ(pread(fd, fam + chunk, 4096, 0), 4096);
	CHECK_EQ(soda_advise(fam + chunk, CHUNK, SODA_UNPIN), 0);
	check_all(fam);
}

/*
 * May: the C library | hands it FAM that is not resident | EFAULT in inline mode, or without
 * privilege
 */
static void test_system_calls(void **state)
{
	expect_passes(child_system_calls, NULL);
}

/* The child of a fork: FAM as it was, its own; the library off, the parent unharmed. */
static void forked(uint64_t *fam)
{
	alarm(60);
	check_all(fam);
	fam[40 * CHUNK_WORDS]++;
	CHECK_EQ(fam[40 * CHUNK_WORDS], mix(40 * CHUNK_WORDS, 0) + 1);
	errno = 0;
	CHECK(!soda_alloc(4096, 0) && errno == ENOTSUP, "%s", strerror(errno));
	CHECK_EQ(soda_sync(NULL, 0), -ENOTSUP);
	CHECK_EQ(soda_init(NULL), -ENOTSUP);
	CHECK_EQ(soda_try_free(fam), -ENOTSUP);
#ifdef __SANITIZE_ADDRESS__
	_exit(5); /* LeakSanitizer cannot look at a child of a process with threads */
#else
	exit(5); /* with the exit handlers that it got from its parent */
#endif
}

static void child_forks(const void *arg)
{
	uint64_t *fam = filled();

	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		int status;

		if (!pid)
			forked(fam);
		check_all(fam); /* while the child lives */
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5, "status %x", status);
		check_all(fam);
	}
	CHECK_EQ(system("exit 3") >> 8, 3);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 64)
		fam[i] = mix(i, 0);
	check_all(fam);
	soda_free(fam);
}

static void test_fork(void **state)
{
	expect_passes(child_forks, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_handler),
		cmocka_unit_test(test_own_bus_error_without_handler),
		cmocka_unit_test(test_own_segv),
		cmocka_unit_test(test_segv_without_handler),
		cmocka_unit_test(test_blocked_sigbus),
		cmocka_unit_test(test_ignored_sigbus),
		cmocka_unit_test(test_fam_in_other_handlers),
		cmocka_unit_test(test_system_calls),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_inherited_mask),
		cmocka_unit_test(test_cancelled_in_fault),
		cmocka_unit_test(test_older_names),
		cmocka_unit_test(test_fam_in_own_handler),
		cmocka_unit_test(test_taken_away),
	};

	return WORLD_RUN("signals", &world, false, tests);
}
