/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of src/run/wrap/forms.c and stacks.c: forms for _FORTIFY_SOURCE, those that reach the
 * kernel inside of the C library, stacks of signal handlers, contexts; signals by older names.
 */
#undef _FILE_OFFSET_BITS
#include "run_victim.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <mntent.h>
#include <nl_types.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

ssize_t __readlink_chk(const char *path, char *buf, size_t n, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *buf, size_t n, size_t room);
char *__getcwd_chk(char *buf, size_t n, size_t room);
int __getgroups_chk(int n, gid_t *p, size_t room);
int __ttyname_r_chk(int fd, char *buf, size_t n, size_t room);
/* <signal.h> gives some of these other names, or warns of their age. */
int old_sigpause(int mask) __asm__("sigpause");
int old_sigblock(int mask) __asm__("sigblock");
int old_sigsetmask(int mask) __asm__("sigsetmask");
int old_sighold(int sig) __asm__("sighold");
int old_sigignore(int sig) __asm__("sigignore");
sighandler_t old_sigset(int sig, sighandler_t handler) __asm__("sigset");
sighandler_t old_signal(int sig, sighandler_t handler) __asm__("__sysv_signal");
sighandler_t old_sysv(int sig, sighandler_t handler) __asm__("sysv_signal");
sighandler_t old_bsd(int sig, sighandler_t handler) __asm__("bsd_signal");
sighandler_t old_ssignal(int sig, sighandler_t handler) __asm__("ssignal");
int old_action(int sig, const struct sigaction *act, struct sigaction *old) __asm__("__sigaction");
ssize_t getdirentries(int fd, char *buf, size_t n, off_t *base);
ssize_t getdirentries64(int fd, char *buf, size_t n, off64_t *base);

static void check_fortified(void)
{
	char *path = name(0, "file"), *link = name(1, "link"), *text = object(2);
	gid_t *groups = object(3);
	int fd = open(path, O_CREAT | O_RDWR, 0600);

	CHECK(fd >= 0 && !close(fd) && !symlink("elsewhere", link));
	CHECK(AWAY(__readlink_chk(link, text, 100, 200)) == 9 && !memcmp(text, "elsewhere", 9));
	memset(text, 0, 9);
	CHECK(AWAY(__readlinkat_chk(AT_FDCWD, link, text, 100, 200)) == 9);
	CHECK(!memcmp(text, "elsewhere", 9) && !unlink(link));
	CHECK(AWAY(__getcwd_chk(text, 3000, 5000)) == text && text[0] == '/');
	CHECK(AWAY(__getgroups_chk(64, groups, 400)) >= 0 || errno == EINVAL);
}

static void check_terminal(void)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY);
	char *text = object(0);

	if (fd < 0 || grantpt(fd) || unlockpt(fd)) /* none in this place */
		return;
	CHECK(AWAY(ttyname_r(fd, text, 200)) != EFAULT);
	CHECK(AWAY(__ttyname_r_chk(fd, text, 200, 300)) != EFAULT);
	close(fd);
}

static void check_names(void)
{
	char *path = name(0, "file"), *made = name(1, "XXXXXX"), *dir = name(2, "");
	char *key = object(3), *entries = object(4);
	struct timeval *two = object(5);
	struct stat st;
	off_t base = 0;
	FILE *table;
	int fd;

	CHECK(AWAY(ftok(path, 'x')) != -1 && AWAY(pathconf(path, _PC_NAME_MAX)) > 10);
	CHECK(!AWAY(lchmod(path, 0640)) || errno == EOPNOTSUPP);
	two[0] = two[1] = (struct timeval){ 3000, 0 };
	CHECK(!AWAY(futimesat(AT_FDCWD, path, two)) && !stat(path, &st) && st.st_mtime == 3000);
	CHECK(AWAY(catopen(path, 0)) == (nl_catd)-1 && errno != EFAULT);
	table = AWAY(setmntent(path, "r"));
	CHECK(table && endmntent(table));
	strcpy(key, "user.none");
	fd = open(path, O_RDWR);
	CHECK(AWAY(fremovexattr(fd, key)) == -1 && errno != EFAULT && !close(fd));
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	CHECK(AWAY(getdirentries(fd, entries, 4096, &base)) > 0 && !lseek(fd, 0, SEEK_SET));
	CHECK(AWAY(getdirentries64(fd, entries, 4096, &base)) > 0 && !close(fd));
	CHECK((fd = AWAY(mkstemp(made))) >= 0 && !close(fd) && !AWAY(unlink(made)));
	CHECK(!strstr(made, "XXXXXX"));
}

