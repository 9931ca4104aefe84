/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on fabric memory that need more care than read and write: ioctl, O_DIRECT, stdio. */
#include "run_victim.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <net/if.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>

/* Written back and dropped: the kernel would find nothing there. */
static void away(void *p, size_t n)
{
	char *page = (char *)((uintptr_t)p / PAGE * PAGE);

	CHECK(!madvise(page, n + (size_t)((char *)p - page), MADV_PAGEOUT));
}

static void check_pipe(char *p)
{
	int ends[2], *waiting = (int *)(p + 8);

	CHECK(!pipe(ends) && write(ends[1], "hello", 5) == 5);
	*waiting = 77;
	away(p, MIB);
	CHECK(!ioctl(ends[0], FIONREAD, waiting) && *waiting == 5);
	*waiting = 1;
	away(p, MIB);
	CHECK(!ioctl(ends[0], FIONBIO, waiting));
	CHECK(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	CHECK(ioctl(ends[0], TIOCGWINSZ, p) < 0 && errno == ENOTTY);
	CHECK(ioctl(-1, FIONREAD, waiting) < 0 && errno == EBADF);
	close(ends[0]);
	close(ends[1]);
}

static void check_terminal(char *p)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY), *number = (int *)(p + MIB / 2);
	struct winsize *size = (struct winsize *)(p + 4 * PAGE - 4); /* over the edge of a page */

	if (fd < 0)
		return; /* no pseudo-terminals here */
	*size = (struct winsize){ .ws_row = 12, .ws_col = 34 };
	away(p, MIB);
	CHECK(!ioctl(fd, TIOCSWINSZ, size));
	memset(size, 0, sizeof(*size));
	away(p, MIB);
	CHECK(!ioctl(fd, TIOCGWINSZ, size) && size->ws_row == 12 && size->ws_col == 34);
	away(p, MIB);
	CHECK(!ioctl(fd, TIOCGPTN, number) && *number >= 0); /* its number says how large */
	away(p, MIB);
	CHECK(!ioctl(fd, TCGETS, p) || errno == ENOTTY);
	CHECK(!ioctl(fd, TCGETS, p + 3 * PAGE - 4) || errno == ENOTTY);
	close(fd);
}

static void check_interfaces(char *p)
{
	struct ifreq *r = (struct ifreq *)(p + 4 * PAGE - 12);
	struct ifconf *conf = (struct ifconf *)p;
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(s >= 0);
	memset(r, 0, sizeof(*r));
	strcpy(r->ifr_name, "lo");
	away(p, MIB);
	CHECK(!ioctl(s, SIOCGIFINDEX, r) && r->ifr_ifindex > 0);
	away(p, MIB);
	CHECK(!ioctl(s, SIOCGIFFLAGS, r) && r->ifr_flags & IFF_LOOPBACK);
	conf->ifc_buf = p + 8 * PAGE;
	conf->ifc_len = 64 * sizeof(*r);
	away(p, MIB);
	CHECK(!ioctl(s, SIOCGIFCONF, conf) && conf->ifc_len % (int)sizeof(*r) == 0);
	close(s);
}

/* The number of a request that the kernel does not tell the size of, and one with a tail. */
static void check_file(char *p)
{
	char name[] = "/tmp/soda-run-XXXXXX";
	struct fiemap *map = (struct fiemap *)p;
	int fd = mkstemp(name), *flags = (int *)(p + MIB / 2);

	CHECK(fd >= 0 && write(fd, name, sizeof(name)) == sizeof(name));
	memset(map, 0, PAGE);
	map->fm_length = UINT64_MAX;
	map->fm_flags = FIEMAP_FLAG_SYNC;
	map->fm_extent_count = 8;
	away(p, MIB);
	if (!ioctl(fd, FS_IOC_FIEMAP, map))
		CHECK(!map->fm_mapped_extents || map->fm_extents[0].fe_length);
	else
		CHECK(errno != EFAULT);
	away(p, MIB);
	CHECK(!ioctl(fd, FS_IOC_GETFLAGS, flags) || errno != EFAULT);
	away(p, MIB);
	CHECK(!ioctl(fd, FIGETBSZ, flags) ? *flags > 0 : errno != EFAULT);
	close(fd);
	unlink(name);
}

/* VT_RELDISP and its like have no size and no place in a table: held for the call, and refused. */
static void check_unknown(char *p)
{
	int fd = open("/dev/null", O_RDWR);

	CHECK(fd >= 0);
	away(p, MIB);
	CHECK(ioctl(fd, 0x1234, p + 100) < 0 && errno == ENOTTY);
	close(fd);
}

