/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wrapped functions that the other cases do not call: forms for 32-bit offsets, of older and of
 * fortified programs, and the rarer ones.  test_run.c checks that none is left out.
 */
#undef _FILE_OFFSET_BITS
#include "run_victim.h"

#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

/* What headers declare no more, or only for _FORTIFY_SOURCE; newer C libraries may lack some. */
#define OLD __attribute__((weak))
int __xstat(int v, const char *path, struct stat *p) OLD;
int __lxstat(int v, const char *path, struct stat *p) OLD;
int __fxstat(int v, int fd, struct stat *p) OLD;
int __fxstatat(int v, int dir, const char *path, struct stat *p, int flags) OLD;
int __xstat64(int v, const char *path, struct stat64 *p) OLD;
int __lxstat64(int v, const char *path, struct stat64 *p) OLD;
int __fxstat64(int v, int fd, struct stat64 *p) OLD;
int __fxstatat64(int v, int dir, const char *path, struct stat64 *p, int flags) OLD;
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
ssize_t __pread64_chk(int fd, void *p, size_t n, off64_t at, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
		size_t room);

enum { HERE = AT_FDCWD };

/* It was done, or refused for a reason of its own. */
#define NO_EFAULT(call) CHECK((call) != -1 || errno != EFAULT)

static bool five(const struct stat *st)
{
	bool is = st->st_size == 5;

	memset((void *)(uintptr_t)st, 0, sizeof(*st));
	return is;
}

static void check_stats(void)
{
	char *path = name(0, "file");
	struct stat *st = object(1);
	struct stat64 *big = object(2);
	struct statfs *fs = object(3);
	struct statvfs *vfs = object(4);
	int fd = AWAY(creat(path, 0600));

	CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
	CHECK(!AWAY(stat(path, st)) && five(st) && !AWAY(lstat(path, st)) && five(st));
	CHECK(!AWAY(fstat(fd, st)) && five(st) && !AWAY(fstatat(HERE, path, st, 0)) && five(st));
	if (__xstat && __lxstat && __fxstat && __fxstatat) {
		CHECK(!AWAY(__xstat(1, path, st)) && five(st));
		CHECK(!AWAY(__lxstat(1, path, st)) && five(st));
		CHECK(!AWAY(__fxstat(1, fd, st)) && five(st));
		CHECK(!AWAY(__fxstatat(1, HERE, path, st, 0)) && five(st));
	}
	if (__xstat64 && __lxstat64 && __fxstat64 && __fxstatat64) {
		CHECK(!AWAY(__xstat64(1, path, big)) && five((struct stat *)big));
		CHECK(!AWAY(__lxstat64(1, path, big)) && five((struct stat *)big));
		CHECK(!AWAY(__fxstat64(1, fd, big)) && five((struct stat *)big));
		CHECK(!AWAY(__fxstatat64(1, HERE, path, big, 0)) && five((struct stat *)big));
	}
	CHECK(!AWAY(statfs(path, fs)) && fs->f_bsize > 0);
	fs->f_bsize = 0;
	CHECK(!AWAY(fstatfs(fd, fs)) && fs->f_bsize > 0);
	CHECK(!AWAY(statvfs(path, vfs)) && vfs->f_bsize > 0);
	close(fd);
}

static void check_opened(int fd)
{
	CHECK(fd >= 0 && !close(fd));
}

static void check_opens(void)
{
	char *path = name(0, "file"), *command = object(1), line[10];
	int watch;
	FILE *f;

	check_opened(AWAY(open(path, O_RDONLY)));
	check_opened(AWAY(openat(HERE, path, O_RDONLY)));
	check_opened(AWAY(__open_2(path, O_RDONLY)));
	check_opened(AWAY(__open64_2(path, O_RDONLY)));
	check_opened(AWAY(__openat_2(HERE, path, O_RDONLY)));
	check_opened(AWAY(__openat64_2(HERE, path, O_RDONLY)));
	f = AWAY(fopen(path, "r"));
	CHECK(f && fgetc(f) == 'h');
	f = AWAY(freopen(path, "r", f));
	CHECK(f && fgetc(f) == 'h');
	f = AWAY(freopen64(path, "r", f));
	CHECK(f && fgetc(f) == 'h' && !fclose(f));
	strcpy(command, "echo 12345");
	f = AWAY(popen(command, "r"));
	CHECK(f && fgets(line, sizeof(line), f) && !strcmp(line, "12345\n") && !pclose(f));
	check_opened(AWAY(memfd_create(command, 0)));
	watch = inotify_init();
	CHECK(AWAY(inotify_add_watch(watch, path, IN_OPEN)) >= 0 && !close(watch));
	CHECK(!AWAY(truncate(path, 4)));
	check_opened(AWAY(creat64(path, 0600)));
	CHECK(AWAY(open(path, O_CREAT | O_EXCL, 0600)) < 0 && errno == EEXIST);
}