/* Each of them completes the name that it gets, in its place. */
static void check_made(void)
{
	char *made;
	int fd;

#define MADE(file, call)                                                                           \
	made = name(1, file);                                                                      \
	fd = AWAY(call);                                                                           \
	CHECK(fd >= 0 && !close(fd) && !strstr(made, "XXXXXX") && !unlink(made))

	MADE("XXXXXX", mkstemp64(made));
	MADE("XXXXXX", mkostemp(made, O_APPEND));
	MADE("XXXXXX", mkostemp64(made, O_APPEND));
	MADE("XXXXXX.c", mkstemps(made, 2));
	MADE("XXXXXX.c", mkstemps64(made, 2));
	MADE("XXXXXX.c", mkostemps(made, 2, O_APPEND));
	MADE("XXXXXX.c", mkostemps64(made, 2, O_APPEND));
	made = name(1, "XXXXXX");
	CHECK(AWAY(mkdtemp(made)) == made && !rmdir(made));
	CHECK(!unlink(name(0, "file")));
}

static int none(const struct dirent *d)
{
	return 0;
}

static int none64(const struct dirent64 *d)
{
	return 0;
}

static void check_lists(void)
{
	char *dir = name(2, "");
	struct dirent **list;
	struct dirent64 **list64;

	CHECK(!AWAY(scandir(dir, &list, none, NULL)));
	free(list);
	CHECK(!AWAY(scandirat(AT_FDCWD, dir, &list, none, NULL)));
	free(list);
	CHECK(!AWAY(scandir64(dir, &list64, none64, NULL)));
	free(list64);
	CHECK(!AWAY(scandirat64(AT_FDCWD, dir, &list64, none64, NULL)));
	free(list64);
}

static void check_filled(void)
{
	struct timespec *asked = object(0), *left = object(1);
	eventfd_t *value = object(2);
	int fd = eventfd(7, 0);

	CHECK(AWAY(timespec_getres(asked, TIME_UTC)) == TIME_UTC);
	*asked = (struct timespec){ 0, 1000 };
	CHECK(!AWAY(thrd_sleep(asked, left)));
	CHECK(!AWAY(eventfd_read(fd, value)) && *value == 7);
	close(fd);
}

static void check_windows(void)
{
	struct winsize *size = object(0), seen = { 0 };
	int one, other;
	pid_t pid;

	*size = (struct winsize){ .ws_row = 11, .ws_col = 22 };
	if (AWAY(openpty(&one, &other, NULL, NULL, size))) /* no terminals in this place */
		return;
	CHECK(!ioctl(other, TIOCGWINSZ, &seen) && seen.ws_row == 11);
	close(one);
	close(other);
	pid = AWAY(forkpty(&one, NULL, NULL, size));
	if (!pid)
		_exit(ioctl(0, TIOCGWINSZ, &seen) || seen.ws_col != 22);
	CHECK(pid > 0 && waitpid(pid, &other, 0) == pid && !other);
	close(one);
}

/* No wrapper is needed: the C library gives the kernel memory of its own. */
static void check_by_itself(void)
{
	char *path = name(0, "file"), *text = object(1), *dir = name(2, "");
	struct termios *t = object(3);
	glob_t found = { 0 };
	FTS *tree;
	char *roots[] = { dir, NULL };
	int fd = open(path, O_CREAT | O_RDWR, 0600), one, other;

	CHECK(!AWAY(gethostname(text, 300)) && *text && !close(fd));
	CHECK(AWAY(realpath(path, text)) == text && !strcmp(text, path));
	CHECK(!AWAY(glob(path, 0, NULL, &found)) && found.gl_pathc == 1);
	globfree(&found);
	tree = AWAY(fts_open(roots, FTS_PHYSICAL, NULL));
	CHECK(tree && fts_read(tree) && !fts_close(tree));
	if (openpty(&one, &other, NULL, NULL, NULL) == 0) {
		CHECK(!AWAY(tcgetattr(other, t)) && !AWAY(tcsetattr(other, TCSANOW, t)));
		close(one);
		close(other);
	}
	CHECK(!unlink(path));
}