void case_ioctl(void)
{
	char *p = calloc(1, 2 * MIB);

	CHECK(p && in_fam(p));
	p = (char *)(((uintptr_t)p + 65535) & ~(uintptr_t)65535);
	memset(p, 0, MIB);
	check_pipe(p);
	check_terminal(p);
	check_interfaces(p);
	check_file(p);
	check_unknown(p);
}

/* Transfers that the device makes by itself: from and to pages that must not go. */
void case_direct(void)
{
	char name[] = "/var/tmp/soda-run-XXXXXX";
	int plain = mkstemp(name), fd = open(name, O_RDWR | O_DIRECT);
	unsigned char *p, *q;
	struct iovec v[2];

	CHECK(plain >= 0 && fd >= 0);
	unlink(name);
	p = aligned_alloc(PAGE, BIG);
	q = aligned_alloc(PAGE, BIG);
	CHECK(p && q && in_fam(p) && in_fam(q));
	fill(p, BIG, 9);
	CHECK(pwrite(fd, p, BIG, 0) == BIG); /* five times the page buffer */
	CHECK(pread(fd, q, BIG, 0) == BIG);
	verify(q, BIG, 9);
	memset(q, 0, BIG);
	CHECK(pread(plain, q, BIG, 0) == BIG);
	verify(q, BIG, 9);
	fill(q, 4 * MIB, 10);
	v[0] = (struct iovec){ q, MIB + PAGE };
	v[1] = (struct iovec){ q + MIB + PAGE, 3 * MIB - PAGE };
	CHECK(pwritev(fd, v, 2, 0) == 4 * MIB);
	memset(q, 0, 4 * MIB);
	CHECK(preadv(fd, v, 2, 0) == 4 * MIB);
	verify(q, 4 * MIB, 10);
	CHECK(read(fd, q, MIB) == MIB && lseek(fd, 0, SEEK_CUR) == MIB);
	verify(q, MIB, 10);
	CHECK(pread(fd, q, MIB, BIG) == 0); /* its end */
	close(fd);
	close(plain);
	free(p);
	free(q);
}

/* What programs call that are built with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *p, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *p, size_t n, off_t at, size_t room);
ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, void *name, void *bytes);
size_t __fread_chk(void *p, size_t room, size_t item, size_t n, FILE *f);
size_t __fread_unlocked_chk(void *p, size_t room, size_t item, size_t n, FILE *f);
int __fprintf_chk(FILE *f, int flag, const char *format, ...);
int __dprintf_chk(int fd, int flag, const char *format, ...);

/* A descriptor travels beside the data; everything that says so lies in fabric memory. */
static void check_message(const int *s, unsigned char *q)
{
	struct msghdr *m = (struct msghdr *)(q + 3 * MIB);
	struct iovec *v = (struct iovec *)(q + 4 * MIB);
	struct cmsghdr *c = (struct cmsghdr *)(q + 5 * MIB);
	struct sockaddr_un *name = (struct sockaddr_un *)(q + 6 * MIB);
	int got;

	memset(m, 0, sizeof(*m));
	*v = (struct iovec){ q, 500 };
	m->msg_iov = v;
	m->msg_iovlen = 1;
	m->msg_control = c;
	m->msg_controllen = CMSG_SPACE(sizeof(int));
	*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &s[0], sizeof(int));
	away(q, BIG - PAGE);
	CHECK(sendmsg(s[0], m, 0) == 500);
	memset(c, 0, 64);
	*v = (struct iovec){ q + MIB, 4000 };
	m->msg_name = name;
	m->msg_namelen = sizeof(*name);
	away(q, BIG - PAGE);
	CHECK(recvmsg(s[1], m, 0) == 500 && !memcmp(q, q + MIB, 500));
	CHECK(m->msg_controllen >= CMSG_LEN(sizeof(int)) && c->cmsg_type == SCM_RIGHTS);
	memcpy(&got, CMSG_DATA(c), sizeof(got));
	CHECK(got > 2 && got != s[0] && !close(got));
}