static void check_rights(void)
{
	char *path = name(0, "file");
	gid_t *groups = object(1);
	int n;

	CHECK(!AWAY(faccessat(HERE, path, R_OK, 0)) && !AWAY(euidaccess(path, R_OK)));
	CHECK(!AWAY(eaccess(path, R_OK)) && !AWAY(fchmodat(HERE, path, 0640, 0)));
	CHECK(!AWAY(chown(path, geteuid(), getegid())));
	CHECK(!AWAY(lchown(path, geteuid(), getegid())));
	CHECK(!AWAY(fchownat(HERE, path, geteuid(), getegid(), 0)));
	strcpy(object(2), "/nowhere");
	CHECK(AWAY(chroot(object(2))) < 0 && errno != EFAULT);
	n = AWAY(getgroups(64, groups));
	CHECK(n >= 0);
	NO_EFAULT(AWAY(setgroups((size_t)n, groups)));
}

static void check_links(void)
{
	char *path = name(0, "file"), *other = name(1, "other"), *third = name(2, "third");
	char *text = object(3);

	CHECK(!AWAY(linkat(HERE, path, HERE, other, 0)));
	CHECK(!AWAY(renameat(HERE, other, HERE, third)) && access(other, F_OK));
	NO_EFAULT(AWAY(renameat2(HERE, third, HERE, other, 0)));
	remove(third); /* where there is no renameat2 */
	CHECK(!AWAY(symlinkat(path, HERE, third)));
	CHECK(AWAY(readlinkat(HERE, third, text, 500)) == (ssize_t)strlen(path));
	CHECK(!memcmp(text, path, strlen(path)) && !AWAY(unlinkat(HERE, third, 0)));
	CHECK(!AWAY(mkdirat(HERE, third, 0700)) && !AWAY(unlinkat(HERE, third, AT_REMOVEDIR)));
	CHECK(!AWAY(mkfifo(third, 0600)) && !AWAY(remove(third)));
	CHECK(!AWAY(mkfifoat(HERE, third, 0600)) && !AWAY(remove(third)));
	CHECK(!AWAY(mknod(third, S_IFIFO | 0600, 0)) && !AWAY(remove(third)));
	CHECK(!AWAY(mknodat(HERE, third, S_IFIFO | 0600, 0)) && !AWAY(remove(third)));
	remove(other);
}

static void check_file_times(void)
{
	char *path = name(0, "file");
	struct timeval *two = object(1);
	struct utimbuf *buf = object(2);
	int fd = open(path, O_RDWR);
	struct stat st;

	two[0] = two[1] = (struct timeval){ 1001, 0 };
	CHECK(!AWAY(utimes(path, two)) && !fstat(fd, &st) && st.st_mtime == 1001);
	two[1].tv_sec = 1002;
	CHECK(!AWAY(lutimes(path, two)) && !fstat(fd, &st) && st.st_mtime == 1002);
	two[1].tv_sec = 1003;
	CHECK(!AWAY(futimes(fd, two)) && !fstat(fd, &st) && st.st_mtime == 1003);
	*buf = (struct utimbuf){ 5, 1004 };
	CHECK(!AWAY(utime(path, buf)) && !fstat(fd, &st) && st.st_mtime == 1004);
	close(fd);
}