static void check_clock(void)
{
	struct timex *t = object(0);

	memset(t, 0, sizeof(*t));
	CHECK(AWAY(adjtimex(t)) >= 0 && t->tick && AWAY(ntp_adjtime(t)) >= 0);
	CHECK(AWAY(clock_adjtime(CLOCK_REALTIME, t)) >= 0);
}

static void check_wait(void)
{
	struct timespec *soon = object(0);
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	*soon = (struct timespec){ 0, 1000 };
	CHECK(!AWAY(epoll_pwait2(fd, &event, 1, soon, NULL)) || errno == ENOSYS);
	close(fd);
}

/* Memory of which nothing may be asked but that it is executed. */
static void check_executable(void)
{
	unsigned char *p =
		mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && in_fam(p));
	fill(p, BIG, 3);
	CHECK(!mprotect(p, BIG, PROT_EXEC));
	verify(p, BIG, 3);
	CHECK(!mprotect(p, BIG, PROT_READ | PROT_WRITE));
	fill(p, BIG, 4);
	verify(p, BIG, 4);
	munmap(p, BIG);
}

void case_rare(void)
{
	objects_make();
	check_fortified();
	check_terminal();
	check_names();
	check_made();
	check_lists();
	check_filled();
	check_windows();
	check_by_itself();
	check_clock();
	check_wait();
	check_executable();
	objects_end();
}

static unsigned char *seen_fam;
static volatile int handled;
static char *volatile handler_at;

static void handle(int sig)
{
	handler_at = __builtin_frame_address(0);
	verify(seen_fam, BIG, 5);
	handled++;
}

/* A thread gives a stack for its handlers that lies in fabric memory, and takes it back. */
static void *on_own_stack(void *arg)
{
	enum { BYTES = 4 * MIB };
	struct sigaction act = { .sa_handler = handle, .sa_flags = SA_ONSTACK };
	stack_t *given = object(0), *seen = object(1);
	char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *far = (char *)&act;

	CHECK(p != MAP_FAILED && in_fam(p) && !sigaction(SIGUSR2, &act, NULL));
	*given = (stack_t){ .ss_sp = p, .ss_size = BYTES };
	CHECK(!AWAY(sigaltstack(given, NULL)) && !AWAY(sigaltstack(NULL, seen)));
	CHECK(seen->ss_sp == p && seen->ss_size == BYTES && !seen->ss_flags);
	verify(seen_fam, BIG, 5);
	CHECK(!pthread_kill(pthread_self(), SIGUSR2));
	CHECK(handler_at - far > MIB || far - handler_at > MIB); /* on a stack of its own */
	if (arg) { /* as languages do at a thread's end; others leave it where it is */
		*given = (stack_t){ .ss_flags = SS_DISABLE };
		CHECK(!AWAY(sigaltstack(given, seen)) && seen->ss_sp == p);
		munmap(p, BYTES);
	}
	return NULL;
}

void case_altstack(void)
{
	pthread_t thread;

	objects_make();
	seen_fam = malloc(BIG);
	CHECK(seen_fam);
	fill(seen_fam, BIG, 5);
	CHECK(in_fam(seen_fam));
	for (int i = 0; i < 4; i++) {
		CHECK(!pthread_create(&thread, NULL, on_own_stack, i & 1 ? &thread : NULL));
		CHECK(!pthread_join(thread, NULL));
	}
	CHECK(handled == 4);
	free(seen_fam);
	objects_end();
}

static ucontext_t outside, inside;

static void in_context(void)
{
	verify(seen_fam, BIG, 5);
	swapcontext(&inside, &outside);
	verify(seen_fam, BIG, 5);
	handled++;
	setcontext(&outside);
}