static void check_forms(int fd, unsigned char *q)
{
	int s[2];

	CHECK(__pread_chk(fd, q, 8 * MIB, 0, BIG) == 8 * MIB);
	verify(q, 8 * MIB, 11);
	memset(q, 0, 8 * MIB);
	CHECK(!lseek(fd, 0, SEEK_SET) && __read_chk(fd, q, 8 * MIB, BIG) == 8 * MIB);
	verify(q, 8 * MIB, 11);
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
	away(q, MIB);
	CHECK(send(s[0], q, 3000, 0) == 3000 && send(s[0], q + 64, 3000, 0) == 3000);
	away(q, MIB);
	CHECK(__recv_chk(s[1], q + MIB, 3000, BIG - MIB, 0) == 3000);
	away(q, MIB);
	CHECK(__recvfrom_chk(s[1], q + 2 * MIB, 3000, MIB, 0, NULL, NULL) == 3000);
	CHECK(!memcmp(q, q + MIB, 3000) && !memcmp(q + 64, q + 2 * MIB, 3000));
	check_message(s, q);
	close(s[0]);
	close(s[1]);
}

static void check_unlocked(FILE *f, unsigned char *p, unsigned char *q)
{
	rewind(f);
	memset(q, 0, 8 * MIB);
	CHECK(fread_unlocked(q, 1, 4 * MIB, f) == 4 * MIB);
	CHECK(__fread_chk(q + 4 * MIB, 8 * MIB, 1, 2 * MIB, f) == 2 * MIB);
	CHECK(__fread_unlocked_chk(q + 6 * MIB, 8 * MIB, 64, 2 * MIB / 64, f) == 2 * MIB / 64);
	verify(q, 8 * MIB, 11);
	rewind(f);
	CHECK(fwrite_unlocked(p, 1, 8 * MIB, f) == 8 * MIB && !fflush(f));
	rewind(f);
	setbuffer(f, (char *)q, MIB); /* which is not used: it would be the kernel's to fill */
	CHECK(fread(q, 64, 8 * MIB / 64, f) == 8 * MIB / 64);
	verify(q, 8 * MIB, 11);
}

/* Long strings, which the C library does not copy before it hands them on. */
static void check_strings(FILE *f, char *text, char *back)
{
	enum { N = 3 * MIB };
	size_t at = 0;

	for (size_t i = 0; i < N; i++)
		text[i] = (char)('a' + i % 26);
	text[N] = 0;
	rewind(f);
	CHECK(!ftruncate(fileno(f), 0));
	away(text, N);
	CHECK(fprintf(f, "%d %5.2f<%s>%c", 7, 1.5, text, '!') == N + 10);
	away(text, N);
	CHECK(fputs(text, f) >= 0 && fputs_unlocked(text, f) >= 0);
	away(text, N);
	CHECK(__fprintf_chk(f, 1, "%*d%.*s\n", 4, 1, N, text) == N + 5);
	CHECK(!fflush(f));
	away(text, N);
	CHECK(dprintf(fileno(f), "%2$s%1$d", 42, text) == N + 2);
	CHECK(__dprintf_chk(fileno(f), 1, "%ld %s", 1L << 40, "local") == 19);
	rewind(f);
	CHECK(fread(back, 1, 5 * N + 100, f) == 5 * N + 36);
	CHECK(!memcmp(back, "7  1.50<", 8) && !memcmp(back + 8, text, N));
	CHECK(!memcmp(back + N + 8, ">!", 2) && !memcmp(back + N + 10, text, N));
	at = 3 * N + 10;
	CHECK(!memcmp(back + at, "   1", 4) && !memcmp(back + at + 4, text, N));
	CHECK(back[at + N + 4] == '\n' && !memcmp(back + at + N + 5, text, N));
	CHECK(!memcmp(back + at + 2 * N + 5, "421099511627776 local", 21));
}

void case_forms(void)
{
	char name[] = "/tmp/soda-run-XXXXXX";
	unsigned char *p = malloc(BIG), *q = malloc(BIG);
	int fd = mkstemp(name);
	FILE *f;

	CHECK(fd >= 0 && p && q && in_fam(p) && in_fam(q));
	fill(p, 8 * MIB, 11);
	CHECK(write(fd, p, 8 * MIB) == 8 * MIB);
	check_forms(fd, q);
	f = fdopen(fd, "r+");
	CHECK(f);
	check_unlocked(f, p, q);
	check_strings(f, (char *)p, (char *)q);
	fclose(f);
	unlink(name);
	p[0] = 0;
	away(p, PAGE);
	CHECK(puts((char *)p) >= 0 && printf("%s", (char *)p) == 0 && !fflush(stdout));
}
