/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults that are taken and served, in each mode, by the functions that libsoda itself calls
 * (host_agent/pages/uffd.h): a kernel that offers a feature and does not have it working is found
 * out here, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "host_agent/pages/uffd.h"
#include "soda/doctor/doctor.h"

enum { PAGE = SODA_WIRE_PAGE, WORD = 0x5a, WAIT_MS = 2000 };

/* What the handler of SIGBUS serves. One thread. */
static struct {
	char *page;
	int (*serve)(void);
	volatile sig_atomic_t faults;
	sigjmp_buf leave; /* no more faults of it are served */
} fault;

static char content[PAGE] __attribute__((aligned(PAGE)));

/* Inline mode, as libsoda has it: the first fault brings the page, protected; the second opens it.
 */
static int serve_private(void)
{
	if (fault.faults == 1)
		return soda_uffd_page_ops.copy(fault.page, content, PAGE, true);
	return fault.faults == 2 ? soda_uffd_page_ops.protect(fault.page, PAGE, false) : -EIO;
}

static int serve_shared(void)
{
	return fault.faults == 1 ? soda_uffd_page_ops.map(fault.page, PAGE) : -EIO;
}

static int serve_nothing(void)
{
	return -EIO;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	const char *at = info->si_addr;

	fault.faults++;
	if (at < fault.page || at >= fault.page + PAGE || fault.serve())
		siglongjmp(fault.leave, 1);
}

/* Load from the page, and store to it where `store` says so.  True: it was done, with the content.
 */
static bool touch(char *page, int (*serve)(void), bool store)
{
	volatile char *byte = page;

	fault.page = page;
	fault.serve = serve;
	fault.faults = 0;
	if (sigsetjmp(fault.leave, 1))
		return false;
	if (*byte != WORD)
		return false;
	if (store)
		*byte = WORD + 1;
	return !store || *byte == WORD + 1;
}

static char *map_private(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static int fail(struct soda_doctor_mode *mode, int err, const char *what)
{
	mode->err = err;
	snprintf(mode->why.text, sizeof(mode->why.text), "%s: %s", what, soda_strerror(err));
	return err;
}

/* A page of a memfd, mapped and registered; NULL: this kernel does not do that. */
static char *map_shared(void)
{
	int fd = memfd_create("soda-doctor", MFD_CLOEXEC);
	char *p = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (write(fd, content, PAGE) == PAGE)
		p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	if (!soda_uffd_register_shared(p, PAGE))
		return p;
	munmap(p, PAGE);
	return NULL;
}

/*
 * Any touch of a missing page is SIGBUS here, poisoned or not; but a page that has the mark already
 * is not poisoned a second time.
 */
static bool try_poison(char *page)
{
	return !soda_uffd_page_ops.poison(page, PAGE) &&
	       soda_uffd_page_ops.poison(page, PAGE) == -EEXIST &&
	       !touch(page, serve_nothing, false) && fault.faults == 1;
}

static bool try_minor(void)
{
	char *page = map_shared();
	bool works = page && touch(page, serve_shared, false) && fault.faults == 1;

	if (page)
		munmap(page, PAGE);
	return works;
}

/* userfaultfd is open. Two pages: the first is served, the second poisoned. */
static void try_pages(struct soda_doctor_facts *f, const struct soda_uffd_info *info)
{
	struct soda_doctor_mode *mode = &f->inline_mode;
	char *pages = map_private(2 * PAGE);
	int ret = pages ? soda_uffd_register(pages, 2 * PAGE) : -ENOMEM;

	if (ret)
		fail(mode, ret, "userfaultfd refuses an address range");
	else if (!touch(pages, serve_private, true) || fault.faults != 2)
		fail(mode, -EIO, "a fault was raised, and could not be served");
	f->poison = !ret && info->poison && try_poison(pages + PAGE);
	f->minor = !ret && info->minor && try_minor();
	if (pages)
		munmap(pages, 2 * PAGE);
}

static void try_inline(struct soda_doctor_facts *f)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO }, before;
	struct soda_doctor_mode *mode = &f->inline_mode;
	struct soda_uffd_info info;

	mode->err = soda_uffd_open(true, false, false, &info, &mode->why);
	if (mode->err)
		return;
	mode->how = info.how;
	mode->user_only = info.user_only;
	f->batch = info.batch_drop;
	action.sa_sigaction = on_sigbus;
	sigaction(SIGBUS, &action, &before);
	try_pages(f, &info);
	sigaction(SIGBUS, &before, NULL);
	soda_uffd_close();
}

/* Handler mode: one thread touches, by a system call where such faults are served, too. */
struct toucher {
	char *page;
	bool by_call;
	bool done; /* it got the content */
};

static void *touch_there(void *arg)
{
	struct toucher *t = arg;
	char byte = *(t->by_call ? content : (volatile char *)t->page);
	int fds[2];

	if (t->by_call && !pipe2(fds, O_CLOEXEC)) {
		byte = 0;
		if (write(fds[1], t->page, 1) != 1 || read(fds[0], &byte, 1) != 1)
			byte = 0;
		close(fds[0]);
		close(fds[1]);
	}
	t->done = byte == WORD;
	return NULL;
}

static int serve_one(int fd, char *page)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct uffd_msg message;

	if (poll(&p, 1, WAIT_MS) != 1)
		return -ETIMEDOUT;
	if (read(fd, &message, sizeof(message)) != sizeof(message))
		return -EIO;
	return soda_uffd_page_ops.copy(page, content, PAGE, false);
}

static void try_thread(struct soda_doctor_mode *mode, const struct soda_uffd_info *info)
{
	struct toucher t = { .page = map_private(PAGE), .by_call = !info->user_only };
	int ret = t.page ? soda_uffd_register(t.page, PAGE) : -ENOMEM;
	pthread_t thread;

	if (!ret)
		ret = -pthread_create(&thread, NULL, touch_there, &t);
	if (!ret) {
		ret = serve_one(info->fd, t.page);
		soda_uffd_close(); /* wakes the thread, also where it was not served */
		pthread_join(thread, NULL);
		if (!ret && !t.done)
			ret = -EIO;
	}
	if (ret)
		fail(mode, ret, "a fault was not served");
	if (t.page)
		munmap(t.page, PAGE);
}

static void try_handler(struct soda_doctor_mode *mode)
{
	struct soda_uffd_info info;

	mode->err = soda_uffd_open(false, false, true, &info, &mode->why);
	if (mode->err)
		return;
	mode->how = info.how;
	mode->user_only = info.user_only;
	try_thread(mode, &info);
	soda_uffd_close();
}

void soda_doctor_probe(struct soda_doctor_facts *f)
{
	memset(content, WORD, sizeof(content));
	try_inline(f);
	try_handler(&f->handler_mode);
	soda_tls_kernel(f->no_tls);
}