static void check_contexts(void)
{
	static char stack[256 << 10];

	handled = 0;
	CHECK(!getcontext(&inside));
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof(stack);
	makecontext(&inside, in_context, 0);
	sigfillset(&inside.uc_sigmask);
	CHECK(!swapcontext(&outside, &inside));
	verify(seen_fam, BIG, 5);
	sigfillset(&inside.uc_sigmask);
	CHECK(!swapcontext(&outside, &inside) && handled == 1);
	verify(seen_fam, BIG, 5);
}

static void own(int sig)
{
	_exit(98);
}

/* None of them keeps the library's signals from it. */
static void check_old_names(void)
{
	struct sigaction act = { .sa_handler = own }, seen;

	CHECK(!old_sighold(SIGBUS) && !old_sighold(SIGSEGV));
	verify(seen_fam, BIG, 5);
	CHECK(!(old_sigblock(-1) & 1 << (SIGBUS - 1)));
	verify(seen_fam, BIG, 5);
	CHECK(!(old_sigsetmask(-1) & 1 << (SIGBUS - 1)));
	verify(seen_fam, BIG, 5);
	CHECK(old_sigset(SIGBUS, SIG_HOLD) != SIG_ERR);
	verify(seen_fam, BIG, 5);
	CHECK(!old_action(SIGBUS, &act, NULL));
	verify(seen_fam, BIG, 5);
	CHECK(old_sigset(SIGBUS, own) == own && old_sysv(SIGBUS, own) == own);
	verify(seen_fam, BIG, 5);
	CHECK(old_signal(SIGBUS, own) == own && old_bsd(SIGBUS, own) == own);
	verify(seen_fam, BIG, 5);
	CHECK(old_ssignal(SIGBUS, SIG_DFL) == own && !old_sigignore(SIGBUS));
	verify(seen_fam, BIG, 5);
	CHECK(!sigaction(SIGBUS, NULL, &seen) && seen.sa_handler == SIG_IGN);
	old_sigsetmask(0);
}

/* The older names do to other signals what they always did. */
static void check_old_meaning(void)
{
	sigset_t now;

	CHECK(!old_sighold(SIGUSR1) && !pthread_sigmask(SIG_SETMASK, NULL, &now));
	CHECK(sigismember(&now, SIGUSR1) && old_sigset(SIGUSR1, own) == SIG_HOLD);
	CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &now) && !sigismember(&now, SIGUSR1));
	CHECK(old_sigset(SIGUSR1, SIG_HOLD) == own && old_sigset(SIGUSR1, SIG_IGN) == SIG_HOLD);
	CHECK(!old_sigblock(1 << (SIGUSR1 - 1)));
	CHECK(old_sigsetmask(1 << (SIGUSR2 - 1)) == 1 << (SIGUSR1 - 1));
	CHECK(old_sigsetmask(0) == 1 << (SIGUSR2 - 1));
	CHECK(old_sysv(SIGUSR1, handle) == SIG_IGN && !raise(SIGUSR1)); /* for one signal */
	CHECK(old_sysv(SIGUSR1, SIG_IGN) == SIG_DFL);
	CHECK(old_sighold(1000) == -1 && errno == EINVAL && old_sigset(0, own) == SIG_ERR);
}

static void check_old_wait(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 1000 } };
	struct sigaction act = { .sa_handler = handle };

	sigfillset(&act.sa_mask);
	CHECK(!sigaction(SIGALRM, &act, NULL) && !old_sigblock(1 << (SIGALRM - 1)));
	handled = 0;
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	CHECK(old_sigpause(~(1 << (SIGALRM - 1))) == -1 && errno == EINTR && handled == 1);
	old_sigsetmask(0);
}

void case_old_signals(void)
{
	seen_fam = malloc(BIG);
	CHECK(seen_fam);
	fill(seen_fam, BIG, 5);
	CHECK(in_fam(seen_fam));
	check_contexts();
	check_old_names();
	check_old_meaning();
	check_old_wait();
	free(seen_fam);
}