static void check_attributes(void)
{
	char *path = name(0, "file"), *key = object(1), *value = object(2);
	int fd = open(path, O_RDWR);

	strcpy(key, "user.soda");
	strcpy(value, "v");
	if (AWAY(fsetxattr(fd, key, value, 1, 0))) {
		CHECK(errno !=
		      EFAULT); /* not every file system has them: the rest does not fail by us */
		NO_EFAULT(AWAY(lsetxattr(path, key, value, 1, 0)));
		NO_EFAULT(AWAY(fgetxattr(fd, key, value, 100)));
		NO_EFAULT(AWAY(lgetxattr(path, key, value, 100)));
		NO_EFAULT(AWAY(flistxattr(fd, value, 1000)));
		NO_EFAULT(AWAY(llistxattr(path, value, 1000)));
		NO_EFAULT(AWAY(removexattr(path, key)));
		NO_EFAULT(AWAY(lremovexattr(path, key)));
		NO_EFAULT(AWAY(fremovexattr(fd, key)));
		close(fd);
		return;
	}
	value[0] = 0;
	CHECK(AWAY(fgetxattr(fd, key, value, 100)) == 1 && value[0] == 'v');
	CHECK(AWAY(flistxattr(fd, value, 1000)) > 0 && !strcmp(value, key));
	CHECK(!AWAY(removexattr(path, key)) && AWAY(lgetxattr(path, key, value, 9)) < 0);
	value[0] = 'w';
	CHECK(!AWAY(lsetxattr(path, key, value, 1, 0)));
	value[0] = 0;
	CHECK(AWAY(lgetxattr(path, key, value, 100)) == 1 && value[0] == 'w');
	CHECK(AWAY(llistxattr(path, value, 1000)) > 0 && !strcmp(value, key));
	CHECK(!AWAY(lremovexattr(path, key)));
	CHECK(!AWAY(lsetxattr(path, key, value, 1, 0)) && !AWAY(fremovexattr(fd, key)));
	close(fd);
}

/* Names that the C library hands on by calls of its own, and what stands for a name. */
static void check_names(void)
{
	char *path = name(0, "file"), *mounts = object(1);
	struct file_handle *handle = object(2);
	int *mount = object(3), fd = open(path, O_RDWR);
	key_t key = AWAY(ftok(path, 7));
	struct timeval *two = object(4);
	struct stat st;
	FILE *f;

	CHECK(key != -1 && !fstat(fd, &st) && (key & 0xffff) == (key_t)(st.st_ino & 0xffff));
	CHECK(AWAY(ftok(name(0, "none"), 7)) == -1 && errno == ENOENT);
	path = name(0, "file");
	strcpy(mounts, "/proc/self/mounts");
	f = AWAY(setmntent(mounts, "r"));
	CHECK(f && getmntent(f));
	endmntent(f);
	handle->handle_bytes = MAX_HANDLE_SZ;
	if (!AWAY(name_to_handle_at(HERE, path, handle, mount, 0))) {
		CHECK(handle->handle_bytes > 0 && handle->handle_bytes <= MAX_HANDLE_SZ);
		NO_EFAULT(AWAY(open_by_handle_at(fd, handle, O_RDONLY)));
	} else {
		CHECK(errno != EFAULT);
	}
	handle->handle_bytes = 1; /* too little: it says how much */
	if (AWAY(name_to_handle_at(HERE, path, handle, mount, 0)) && errno == EOVERFLOW)
		CHECK(handle->handle_bytes > 1);
	NO_EFAULT(AWAY(fanotify_mark(-1, FAN_MARK_ADD, FAN_OPEN, HERE, path)));
	two[0] = two[1] = (struct timeval){ 1005, 0 };
	CHECK(!AWAY(futimesat(HERE, path, two)) && !fstat(fd, &st) && st.st_mtime == 1005);
	close(fd);
}

/* The C library has it since 2.36, and ends the program where the kernel cannot fill its buffer. */
extern void arc4random_buf(void *p, size_t n) __attribute__((weak));

static void check_arc4random(char *p)
{
	if (!arc4random_buf)
		return;
	memset(p, 0, 1000);
	(void)AWAY(0);
	arc4random_buf(p, 999);
	CHECK(memcmp(p, p + 500, 499) && !p[999]);
}

static void check_transfers(void)
{
	char *p = object(0), *path = name(1, "file");
	struct iovec *v = object(2);
	int fd = open(path, O_RDWR | O_TRUNC);

	v[0] = (struct iovec){ p, 3 };
	v[1] = (struct iovec){ p + 10, 4 };
	strcpy(p, "abc");
	strcpy(p + 10, "defg");
	CHECK(AWAY(pwrite(fd, p, 3, 0)) == 3 && AWAY(pread(fd, p + 3, 3, 0)) == 3);
	CHECK(!memcmp(p, "abcabc", 6));
	CHECK(AWAY(writev(fd, v, 2)) == 7 && !lseek(fd, 0, SEEK_SET));
	memset(p, 0, 20);
	CHECK(AWAY(readv(fd, v, 2)) == 7 && !memcmp(p, "abc", 4) && !memcmp(p + 10, "defg", 5));
	CHECK(AWAY(pwritev(fd, v, 2, 7)) == 7 && AWAY(preadv(fd, v, 2, 4)) == 7);
	CHECK(!memcmp(p, "efg", 4) && !memcmp(p + 10, "abcd", 5)); /* defg|abc|defg from 4 */
	CHECK(AWAY(pwritev2(fd, v, 2, 14, 0)) == 7 && AWAY(preadv2(fd, v, 2, 14, 0)) == 7);
	CHECK(!memcmp(p, "efg", 4) && !memcmp(p + 10, "abcd", 5));
	CHECK(AWAY(__pread64_chk(fd, p, 7, 0, 100)) == 7 && !memcmp(p, "abcdefg", 7));
	p[0] = p[1] = 0;
	CHECK(!AWAY(getentropy(p, 200)));
	CHECK(AWAY(getentropy(p, 257)) < 0 && errno == EIO);
	check_arc4random(p);
	close(fd);
}

static void check_between(void)
{
	int *ends = object(0), fd, out = memfd_create("out", 0);
	off_t *at = object(1);
	loff_t *from = object(2);
	struct flock *lock = object(3);
	char *path = name(4, "file");

	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && pwrite(fd, "0123456789", 10, 0) == 10);
	CHECK(!AWAY(pipe2(ends, O_CLOEXEC)));
	*at = 2;
	CHECK(AWAY(sendfile(out, fd, at, 3)) == 3 && *at == 5);
	*from = 1;
	CHECK(AWAY(splice(fd, from, ends[1], NULL, 4, 0)) == 4 && *from == 5);
	*lock = (struct flock){ .l_type = F_WRLCK, .l_len = 5 };
	CHECK(!AWAY(fcntl(fd, F_SETLK, lock)));
	lock->l_type = F_RDLCK;
	CHECK(!AWAY(fcntl(fd, F_OFD_GETLK, lock)) && lock->l_type == F_WRLCK);
	close(ends[0]);
	close(ends[1]);
	close(out);
	close(fd);
}

static void end_of_aio(struct aiocb *a, ssize_t n)
{
	const struct aiocb *list[1] = { a };

	CHECK(!aio_suspend(list, 1, NULL) && !aio_error(a) && aio_return(a) == n);
}

static void check_aio(void)
{
	struct aiocb *a = object(0), *list[1] = { a };
	char *p = object(1), *path = name(2, "file");
	int fd = open(path, O_RDWR);

	memset(a, 0, sizeof(*a));
	*a = (struct aiocb){ .aio_fildes = fd, .aio_buf = p, .aio_nbytes = 4 };
	strcpy(p, "aio!");
	CHECK(!AWAY(aio_write(a)));
	end_of_aio(a, 4);
	CHECK(!AWAY(aio_fsync(O_SYNC, a)) && !aio_error(a));
	memset(p, 0, 4);
	CHECK(!AWAY(aio_read(a)));
	end_of_aio(a, 4);
	CHECK(!memcmp(p, "aio!", 4));
	a->aio_lio_opcode = LIO_READ;
	CHECK(!AWAY(lio_listio(LIO_WAIT, list, 1, NULL)));
	end_of_aio(a, 4);
	close(fd);
}

static void check_polls(void)
{
	struct pollfd *fds = object(0);
	struct epoll_event *events = object(1);
	const struct timespec soon = { 0, 1000000 };
	int ends[2], fd = epoll_create1(0), n;

	CHECK(!pipe(ends) && write(ends[1], "x", 1) == 1);
	for (int i = 0; i < 2; i++) {
		*fds = (struct pollfd){ .fd = ends[0], .events = POLLIN };
		CHECK((i ? AWAY(__ppoll_chk(fds, 1, &soon, NULL, 60))
			 : AWAY(__poll_chk(fds, 1, 100, 60))) == 1);
		CHECK(fds->revents == POLLIN);
	}
	*events = (struct epoll_event){ .events = EPOLLIN, .data.fd = 77 };
	CHECK(!epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], events));
	events->data.fd = 0;
	n = AWAY(epoll_pwait2(fd, events, 1, &soon, NULL));
	CHECK(n == 1 ? events->data.fd == 77 : n < 0 && errno == ENOSYS);
	close(fd);
	close(ends[0]);
	close(ends[1]);
}

static void check_addresses(void)
{
	struct sockaddr_un *to = object(0), *from = object(1);
	socklen_t *n = object(2);
	char *p = object(3);
	int a = socket(AF_UNIX, SOCK_STREAM, 0), b = socket(AF_UNIX, SOCK_STREAM, 0), c;

	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	strcpy(to->sun_path, name(4, "stream"));
	CHECK(!bind(a, (struct sockaddr *)to, sizeof(*to)) && !listen(a, 5));
	CHECK(!connect(b, (struct sockaddr *)to, sizeof(*to)));
	*n = sizeof(*from);
	c = AWAY(accept4(a, (struct sockaddr *)from, n, SOCK_CLOEXEC));
	CHECK(c >= 0 && from->sun_family == AF_UNIX);
	*n = sizeof(*from);
	CHECK(!AWAY(getpeername(b, (struct sockaddr *)from, n)));
	CHECK(!strcmp(from->sun_path, to->sun_path));
	close(a);
	close(b);
	close(c);
	a = socket(AF_UNIX, SOCK_DGRAM, 0);
	b = socket(AF_UNIX, SOCK_DGRAM, 0);
	strcpy(to->sun_path, name(4, "datagram"));
	CHECK(!bind(a, (struct sockaddr *)to, sizeof(*to)));
	strcpy(p, "message");
	CHECK(AWAY(sendto(b, p, 8, 0, (struct sockaddr *)to, sizeof(*to))) == 8);
	memset(p, 0, 8);
	CHECK(AWAY(recv(a, p, 100, 0)) == 8 && !strcmp(p, "message"));
	close(a);
	close(b);
}

static void check_limits(void)
{
	struct rlimit *limit = object(0), *old = object(1);
	int *status = object(2);
	struct rusage *usage = object(3);
	pid_t pid;

	CHECK(!AWAY(getrlimit(RLIMIT_CORE, limit)) && !AWAY(setrlimit(RLIMIT_CORE, limit)));
	CHECK(!AWAY(prlimit(0, RLIMIT_CORE, limit, old)) && old->rlim_max == limit->rlim_max);
	pid = fork();
	if (pid == 0)
		_exit(8);
	CHECK(AWAY(wait(status)) == pid && WEXITSTATUS(*status) == 8);
	pid = fork();
	if (pid == 0)
		_exit(9);
	CHECK(AWAY(wait3(status, 0, usage)) == pid && WEXITSTATUS(*status) == 9);
}

/* Local memory, told in a vector that is fabric memory. */
static void check_mincore(void)
{
	unsigned char *vec = object(4), *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
						  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && !in_fam(p));
	p[0] = p[2 * PAGE] = 1;
	memset(vec, 9, 4);
	CHECK(!AWAY(mincore(p, 3 * PAGE, vec)));
	CHECK(vec[0] == 1 && vec[1] == 0 && vec[2] == 1 && vec[3] == 9);
	CHECK(!munmap(p, 3 * PAGE) && mincore(p, PAGE, vec) && errno == ENOMEM);
}

/* Of a multiple of the threshold. */
static void check_blocks(void)
{
	unsigned char *p = reallocarray(NULL, 3, MIB), *q;
	volatile size_t huge = SIZE_MAX / 2;

	CHECK(p && in_fam(p));
	p[3 * MIB - 1] = 5;
	q = reallocarray(p, 5, MIB);
	CHECK(q && in_fam(q) && q[3 * MIB - 1] == 5);
	CHECK(!reallocarray(q, huge, 3) && errno == ENOMEM);
	free(q);
	p = valloc(2 * MIB);
	q = pvalloc(2 * MIB + 1);
	CHECK(in_fam(p) && in_fam(q) && (uintptr_t)p % PAGE == 0 && (uintptr_t)q % PAGE == 0);
	CHECK(!AWAY(posix_madvise(p, 2 * MIB, POSIX_MADV_WILLNEED)));
	q[2 * MIB + PAGE - 1] = 1; /* whole pages */
	free(p);
	free(q);
	p = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && in_fam(p) && !p[MIB] && !munmap(p, 2 * MIB));
}

void case_every(void)
{
	objects_make();
	check_stats();
	check_opens();
	check_rights();
	check_links();
	check_file_times();
	check_attributes();
	check_names();
	check_transfers();
	check_between();
	check_aio();
	check_polls();
	check_addresses();
	check_prints();
	check_streams();
	check_limits();
	check_ipc();
	check_mincore();
	check_blocks();
	objects_end();
}
